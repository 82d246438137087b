"""What KAI places and where: nodes, pods, workloads, and what becomes of them. Pure data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from fractions import Fraction

from gpu_sharing.request import PodRequest

MOST_GPUS = 128
"""Of one node: more than any has. A label may say anything, and so may labels and requests of anybody's pods."""


@unique
class Strategy(StrEnum):
    """`scheduler.placementStrategy`: fill GPUs and nodes one after the other, or spread over them."""

    BINPACK = "binpack"
    SPREAD = "spread"


@unique
class MigStrategy(StrEnum):
    """`nvidia.com/mig.strategy` of a node that has MIG slices (node_info.go, GetMigStrategy)."""

    NONE = "none"
    """Also where the label is missing; KAI then places everything there."""
    SINGLE = "single"
    MIXED = "mixed"


@dataclass(frozen=True)
class Node:
    """A node, as KAI sees it.

    Attributes:
        name: of the node.
        shared_mib: what is shared of each of its GPUs; None where its memory label is missing.
        gpus: allocatable `nvidia.com/gpu`.
        gpu_count: its label `nvidia.com/gpu.count`; None without it.
        slices: allocatable MIG slices, by resource.
        mig: the MIG strategy; None where it has no slices.
        cpu: allocatable cores; None where they are not known, and then never short.
        memory: allocatable bytes, likewise.
    """

    name: str
    shared_mib: int | None
    gpus: int = 1
    gpu_count: int | None = None
    slices: Mapping[str, int] = field(default_factory=dict)
    mig: MigStrategy | None = None
    cpu: Fraction | None = None
    memory: Fraction | None = None

    @property
    def has_mig(self) -> bool:
        """Whether its GPUs are divided into slices, of which KAI gives no fractions (node_info.go)."""
        return self.mig in {MigStrategy.SINGLE, MigStrategy.MIXED}


@dataclass(frozen=True)
class Pod:
    """A pod.

    Attributes:
        name: by which it is known; unique.
        request: what it asks for.
        may_run_on: the nodes that it accepts, None for all.
        node: where it runs already.
        groups: the GPU groups where it runs already.
    """

    name: str
    request: PodRequest
    may_run_on: frozenset[str] | None = None
    node: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload:
    """Pods that KAI schedules as one: a PodGroup. In the order of their creation.

    Attributes:
        pods: its pods, in the order in which they are taken.
        queue: None where there are no queues to keep to.
        priority: of its PriorityClass.
        preemptible: whether its pods may be interrupted, and so may use more than their queue's quota.
        min_member: how many pods run or none.
    """

    pods: tuple[Pod, ...]
    queue: str | None = None
    priority: int = 50
    preemptible: bool = True
    min_member: int = 1


@unique
class Reason(StrEnum):
    """Why a pod stays Pending."""

    QUEUE_UNKNOWN = "queue-unknown"
    QUEUE_NOT_A_LEAF = "queue-not-a-leaf"
    QUEUE_LIMIT = "queue-limit"
    QUEUE_QUOTA = "queue-quota"
    NO_NODES = "no-nodes"
    NODE_SELECTION = "node-selection"
    MIG_NODE = "mig-node"
    NO_MIG_SLICES = "no-mig-slices"
    NO_MEMORY_LABEL = "no-memory-label"
    NO_GPU = "no-gpu"
    LARGER_THAN_A_GPU = "larger-than-a-gpu"
    GPU_MEMORY = "gpu-memory"
    DEVICES = "devices"
    WHOLE_GPUS = "whole-gpus"
    CPU = "cpu"
    MEMORY = "memory"
    GANG = "gang"


@dataclass(frozen=True)
class Why:
    """A reason, in a sentence."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class Placed:
    """A pod that runs.

    Attributes:
        pod: it.
        node: where.
        groups: the GPU groups, where it has a share; the names of new ones are made up, as KAI's are.
    """

    pod: Pod
    node: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Pending:
    """A pod that does not run, and why."""

    pod: Pod
    why: Why


@dataclass(frozen=True)
class GpuUse:
    """One GPU of a node, as KAI counts them.

    Attributes:
        group: the GPU group; empty where the GPU is idle, or a pod has all of it.
        shares: pods with their MiB.
        whole: the pod that has all of it.
        free_mib: what is left; below 0 where pods have more than there is.
    """

    group: str
    shares: tuple[tuple[str, int], ...]
    whole: str | None
    free_mib: int


@dataclass(frozen=True)
class NodeUse:
    """A node with what runs on it.

    Attributes:
        node: it.
        gpus: its GPUs.
        slices: MIG slices in use, by resource.
        memory: bytes of the system's memory that pods asked for.
    """

    node: Node
    gpus: tuple[GpuUse, ...]
    slices: Mapping[str, int]
    memory: Fraction


@dataclass(frozen=True)
class Packing:
    """The answer."""

    placed: tuple[Placed, ...]
    pending: tuple[Pending, ...]
    nodes: tuple[NodeUse, ...]
