"""Who else writes the labels by which KAI knows a GPU: what the stack sets there would not stay."""

from collections.abc import Iterator, Mapping

from cluster.access.answers.nodes import Node
from cluster.ownership.giving_back import GIVEN_BACK
from cluster.preflight.findings import Finding
from manifests.node_labels import GPU_COUNT, GPU_MEMORY
from manifests.ownership import owner, stack_of

SATURATED_MIB = "4095"
"""2^32 - 1 bytes in MiB. GPU Feature Discovery asks CUDA for the memory by a call whose answer has 32 bits and
saturates (k8s-device-plugin up to v0.20.1, internal/cuda; #2061, fixed in no release)."""

PERSON = "kubectl"
"""Who writes once: first contact asks about his values."""
RANDOM_MANAGER = "pulumi-kubernetes-"
"""The stack's own name before its field managers had names of their own."""


def judge_writers(
    nodes: Mapping[str, Node], planned: Mapping[str, Mapping[str, str | None]], stack: str
) -> Iterator[Finding]:
    """Every node whose memory or count of GPUs somebody else writes, or tells wrongly.

    Args:
        nodes: the cluster's nodes, by name.
        planned: the labels of every node that the stack labels; None where a host is asked for the value.
        stack: the stack, as project/name.
    """
    for name, node in sorted(nodes.items()):
        ours = planned.get(name, {})
        yield from judge_memory(node, ours, stack)
        yield from judge_owners(node, ours, stack)


def judge_memory(node: Node, ours: Mapping[str, str | None], stack: str) -> Iterator[Finding]:
    """A node of which GPU Feature Discovery tells less memory than it has."""
    if _is_saturated(node, ours, stack):
        yield _saturated(node, _others(node, GPU_MEMORY, stack))


def judge_owners(node: Node, ours: Mapping[str, str | None], stack: str) -> Iterator[Finding]:
    """A node whose labels of ours somebody else writes too."""
    saturated = _is_saturated(node, ours, stack)
    written = {
        label: managers
        for label in (GPU_MEMORY, GPU_COUNT)
        if label in ours and not (saturated and label == GPU_MEMORY) and (managers := _others(node, label, stack))
    }
    if written:
        yield _written(node, written)


def _others(node: Node, label: str, stack: str) -> list[str]:
    """Field managers that own a label and will write it again; other stacks are first contact's.

    Those that gave somebody's value back, ours or another stack's, wrote once.
    """
    managers = dict.fromkeys(entry.manager for entry in node.owners if entry.owns_label(label))
    return [
        manager
        for manager in managers
        if not manager.startswith((owner(stack), PERSON, RANDOM_MANAGER, GIVEN_BACK)) and stack_of(manager) is None
    ]


def _is_saturated(node: Node, ours: Mapping[str, str | None], stack: str) -> bool:
    """Only an integrated GPU is told so, of which amd64 has none; a graphics card may have 4095 MiB."""
    if node.labels.get(GPU_MEMORY) != SATURATED_MIB or ours.get(GPU_MEMORY) == SATURATED_MIB:
        return False
    if any(entry.manager.startswith(owner(stack)) and entry.owns_label(GPU_MEMORY) for entry in node.owners):
        return False
    return GPU_MEMORY in ours or node.architecture == "arm64"


def _saturated(node: Node, managers: list[str]) -> Finding:
    by = f" by {', '.join(managers)}" if managers else ""
    return Finding(
        f"node '{node.name}' has {GPU_MEMORY}={SATURATED_MIB}{by}: GPU Feature Discovery up to 0.20.1 tells this of "
        "every integrated GPU above 4 GiB, and KAI shares no more than it says.",
        "Keep GPU Feature Discovery off the node. A stack does so on the Tegra nodes that it lists, for the GPU "
        f"Operator's own: nvidia.com/gpu.deploy.gpu-feature-discovery=false. One that is installed apart is somebody "
        "else's: ask whoever runs it. What it found stays a NodeFeature, and is written again, until it goes: "
        f"kubectl get nodefeatures --all-namespaces | grep {node.name}",
        fatal=False,
    )


def _written(node: Node, written: Mapping[str, list[str]]) -> Finding:
    owners = "; ".join(
        f"{label} ('{node.labels.get(label)}') is written by {', '.join(managers)}"
        for label, managers in sorted(written.items())
    )
    return Finding(
        f"node '{node.name}': {owners} too, and whoever writes last wins: what KAI promises would change under running "
        "pods.",
        "Ask whoever runs it to leave these labels of this node alone, or leave the node out of the stack.",
        fatal=False,
    )
