"""The simulated machines, as kubelet, NFD and GFD leave them before any of our labels."""

from collections.abc import Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Any

SIMULATED = ("kwok.x-k8s.io/node", "fake")
"""The annotation of nodes that are records: KWOK emulates their kubelet, `simulator.operands` their device plugins."""

GPUS_ANNOTATION = "simulator.kai-anywhere.io/gpus"
"""How many GPUs the machine has; nobody but `simulator.operands` reads it."""

KIND_ANNOTATION = "simulator.kai-anywhere.io/kind"
"""Which `NodeKind` the node was made as."""

_NFD = "feature.node.kubernetes.io"
_EVICTION_RESERVE_MIB = 100
"""kubelet's default hard eviction threshold `memory.available<100Mi` is taken off the allocatable memory."""


@unique
class NodeKind(StrEnum):
    """What a simulated node is."""

    JETSON = "jetson"
    """Tegra, unified memory, no PCI GPU: NFD sees no NVIDIA device, GFD writes no memory and no count."""
    X86 = "x86"
    """A server with two L40S and all of GFD's labels."""
    CPU = "cpu"
    """A machine without a GPU."""
    SPARK = "spark"
    """DGX Spark (GB10): arm64 with a PCI GPU and unified memory, so GFD writes everything but the memory."""


DEFAULT_NODES: Mapping[str, NodeKind] = MappingProxyType(
    {"jetson-1": NodeKind.JETSON, "x86-1": NodeKind.X86, "cpu-1": NodeKind.CPU}
)
"""The nodes of every simulator."""


def manifest(name: str, kind: NodeKind) -> dict[str, Any]:
    """The Node object that kubelet would register, status included; conditions are left to KWOK."""
    match kind:
        case NodeKind.JETSON:
            return _node(
                name,
                kind,
                arch="arm64",
                kernel="6.8.12-tegra",
                cpus=14,
                memory_mib=131072,
                gpus=1,
                labels={
                    "nvidia.com/gpu.product": "NVIDIA-Thor",
                    "nvidia.com/gpu.family": "blackwell",
                    "nvidia.com/gpu.replicas": "1",
                    "nvidia.com/gpu.compute.major": "11",
                    "nvidia.com/gpu.compute.minor": "0",
                    "nvidia.com/mig.capable": "false",
                },
            )
        case NodeKind.X86:
            return _node(
                name,
                kind,
                arch="amd64",
                kernel="6.8.0-85-generic",
                cpus=64,
                memory_mib=524288,
                gpus=2,
                labels={
                    f"{_NFD}/pci-10de.present": "true",
                    "nvidia.com/gpu.product": "NVIDIA-L40S",
                    "nvidia.com/gpu.memory": "46068",
                    "nvidia.com/gpu.count": "2",
                    "nvidia.com/gpu.replicas": "1",
                    "nvidia.com/gpu.family": "ada-lovelace",
                    "nvidia.com/gpu.compute.major": "8",
                    "nvidia.com/gpu.compute.minor": "9",
                    "nvidia.com/mig.capable": "false",
                },
            )
        case NodeKind.CPU:
            return _node(name, kind, arch="amd64", kernel="6.8.0-85-generic", cpus=16, memory_mib=65536)
        case NodeKind.SPARK:
            return _node(
                name,
                kind,
                arch="arm64",
                kernel="6.14.0-1013-nvidia",
                cpus=20,
                memory_mib=122543,
                gpus=1,
                labels={
                    f"{_NFD}/pci-10de.present": "true",
                    "nvidia.com/gpu.product": "NVIDIA-GB10",
                    "nvidia.com/gpu.count": "1",
                    "nvidia.com/gpu.replicas": "1",
                    "nvidia.com/gpu.family": "blackwell",
                    "nvidia.com/gpu.compute.major": "12",
                    "nvidia.com/gpu.compute.minor": "1",
                    "nvidia.com/mig.capable": "false",
                },
            )


def _node(  # noqa: PLR0913 (what tells machines apart, all by keyword)
    name: str,
    kind: NodeKind,
    *,
    arch: str,
    kernel: str,
    cpus: int,
    memory_mib: int,
    gpus: int = 0,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    capacity = {"cpu": str(cpus), "memory": f"{memory_mib}Mi", "pods": "110", "ephemeral-storage": "512Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                **dict([SIMULATED]),
                KIND_ANNOTATION: kind.value,
                GPUS_ANNOTATION: str(gpus),
            },
            "labels": {
                "kubernetes.io/arch": arch,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                f"{_NFD}/kernel-version.full": kernel,
                f"{_NFD}/system-os_release.ID": "ubuntu",
                f"{_NFD}/system-os_release.VERSION_ID": "24.04",
                **labels,
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, "memory": f"{memory_mib - _EVICTION_RESERVE_MIB}Mi"},
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": arch,
                "bootID": "",
                "containerRuntimeVersion": "containerd://2.2.1",
                "kernelVersion": kernel,
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": "",
            },
        },
    }
