"""Settings of what is added to KAI's reservation pods on Tegra nodes."""

from enum import StrEnum, unique
from typing import Annotated

from pydantic import Field

from config.model import NodeName, Settings

POLICY_CARRIER_WAYS_OUT = {
    "reservation": (
        "Upgrade the cluster; or switch on v1beta1 in 1.34 or 1.35 and set cluster.mutating_policies: v1beta1 "
        "(docs/distributions.md); or use reservation.carrier: webhook; or set reservation.overrides: never where the "
        "container toolkit injects the GPU by itself."
    ),
    "gvirtus": (
        "Upgrade the cluster; or switch on v1beta1 in 1.34 or 1.35 and set cluster.mutating_policies: v1beta1 "
        "(docs/distributions.md); or use gvirtus.carrier: webhook; or remove the section gvirtus."
    ),
}
"""What to do where the API server does not serve it, by section of the settings."""


@unique
class Overrides(StrEnum):
    """Whether reservation pods of Tegra nodes get libraries, devices and privilege.

    `auto` follows the platform; `never` turns Tegra mode off once the container toolkit does this work by itself. It
    leaves workloads with the GPU's UUID, too (manifests/reservation_index.py).
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@unique
class Privilege(StrEnum):
    """How much of its Jetson a reservation pod gets; each rung has what the rungs below it have.

    `none` gets variables and a runtime class: the container toolkit injects libraries and devices. `devices` also reads
    the folder of the driver's libraries, and still gets its devices from the toolkit: a hostPath of /dev adds no
    device rule to a container that is not privileged. `privileged` needs nothing of the toolkit, and is the only rung
    that was seen to work on a Jetson, set up without this program.
    """

    PRIVILEGED = "privileged"
    DEVICES = "devices"
    NONE = "none"


@unique
class Carrier(StrEnum):
    """How a change reaches a pod: an admission policy inside the API server, or an admission webhook of ours.

    `auto` is the policy wherever `cluster` says that the API servers serve it, and the webhook elsewhere.
    """

    AUTO = "auto"
    POLICY = "policy"
    WEBHOOK = "webhook"


class ReservationSettings(Settings):
    """KAI creates one reservation pod per shared GPU, in a namespace of its own."""

    overrides: Overrides = Overrides.AUTO
    privilege: Privilege = Privilege.PRIVILEGED
    privilege_by_node: dict[NodeName, Privilege] = {}
    """Jetsons on another rung than the others."""
    supplemental_groups: list[Annotated[int, Field(ge=1, le=2**31 - 1)]] = []
    """Groups of the device files, for the rungs below `privileged`: there the pod keeps KAI's user, which is not root.

    On Ubuntu 44 is `video`; `render` has no fixed number (`getent group render` on the Jetson)."""
    carrier: Carrier = Carrier.AUTO
    """`webhook` is for Kubernetes before 1.36, and needs `admission.image`."""
