"""Nodes that go to time slicing, or from there to KAI, while pods use their GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from gpu_sharing.request import GPU, gpu_groups
from manifests import reservation
from manifests.node_labels import KAI_NODE_POOL, TIME_SLICING_POOL, node_labels
from manifests.wording import first_of

_REPLICAS = "nvidia.com/gpu.replicas"
"""How often the device plugin advertises each GPU, as GPU Feature Discovery says it."""


@dataclass(frozen=True)
class MovingNode:
    """A node that is to share its GPUs in another way.

    Attributes:
        name: its name.
        to_slicing: whether it goes to time slicing, or to KAI.
        pods: that use its GPUs, as namespace/name.
    """

    name: str
    to_slicing: bool
    pods: tuple[str, ...]


def read_moving_nodes(
    cluster: Cluster, settings: StackSettings, nodes: Mapping[str, Node], state: DeployedState
) -> tuple[MovingNode, ...]:
    """Those on which pods use GPUs. Pods are asked for only where a node moves; who may not see them is told nothing.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    planned = node_labels(settings)
    moving: dict[str, bool] = {}
    for name, node in sorted(nodes.items()):
        is_sliced = node.labels.get(KAI_NODE_POOL) == TIME_SLICING_POOL
        is_to_be = planned.get(name, {}).get(KAI_NODE_POOL) == TIME_SLICING_POOL
        # What somebody else slices stays as it is, whoever else gives it KAI's label.
        if is_to_be and not is_sliced and node.labels.get(_REPLICAS, "1") == "1":
            moving[name] = True
        elif is_sliced and not is_to_be and KAI_NODE_POOL in state.labels.get(name, {}):
            moving[name] = False
    if not moving:
        return ()
    try:
        pods = cluster.pods()
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return ()
    using: dict[str, list[str]] = {}
    for pod in pods:
        if pod.node in moving and _uses_gpu(pod):
            using.setdefault(pod.node, []).append(f"{pod.namespace}/{pod.name}")
    return tuple(MovingNode(name, moving[name], tuple(sorted(using[name]))) for name in sorted(using))


def judge_moving_nodes(moving: tuple[MovingNode, ...]) -> Iterator[Finding]:
    """What becomes of the pods.

    Symptom without it: the run succeeds. Pods keep their GPUs, of which whoever gives them out next knows nothing: KAI
    has no account of replicas, and the device plugin none of shares.
    """
    for node in moving:
        way = "to time slicing" if node.to_slicing else "from time slicing back to KAI"
        yield Finding(
            f"this run takes node '{node.name}' {way} while pods use its GPUs: {first_of(node.pods)}. They keep them, "
            "and other pods get the same GPUs.",
            f"Let them end first, and keep others away until the run is over: kubectl cordon {node.name}, and kubectl "
            f"uncordon {node.name} afterwards.",
            fatal=False,
        )


def _uses_gpu(pod: Pod) -> bool:
    if pod.ended or pod.namespace == reservation.NAMESPACE:
        return False
    resources = {name for container in pod.containers for name in (*container.requests, *container.limits)}
    return bool(gpu_groups(pod.as_manifest())) or any(name.startswith(GPU) for name in resources)
