"""Settings of the guard that refuses pods with power over their node, in the cluster itself."""

from enum import StrEnum, unique
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from config.model import Name, Settings


@unique
class GuardScope(StrEnum):
    """Which namespaces are guarded.

    `labelled`: those with the label `kai-anywhere.io/pod-guard: enforce`. `cluster`: every one but those that are
    privileged by design: kube-system, the GPU Operator's, and `exempt_namespaces`.
    """

    LABELLED = "labelled"
    CLUSTER = "cluster"


class PodGuardSettings(Settings):
    """The policy pack judges what a program registers; the guard judges what anybody creates in the cluster."""

    scope: GuardScope = GuardScope.LABELLED
    exempt_namespaces: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Further namespaces that are privileged by design, such as those of network and storage drivers."""

    @model_validator(mode="after")
    def _exemptions_have_something_to_lift(self) -> Self:
        if self.exempt_namespaces and self.scope is GuardScope.LABELLED:
            raise PydanticCustomError(
                "exemptions_without_scope",
                "exempt_namespaces with scope 'labelled', which guards no namespace without the label "
                "kai-anywhere.io/pod-guard: remove exempt_namespaces, or set scope: cluster.",
            )
        return self
