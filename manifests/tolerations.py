"""Which taints of nodes the stack's pods tolerate."""

from collections.abc import Iterable
from typing import Final

from config.cluster import ClusterSettings
from manifests.objects import Manifest

CONTROL_PLANE: Final[Manifest] = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Equal",
    "value": "",
    "effect": "NoSchedule",
}
GPU: Final[Manifest] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""What the GPU Operator's operands tolerate by default (v26.7 deployments/gpu-operator/values.yaml,
daemonsets.tolerations)."""


def tolerations(cluster: ClusterSettings) -> list[Manifest]:
    """The stack's own tolerations, as a pod has them; empty where it says none."""
    return [_toleration(taint) for taint in cluster.tolerated_taints]


def _toleration(taint: str) -> Manifest:
    pair, _, effect = taint.rpartition(":")
    key, equals, value = pair.partition("=")
    if equals:
        return {"key": key, "operator": "Equal", "value": value, "effect": effect}
    return {"key": key, "operator": "Exists", "effect": effect}


def operand_tolerations(cluster: ClusterSettings) -> list[Manifest]:
    """What the GPU Operator's operands tolerate where this program installs it."""
    return [GPU, *tolerations(cluster)]


def pod_tolerations(cluster: ClusterSettings) -> Manifest:
    """The part of a pod's spec that says them; empty where there are none."""
    stack_tolerations = tolerations(cluster)
    return {"tolerations": stack_tolerations} if stack_tolerations else {}


def setting_for(cluster: ClusterSettings, taints: Iterable[str]) -> str:
    """The setting that has the stack's pods tolerate taints too, which are written as kubectl writes them.

    It is the whole setting: who pastes it in the place of the old one keeps what that has.
    """
    return f"cluster.tolerated_taints: [{', '.join(dict.fromkeys((*cluster.tolerated_taints, *taints)))}]"
