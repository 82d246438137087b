"""Node profiles: how the pods of a node share its GPUs."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from config.model import NodeName, Settings

DEFAULT_PROFILE = "default"
"""The profile of every node that no profile names: no replicas, so that KAI can share the GPU in fractions."""

_NOT_BOTH = (
    "KAI fractions and time slicing don't compose on one node: KAI opens another GPU group for every replica and "
    "promises the same memory again, up to the number of replicas (KAI #416), whatever nvidia.com/gpu.count says. "
)


class KaiProfile(Settings):
    """Nodes whose GPUs KAI shares in fractions; the device plugin advertises each GPU once."""

    sharing: Literal["kai"]
    """KAI shares the GPUs in fractions."""
    nodes: Annotated[tuple[NodeName, ...], Field(min_length=1, strict=False)]
    """The nodes. A node is in one profile at most."""


class TimeSlicingProfile(Settings):
    """Nodes whose GPUs the device plugin advertises several times, without memory accounting; KAI leaves them alone."""

    sharing: Literal["time_slicing"]
    """The device plugin advertises each GPU several times."""
    nodes: Annotated[tuple[NodeName, ...], Field(min_length=1, strict=False)]
    """The nodes. A node is in one profile at most."""
    replicas: Annotated[int, Field(ge=2, le=1000)]
    """How often each GPU is advertised."""
    fail_requests_greater_than_one: bool = False
    """Refuse pods that ask for several replicas, since these may be the same GPU."""


def _one_way_of_sharing(data: object) -> object:
    if isinstance(data, dict):
        sharing = data.get("sharing")
        if isinstance(sharing, list) and {"kai", "time_slicing"} <= {str(way) for way in sharing}:
            raise PydanticCustomError(
                "kai_and_time_slicing", _NOT_BOTH + "Choose one, or two profiles with different nodes."
            )
        if sharing == "kai" and "replicas" in data:
            raise PydanticCustomError(
                "kai_and_time_slicing",
                _NOT_BOTH + "Remove 'replicas', or set sharing: time_slicing.",
            )
    return data


NodeProfile = Annotated[
    KaiProfile | TimeSlicingProfile,
    Field(discriminator="sharing", description="How the pods of some nodes share their GPUs."),
    BeforeValidator(_one_way_of_sharing),
]


def check_profiles(profiles: dict[str, KaiProfile | TimeSlicingProfile]) -> dict[str, KaiProfile | TimeSlicingProfile]:
    """Refuse a profile with the reserved name, and a node in two profiles."""
    if DEFAULT_PROFILE in profiles:
        raise PydanticCustomError(
            "profile_name_taken",
            "the profile 'default' is what nodes outside every profile have (KAI fractions): choose another name",
        )
    owner: dict[str, str] = {}
    for name, profile in profiles.items():
        for node in profile.nodes:
            if (other := owner.setdefault(node, name)) != name:
                both = profiles[other].sharing != profile.sharing
                raise PydanticCustomError(
                    "node_in_two_profiles",
                    "node '{node}' stands in the profiles '{first}' and '{second}'. {reason}Leave it in one.",
                    {"node": node, "first": other, "second": name, "reason": _NOT_BOTH if both else ""},
                )
    return profiles
