"""What preflight finds about the modes that hold pods to their fractions: what they need beside KAI and on nodes."""

from collections.abc import Iterator, Mapping

from cluster.access.answers.nodes import Node
from cluster.preflight.findings import Finding
from config.kai import LEAST_NV_FRACTIONS_DRIVER, NOT_ON_SHARED_MEMORY, GpuSharingMode
from config.pod_guard import GuardScope
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from manifests.node_labels import GPU_MEMORY, GPU_PRESENT
from manifests.pod_guard import LABEL, LABEL_ENFORCE, exempt_namespaces
from manifests.wording import first_of

ISOLATOR_WEBHOOK = "kai-resource-isolator-mutating"
"""The MutatingWebhookConfiguration of Project HAMi's chart (1.1.0), by which KAI's own tests know it too."""
DRIVER_MAJOR = "gpu-fractioning.kai.scheduler/nvidia-driver-version.major"
"""Written by the GPU fractioning operator, from NVML."""
FRACTIONING_CONDITIONS = ("gpu-fractioning.nvidia.com/Ready", "gpu-sharing.nvidia.com/Ready")
"""KAI places a fraction only where the node says so. The operator was renamed between patches of KAI 0.18, and so was
this."""
_PRODUCT = "nvidia.com/gpu.product"
_SHARED_MEMORY_PRODUCT = "GB10"
"""DGX Spark."""


def judge_sharing(settings: StackSettings, nodes: Mapping[str, Node], *, isolator: bool) -> Iterator[Finding]:
    """Every finding.

    Args:
        settings: the stack's settings.
        nodes: the cluster's nodes.
        isolator: whether the isolator's webhook is there.
    """
    mode = settings.kai.gpu_sharing_mode
    if not settings.kai.enforces_memory:
        return
    if mode is GpuSharingMode.HAMI_CORE and not isolator:
        yield Finding(
            f"kai.gpu_sharing_mode 'hami_core' needs Project HAMi's kai-resource-isolator, and its webhook "
            f"'{ISOLATOR_WEBHOOK}' is not there: KAI would write limits that nobody keeps.",
            "Install it first: helm install kai-resource-isolator oci://docker.io/projecthami/kai-resource-isolator "
            "--version 1.1.0-chart --namespace kai-resource-isolator --create-namespace",
        )
    if mode is GpuSharingMode.HAMI_CORE and settings.pod_guard.scope is GuardScope.CLUSTER:
        yield Finding(
            "kai.gpu_sharing_mode 'hami_core' has a folder of the host mounted into every pod with a fraction, and "
            "pod_guard.scope 'cluster' refuses such pods in every namespace but "
            f"{first_of(exempt_namespaces(settings))}.",
            "Add the namespaces of these pods to pod_guard.exempt_namespaces, or use pod_guard.scope 'labelled' and "
            f"give the others the label {LABEL}={LABEL_ENFORCE}.",
            fatal=False,
        )
    sliced = {
        name
        for profile in settings.node_profiles.values()
        if isinstance(profile, TimeSlicingProfile)
        for name in profile.nodes
    }
    for name, node in sorted(nodes.items()):
        if name in sliced or (node.labels.get(GPU_PRESENT) != "true" and not node.gpus):
            continue
        if shares := shares_memory(node):
            yield Finding(
                f"kai.gpu_sharing_mode '{mode.value}' is for every node of the cluster, and '{name}' ({shares}) can't "
                f"have it: {NOT_ON_SHARED_MEMORY[mode]}.",
                "Use non_memory_enforced, or give the nodes with discrete GPUs a cluster of their own.",
            )
        elif mode is GpuSharingMode.HAMI_CORE:
            yield from _hami_core(name, node)
        else:
            yield from _nv_fractions(name, node)


def shares_memory(node: Node) -> str | None:
    """By what a node is known to share its memory with its GPU, or None."""
    if node.kernel.endswith("-tegra"):
        return f"kernel {node.kernel}"
    product = node.labels.get(_PRODUCT, "")
    return f"{_PRODUCT}={product}" if _SHARED_MEMORY_PRODUCT in product else None


def _hami_core(name: str, node: Node) -> Iterator[Finding]:
    if GPU_MEMORY not in node.labels:
        # KAI 0.17 started such a pod without a limit (KAI #2157).
        yield Finding(
            f"node '{name}' has no label {GPU_MEMORY}, from which KAI computes the limits of "
            "kai.gpu_sharing_mode 'hami_core': it starts no pod with a fraction there.",
            "GPU Feature Discovery writes it: look at its pod on that node.",
            fatal=False,
        )


def _nv_fractions(name: str, node: Node) -> Iterator[Finding]:
    driver = node.labels.get(DRIVER_MAJOR, "")
    if driver.isdecimal() and int(driver) < LEAST_NV_FRACTIONS_DRIVER:
        yield Finding(
            f"node '{name}' has NVIDIA driver {driver}; kai.gpu_sharing_mode 'nv_fractions' needs "
            f"{LEAST_NV_FRACTIONS_DRIVER} or later.",
            "Upgrade the driver, or use non_memory_enforced.",
        )
        return
    if all(node.conditions.get(condition) != "True" for condition in FRACTIONING_CONDITIONS):
        # Not fatal: its operator needs the GPU Operator, which this stack may be about to install.
        yield Finding(
            f"node '{name}' does not say that it is ready for kai.gpu_sharing_mode 'nv_fractions' (condition "
            f"{FRACTIONING_CONDITIONS[0]}): KAI places no fraction there.",
            "Install KAI's GPU fractioning operator, in a namespace of its own, once the GPU Operator runs; what is "
            f"missing then stands in: kubectl describe node {name}",
            fatal=False,
        )
