"""The nodes that a plan is made for: from flags, or from a stack's settings. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from config.gvirtus import FRONTEND_ALLOWED
from config.kai import GpuSharingMode
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from gpu_sharing.arithmetic import read_label, shared_mib
from gpu_sharing.model import Node, Strategy, Workload
from gpu_sharing.queues import UNLIMITED, Amounts, Queue
from manifests.kai import queues as queue_manifests
from manifests.node_labels import GPU_COUNT, GPU_MEMORY, node_labels

_BYTES_OF_MB = 1_000_000
DEFAULT_PRIORITY = 100
"""Of a queue without one (KAI v0.17.0 pkg/common/constants)."""


@dataclass(frozen=True)
class Machine:
    """A node, and what KAI does not count.

    Attributes:
        node: as KAI sees it.
        label_mib: what its label `nvidia.com/gpu.memory` says; None where it says nothing.
        labels: its labels.
        all_labels: whether these are all, or only those that are known before the cluster is asked.
        taints: that keep pods off.
        unified: whether its GPU takes memory from the system's.
        memory_mib: all its memory (MemTotal); None where it is not known.
    """

    node: Node
    label_mib: int | None
    labels: Mapping[str, str] = field(default_factory=dict)
    all_labels: bool = False
    taints: Sequence[Mapping[str, Any]] = ()
    unified: bool = False
    memory_mib: int | None = None

    @property
    def is_frontend(self) -> bool:
        """Whether its GPUs are remote ones."""
        return self.labels.get(FRONTEND_ALLOWED) == "true"


@dataclass(frozen=True)
class Scene:
    """What a plan starts from.

    Attributes:
        machines: the nodes.
        queues: all of them; empty where nothing is known of queues, and pods keep to none.
        strategy: how KAI fills GPUs and nodes.
        workloads: what is there already.
        fractions: whether KAI's admission lets pods with fractions through.
        remarks: what a person should know about it.
        warnings: why the answer may be wrong.
    """

    machines: tuple[Machine, ...]
    queues: tuple[Queue, ...] = ()
    strategy: Strategy = Strategy.BINPACK
    workloads: tuple[Workload, ...] = ()
    fractions: bool = True
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def with_remarks(self, remarks: Sequence[str]) -> Self:
        """The same, with more to say."""
        return replace(self, remarks=(*self.remarks, *remarks))


def machines_by_numbers(memory_mib: int, gpus: int, nodes: int, machine_mib: int | None) -> tuple[Machine, ...]:
    """Equal nodes.

    Args:
        memory_mib: their label `nvidia.com/gpu.memory`.
        gpus: of each node.
        nodes: how many.
        machine_mib: all memory of each, where the GPU shares it with the system; else None.
    """
    return tuple(
        Machine(
            Node(f"node-{number}", shared_mib(memory_mib), gpus, gpus),
            memory_mib,
            unified=machine_mib is not None,
            memory_mib=machine_mib,
        )
        for number in range(1, nodes + 1)
    )


def scene_of(settings: StackSettings) -> Scene:
    """The nodes whose GPU memory the settings say, with the labels that the program will write."""
    sliced = {
        name
        for profile in settings.node_profiles.values()
        if isinstance(profile, TimeSlicingProfile)
        for name in profile.nodes
    }
    unified = settings.platform.jetsons.keys() | settings.platform.unified_memory_nodes.keys()
    machines, remarks = [], []
    for name, labels in node_labels(settings).items():
        if name in sliced:
            remarks.append(f"{name} is left out: its profile slices time, and KAI leaves it alone.")
        elif (memory := read_label(labels.get(GPU_MEMORY))) is None:
            remarks.append(
                f"{name} is left out: the settings do not say its memory. Set gpu_memory_mib, or plan with --live once "
                "it has its label."
            )
        else:
            count = int(labels.get(GPU_COUNT, "1"))
            machines.append(
                Machine(
                    Node(name, shared_mib(memory), count, count),
                    memory,
                    {"kubernetes.io/hostname": name, **labels},
                    unified=name in unified,
                )
            )
    return Scene(
        tuple(machines),
        tuple(_queues(settings)),
        Strategy(settings.kai.scheduler.placement.value),
        fractions=settings.kai.gpu_sharing_mode is not GpuSharingMode.DISABLED,
        remarks=tuple(remarks),
    )


def _queues(settings: StackSettings) -> Iterable[Queue]:
    """The queues that the program will make; their memory is in MB."""
    for name, manifest in queue_manifests(settings).items():
        spec = manifest["spec"]
        quota, limit, weight = (
            tuple(float(spec["resources"][resource][key]) for resource in ("gpu", "cpu", "memory"))
            for key in ("quota", "limit", "overQuotaWeight")
        )
        yield Queue(
            name,
            spec.get("parentQueue"),
            spec.get("priority", DEFAULT_PRIORITY),
            quota=in_bytes(*quota),
            limit=in_bytes(*limit),
            weight=(weight[0], weight[1], weight[2]),
        )


def in_bytes(gpu: float, cpu: float, memory: float) -> Amounts:
    """What a queue may have, with its memory in bytes: queues say it in MB."""
    return (gpu, cpu, memory if memory == UNLIMITED else memory * _BYTES_OF_MB)
