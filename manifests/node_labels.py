"""Labels that the program gives to nodes: what GPU Feature Discovery can't know, and switches of the operator."""

from config.platform import TegraNode, TegraPlatform, ToolkitOwner, X86Platform
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings

PLATFORM = "kai-anywhere.io/platform"
"""Ours. The reservation overrides reach the nodes where it says `tegra`."""
PLATFORM_TEGRA = "tegra"
PLATFORM_X86 = "x86"
GPU_MEMORY = "nvidia.com/gpu.memory"
"""MiB of one GPU; KAI floors it to a multiple of 100 (scheduler node_info, v0.17.0)."""
GPU_COUNT = "nvidia.com/gpu.count"
"""Physical GPUs, not replicas."""
GPU_PRESENT = "nvidia.com/gpu.present"
"""The GPU Operator's mark of a node with a GPU."""
MIG_STRATEGY = "nvidia.com/mig.strategy"
"""GPU Feature Discovery's, which the program only reads: how the device plugin exposes MIG devices."""
DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""Selects the node's profile in the device plugin's ConfigMap."""
OPERAND_SWITCH = "nvidia.com/gpu.deploy."
"""What the labels begin with by which the GPU Operator runs an operand on a node, or not."""
KAI_NODE_POOL = "kai.scheduler/node-pool"
"""KAI's default shard takes only nodes without this label (SchedulingShard partitionLabelValue "", KAI v0.17.0)."""
TIME_SLICING_POOL = "time-slicing"
NVIDIA_PCI_DEVICE = "feature.node.kubernetes.io/pci-10de.present"
"""NFD's mark of an NVIDIA PCI device, from which the GPU Operator derives `nvidia.com/gpu.present`."""

MANY_NODES = 20
"""Labels of more nodes than these are one resource (docs/decisions/0011-labels-of-many-nodes.md)."""

_OPERANDS_WITHOUT_TEGRA_SUPPORT = ("dcgm", "dcgm-exporter", "gpu-feature-discovery", "mig-manager")
"""Operands of GPU Operator v26.7 that are kept off Tegra nodes.

DCGM and the MIG manager don't support Tegra. GPU Feature Discovery does find Tegra through CUDA where libcuda was
injected, and would then rewrite the memory label that we own every minute (k8s-device-plugin v0.20.0). The operator
respects a non-empty `nvidia.com/gpu.deploy.*` label that it finds (controllers/state_manager.go).
"""


def node_labels(settings: StackSettings) -> dict[str, dict[str, str]]:
    """The labels of every node that the stack names, sorted by node and label.

    Returns:
        Node name -> label -> value. Nodes that the stack does not name are absent, and so is the memory of a node whose
        host is asked for it.
    """
    labels: dict[str, dict[str, str]] = {}
    match settings.platform:
        case TegraPlatform() as platform:
            for node, tegra in platform.tegra_nodes.items():
                labels[node] = _tegra(platform, tegra)
        case X86Platform():
            pass
    for node, unified in settings.platform.unified_memory_nodes.items():
        labels[node] = {PLATFORM: PLATFORM_X86, **_memory(unified.gpu_memory_mib)}
    for name, profile in settings.node_profiles.items():
        for node in profile.nodes:
            ours = labels.setdefault(node, {})
            ours[DEVICE_PLUGIN_CONFIG] = name
            if isinstance(profile, TimeSlicingProfile):
                ours[KAI_NODE_POOL] = TIME_SLICING_POOL
    return {node: dict(sorted(labels[node].items())) for node in sorted(labels)}


def _tegra(platform: TegraPlatform, node: TegraNode) -> dict[str, str]:
    off = list(_OPERANDS_WITHOUT_TEGRA_SUPPORT)
    if platform.container_toolkit is ToolkitOwner.HOST:
        off.append("container-toolkit")
    return {
        PLATFORM: PLATFORM_TEGRA,
        # Set before the operator first sees the node: it deletes every gpu.deploy label of a node without this mark,
        # and would then roll out all operands, the container toolkit too. The NodeFeatureRule is its durable owner.
        NVIDIA_PCI_DEVICE: "true",
        **_memory(node.gpu_memory_mib),
        GPU_COUNT: str(node.gpu_count),
        **{f"{OPERAND_SWITCH}{operand}": "false" for operand in off},
    }


def _memory(mib: int | None) -> dict[str, str]:
    return {} if mib is None else {GPU_MEMORY: str(mib)}
