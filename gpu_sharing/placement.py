"""Who runs where: KAI's allocation of pods to nodes and GPUs, from what is asked and what there is.

KAI v0.17.0 pkg/scheduler/actions/allocate and actions/common, api/node_info, gpu_sharing and the plugins gpupack,
gpuspread, gpusharingorder, nodeavailability, nodeplacement, priority, elastic and proportion. Rounds until nothing
changes, as on a cluster to which nobody adds anything: pods that run are never moved or interrupted for others.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from fractions import Fraction

from gpu_sharing.arithmetic import UNLABELLED_MIB, charged_gpus, is_possible, part_mib, portion
from gpu_sharing.queues import NOTHING, Amounts, Ledger, Objection, Queue, add
from gpu_sharing.request import ComputeMode, FractionShare, GpuShare, MemoryShare, MigSlices, PodRequest, WholeGpus

_MILLI = 1000
_PLENTY = 1e15
"""Millicpus or bytes where they are not known."""
_HIGHEST_DENSITY, _SHARING = 9, 10000
"""Weights of what decides between nodes (KAI v0.17.0 pkg/scheduler/plugins/scores)."""


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


def place(
    nodes: Iterable[Node],
    workloads: Sequence[Workload],
    queues: Iterable[Queue] = (),
    strategy: Strategy = Strategy.BINPACK,
) -> Packing:
    """Place everything that waits beside everything that runs.

    Args:
        nodes: those that KAI schedules on.
        workloads: in the order of their creation.
        queues: all of them; a workload without a queue keeps to none.
        strategy: how GPUs and nodes are filled.
    """
    return _Session(list(nodes), workloads, list(queues), strategy).run()


@dataclass
class _Group:
    mode: ComputeMode
    shares: dict[str, int] = field(default_factory=dict)
    used: int = 0


class _NodeState:
    """A node while pods are placed: node_info.go and gpu_sharing_node_info.go."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.mib = UNLABELLED_MIB if node.shared_mib is None else node.shared_mib
        self.idle = node.gpus
        self.whole: list[str] = []
        self.groups: dict[str, _Group] = {}
        self.slices = dict.fromkeys(node.slices, 0)
        self.cpu = Fraction(0)
        self.memory = Fraction(0)
        self._answers: dict[int, tuple[Why | None, bool]] = {}

    @property
    def count(self) -> int:
        """GPUs of the node by its label (GetNumberOfGPUsInNode)."""
        return self.node.gpus if self.node.gpu_count is None else self.node.gpu_count

    def asked_mib(self, share: GpuShare) -> int:
        return share.mib if isinstance(share, MemoryShare) else part_mib(share.fraction, self.mib)

    def part(self, share: GpuShare) -> float:
        return portion(share.mib, self.mib) if isinstance(share, MemoryShare) else share.fraction

    def room(self, share: GpuShare) -> list[str]:
        """The groups with room for a share of one device."""
        asked = self.asked_mib(share)
        return [
            name
            for name, group in self.groups.items()
            if group.mode is share.mode and group.used and self.mib - group.used - asked >= 0
        ]

    def why_not(self, pod: Pod, kind: int) -> Why | None:
        """Why the pod doesn't fit, but for its queue; None where it does.

        Args:
            pod: it.
            kind: the same number for pods that ask for the same: they get the same answer until one more runs here.
        """
        return self._answer(pod, kind)[0]

    def shares(self, pod: Pod, kind: int) -> bool:
        """Whether a pod that fits can share a GPU that others use already."""
        return self._answer(pod, kind)[1]

    def _answer(self, pod: Pod, kind: int) -> tuple[Why | None, bool]:
        if (answer := self._answers.get(kind)) is None:
            share = pod.request.gpu
            answer = (self._why_not(pod), isinstance(share, GpuShare) and bool(self.room(share)))
            self._answers[kind] = answer
        return answer

    def _why_not(self, pod: Pod) -> Why | None:
        name, request = self.node.name, pod.request
        if pod.may_run_on is not None and name not in pod.may_run_on:
            return Why(Reason.NODE_SELECTION, f"{name} is not a node that it accepts.")
        for short, reason, unit in (
            (self._short_of_cpu, Reason.CPU, "cores"),
            (self._short_of_memory, Reason.MEMORY, "MiB"),
        ):
            if (left := short(request)) is not None:
                return Why(reason, f"{name} has {left} {unit} left for requests of {reason.value}.")
        match request.gpu:
            case None:
                return None
            case WholeGpus(count):
                return self._why_no_gpus(count)
            case MigSlices(slices):
                return self._why_no_slices(slices)
            case MemoryShare() | FractionShare():
                return self._why_no_share(request.gpu)

    def _short_of_cpu(self, request: PodRequest) -> str | None:
        if self.node.cpu is None or self.cpu + request.cpu <= self.node.cpu:
            return None
        return f"{float(self.node.cpu - self.cpu):g}"

    def _short_of_memory(self, request: PodRequest) -> str | None:
        if self.node.memory is None or self.memory + request.memory <= self.node.memory:
            return None
        return str(int(self.node.memory - self.memory) >> 20)

    def _why_no_gpus(self, count: int) -> Why | None:
        name = self.node.name
        if self.node.mig is MigStrategy.MIXED:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy mixed: only pods that ask for slices run there.")
        if not self.node.gpus:
            return Why(Reason.NO_GPU, f"{name} has no GPU.")
        if count > self.idle:
            return Why(Reason.WHOLE_GPUS, f"{name} has {self.idle} of {self.node.gpus} GPUs that nobody uses.")
        return None

    def _why_no_slices(self, slices: Iterable[tuple[str, int]]) -> Why | None:
        name = self.node.name
        if self.node.mig is None:
            return Why(Reason.NO_MIG_SLICES, f"{name} has no MIG slices.")
        if self.node.mig is MigStrategy.SINGLE:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy single: only pods with whole GPUs run there.")
        for slice_name, count in slices:
            left = self.node.slices.get(slice_name, 0) - self.slices.get(slice_name, 0)
            if count > left:
                return Why(Reason.NO_MIG_SLICES, f"{name} has {left} {slice_name} left.")
        return None

    def _why_no_share(self, share: GpuShare) -> Why | None:
        name = self.node.name
        if self.node.mig in {MigStrategy.SINGLE, MigStrategy.MIXED}:
            return Why(Reason.MIG_NODE, f"{name} has MIG strategy {self.node.mig}: KAI gives no fractions there.")
        if not self.node.gpus:
            return Why(Reason.NO_GPU, f"{name} has no GPU.")
        if isinstance(share, MemoryShare) and self.node.shared_mib is None:
            return Why(Reason.NO_MEMORY_LABEL, f"{name} has no label nvidia.com/gpu.memory.")
        if not is_possible(self.part(share)):
            return Why(Reason.LARGER_THAN_A_GPU, f"a GPU of {name} has {self.mib} MiB.")
        return None if self.idle + len(self.room(share)) >= share.devices else self._why_no_room(share)

    def _why_no_room(self, share: GpuShare) -> Why:
        name = self.node.name
        if share.devices > max(self.node.gpus, self.count):
            return Why(Reason.DEVICES, f"{name} has {self.node.gpus} GPUs, and it asks for {share.devices}.")
        other = [group for group in self.groups.values() if group.mode is not share.mode]
        left = max((self.mib - group.used for group in self.groups.values() if group.mode is share.mode), default=0)
        on = f"{share.devices} GPUs" if share.devices > 1 else "a GPU"
        modes = f" ({len(other)} of its GPUs are used in another compute mode)" if other else ""
        return Why(Reason.GPU_MEMORY, f"{name} has at most {left} MiB left on {on}{modes}.")

    def choose_groups(self, share: GpuShare, strategy: Strategy) -> tuple[str, ...]:
        """The groups of a pod that fits, new ones among them (session.go, FittingGPUs; gpupack, gpuspread)."""
        shared = sorted(self.room(share), key=lambda name: self.groups[name].used, reverse=strategy is Strategy.BINPACK)
        taken = len(self.groups)
        new: list[str] = []
        while len(new) < min(self.idle, share.devices):
            taken += 1
            if (name := f"{self.node.name}/{taken}") not in self.groups:
                new.append(name)
        ordered = [*shared, *new] if strategy is Strategy.BINPACK else [*new, *shared]
        return tuple(ordered[: share.devices])

    def add(self, pod: Pod, groups: Sequence[str]) -> None:
        """Count a pod that runs here."""
        self._answers.clear()
        self.cpu += pod.request.cpu
        self.memory += pod.request.memory
        match pod.request.gpu:
            case None:
                pass
            case WholeGpus(count):
                self.idle -= count
                self.whole += [pod.name] * count
            case MigSlices(slices):
                for name, count in slices:
                    self.slices[name] = self.slices.get(name, 0) + count
            case MemoryShare() | FractionShare():
                for group in groups:
                    self._add_share(pod.name, pod.request.gpu, group)

    def _add_share(self, pod: str, share: GpuShare, name: str) -> None:
        asked = self.asked_mib(share)
        group = self.groups.setdefault(name, _Group(share.mode))
        group.shares[pod] = asked
        group.used += asked
        in_use = len(self.whole) + sum(bool(each.used) for each in self.groups.values())
        if group.used <= asked and self.count < self.idle + in_use:
            self.idle -= 1

    def charged(self, request: PodRequest) -> Amounts:
        """What the queue is charged for a pod that runs here (setAcceptedResources)."""
        match request.gpu:
            case MemoryShare() | FractionShare():
                return _amounts(request, charged_gpus(self.part(request.gpu), request.gpu.devices))
            case _:
                return _amounts(request, _whole(request))

    def required(self, request: PodRequest) -> Amounts:
        """What the queue must have left for a pod to run here (GetRequiredInitQuota)."""
        match request.gpu:
            case MemoryShare() | FractionShare():
                return _amounts(request, request.gpu.devices * portion(self.asked_mib(request.gpu), self.mib))
            case _:
                return _amounts(request, _whole(request))

    def use(self) -> NodeUse:
        """As it is now."""
        gpus = [
            GpuUse(name, tuple(group.shares.items()), None, self.mib - group.used)
            for name, group in self.groups.items()
            if group.used
        ]
        gpus += [GpuUse("", (), pod, 0) for pod in self.whole]
        idle = max(self.idle, 0)
        return NodeUse(self.node, (*gpus, *[GpuUse("", (), None, self.mib)] * idle), dict(self.slices), self.memory)


def _whole(request: PodRequest) -> float:
    match request.gpu:
        case WholeGpus(count):
            return count
        case MigSlices():
            return request.gpu.charged_gpus
        case _:
            return 0


def _amounts(request: PodRequest, gpus: float) -> Amounts:
    return (gpus, float(request.cpu * _MILLI), float(request.memory))


@dataclass(eq=False)
class _Waiting:
    """A workload while its pods are placed."""

    workload: Workload
    order: int
    pods: list[Pod]
    running: int

    @property
    def batch(self) -> list[Pod]:
        """The pods that are tried next: all that a gang needs, then one by one."""
        return self.pods[: max(self.workload.min_member - self.running, 1)]

    @property
    def key(self) -> tuple[int, int, int]:
        """The order within a queue: priority, then who has fewer than he needs, then age (priority, elastic)."""
        above = (self.running > self.workload.min_member) - (self.running < self.workload.min_member)
        return (-self.workload.priority, above, self.order)


class _Session:
    """One round of KAI's scheduler."""

    def __init__(
        self, nodes: Sequence[Node], workloads: Sequence[Workload], queues: Sequence[Queue], strategy: Strategy
    ) -> None:
        self._nodes = {node.name: _NodeState(node) for node in sorted(nodes, key=lambda each: each.name)}
        self._strategy = strategy
        self._ledger = Ledger(queues, _total(nodes))
        memories = [state.mib for state in self._nodes.values() if state.mib > UNLABELLED_MIB]
        self._smallest, self._largest = min(memories, default=None), max(memories, default=None)
        self._kinds: dict[tuple[PodRequest, frozenset[str] | None], int] = {}
        self._placed: list[Placed] = []
        self._pending: list[Pending] = []
        self._waiting = [self._start(order, workload) for order, workload in enumerate(workloads)]
        asked: dict[str, Amounts] = {}
        for workload in workloads:
            for pod in workload.pods:
                if workload.queue is not None:
                    amounts = self._estimate(pod.request, self._smallest)
                    asked[workload.queue] = add(asked.get(workload.queue, NOTHING), amounts)
        self._ledger.divide(asked)

    def run(self) -> Packing:
        """Place what waits, in rounds: what others got in one can give a gang its room in the next."""
        waiting = [each for each in self._waiting if self._has_queue(each)]
        refused, placed = tuple(self._pending), -1
        while placed < len(self._placed):
            placed, self._pending = len(self._placed), list(refused)
            self._round([each for each in waiting if each.pods])
        return Packing(tuple(self._placed), tuple(self._pending), tuple(state.use() for state in self._nodes.values()))

    def _round(self, waiting: list[_Waiting]) -> None:
        """Try everything that waits once, one batch after the other."""
        while waiting:
            turn = self._next(waiting)
            if not self._attempt(turn) or not turn.pods:
                waiting.remove(turn)

    def _start(self, order: int, workload: Workload) -> _Waiting:
        running = [pod for pod in workload.pods if pod.node is not None]
        for pod in running:
            if (state := self._nodes.get(str(pod.node))) is not None:
                self._run(workload, pod, state, pod.groups)
            else:
                self._charge(workload, _amounts(pod.request, _whole(pod.request)))
        return _Waiting(workload, order, [pod for pod in workload.pods if pod.node is None], len(running))

    def _run(self, workload: Workload, pod: Pod, state: _NodeState, groups: Sequence[str]) -> None:
        state.add(pod, groups)
        self._placed.append(Placed(pod, state.node.name, tuple(groups)))
        self._charge(workload, state.charged(pod.request))

    def _charge(self, workload: Workload, amounts: Amounts) -> None:
        if workload.queue is not None:
            self._ledger.charge(workload.queue, amounts, preemptible=workload.preemptible)

    def _has_queue(self, waiting: _Waiting) -> bool:
        queue = waiting.workload.queue
        leaf = True if queue is None else self._ledger.leaf(queue)
        if leaf:
            return True
        if leaf is None:
            why = Why(Reason.QUEUE_UNKNOWN, f"There is no queue '{queue}': create it, or correct the label.")
        else:
            why = Why(
                Reason.QUEUE_NOT_A_LEAF, f"Queue '{queue}' has queues below it: pods are submitted to one of those."
            )
        self._pending += [Pending(pod, why) for pod in waiting.pods]
        return False

    def _next(self, waiting: Sequence[_Waiting]) -> _Waiting:
        best: dict[str, _Waiting] = {}
        free = [each for each in waiting if each.workload.queue is None]
        if free:
            return min(free, key=lambda each: each.key)
        for each in sorted(waiting, key=lambda each: each.key):
            best.setdefault(str(each.workload.queue), each)
        if len(best) == 1:
            return next(iter(best.values()))
        asked = {}
        for queue, each in best.items():
            asked[queue] = NOTHING
            for pod in each.batch:
                asked[queue] = add(asked[queue], self._estimate(pod.request, self._smallest))
        return best[self._ledger.first(asked)]

    def _attempt(self, waiting: _Waiting) -> bool:
        """Place the next batch whole, or none of it; then all pods that are left stay Pending."""
        batch, workload = waiting.batch, waiting.workload
        if len(batch) < workload.min_member - waiting.running:
            text = f"Its workload runs with {workload.min_member} pods or none, and has {len(waiting.pods)}."
            self._pending += [Pending(pod, Why(Reason.GANG, text)) for pod in waiting.pods]
            return False
        before = copy.deepcopy((self._nodes, self._ledger, self._placed)) if len(batch) > 1 else None
        why = self._objection(workload, batch)
        for count, pod in enumerate(batch):
            why = why or self._place(workload, pod)
            if why is None:
                continue
            if before is not None:
                self._nodes, self._ledger, self._placed = before
                text = f"Only {count} of the {len(batch)} pods that must run together have room. {why.text}"
                why = Why(Reason.GANG, text)
            self._pending += [Pending(each, why) for each in waiting.pods]
            return False
        waiting.pods = waiting.pods[len(batch) :]
        waiting.running += len(batch)
        return True

    def _objection(self, workload: Workload, batch: Sequence[Pod]) -> Why | None:
        """Whether the queue has no room, whichever node is taken (IsJobOverQueueCapacity)."""
        if workload.queue is None:
            return None
        asked = NOTHING
        for pod in batch:
            asked = add(asked, self._estimate(pod.request, self._largest))
        over = self._ledger.objection(workload.queue, asked, preemptible=workload.preemptible)
        return None if over is None else _queue_full(over)

    def _place(self, workload: Workload, pod: Pod) -> Why | None:
        kind = self._kinds.setdefault((pod.request, pod.may_run_on), len(self._kinds))
        fitting = [state for state in self._nodes.values() if state.why_not(pod, kind) is None]
        idle = [state.idle for state in self._nodes.values() if state.node.gpus]
        extremes = (min(idle, default=0), max(idle, default=0))
        reasons = []
        for state in sorted(fitting, key=lambda each: -self._score(each, pod, kind, extremes)):
            if workload.queue is not None and (
                over := self._ledger.objection(
                    workload.queue, state.required(pod.request), preemptible=workload.preemptible
                )
            ):
                reasons.append(_queue_full(over))
                continue
            share = pod.request.gpu
            groups = state.choose_groups(share, self._strategy) if isinstance(share, GpuShare) else ()
            self._run(workload, pod, state, groups)
            return None
        reasons += [why for state in self._nodes.values() if (why := state.why_not(pod, kind)) is not None]
        return _most_telling(pod, reasons)

    def _score(self, state: _NodeState, pod: Pod, kind: int, idle: tuple[int, int]) -> float:
        """How well a node with room suits; nodes with the same score are taken by name.

        Args:
            state: the node.
            pod: the pod.
            kind: of the pod, as for `why_not`.
            idle: the fewest and the most idle GPUs of any node.
        """
        if self._strategy is Strategy.SPREAD:
            return state.idle / state.count if state.count else 0
        least, most = idle
        score = float(_SHARING) if state.shares(pod, kind) else 0.0
        if not state.node.gpus or not most:
            return score
        density = 1 if least == most else 1 - (state.idle - least) / (most - least)
        return score + _HIGHEST_DENSITY * density

    def _estimate(self, request: PodRequest, mib: int | None) -> Amounts:
        """What a pod will use, before its node is known."""
        match request.gpu:
            case MemoryShare(asked, devices):
                return _amounts(request, devices * asked / mib if mib else 0)
            case FractionShare(fraction, devices):
                return _amounts(request, charged_gpus(fraction, devices))
            case _:
                return _amounts(request, _whole(request))


def _total(nodes: Iterable[Node]) -> Amounts:
    total = NOTHING
    for node in nodes:
        cpu = _PLENTY if node.cpu is None else float(node.cpu * _MILLI)
        total = add(total, (float(node.gpus), cpu, _PLENTY if node.memory is None else float(node.memory)))
    return total


def _queue_full(over: Objection) -> Why:
    used, allowed, more = (f"{round(amount, 2):g}" for amount in (over.used, over.allowed, over.asked))
    asked = f"uses {used} of {allowed} {over.resource} and would get {more} more"
    if over.over_quota:
        text = (
            f"Queue '{over.queue}' {asked}: what may not be interrupted must keep to the quota. Raise it, or give the "
            "workload the label priorityClassName: train."
        )
        return Why(Reason.QUEUE_QUOTA, text)
    return Why(Reason.QUEUE_LIMIT, f"Queue '{over.queue}' {asked}, which is over its limit. Raise it, or ask for less.")


_TELLING = (
    Reason.GPU_MEMORY,
    Reason.WHOLE_GPUS,
    Reason.QUEUE_LIMIT,
    Reason.QUEUE_QUOTA,
    Reason.MEMORY,
    Reason.CPU,
    Reason.LARGER_THAN_A_GPU,
    Reason.DEVICES,
    Reason.NO_MIG_SLICES,
    Reason.MIG_NODE,
    Reason.NO_MEMORY_LABEL,
    Reason.NODE_SELECTION,
    Reason.NO_GPU,
)
"""What says most about why no node has room, first."""


def _most_telling(pod: Pod, reasons: Sequence[Why]) -> Why:
    """What is nearest to having room: that is what a person can change."""
    if not reasons:
        return Why(Reason.NO_NODES, "There is no node that KAI schedules on.")
    reason = min((why.reason for why in reasons), key=_TELLING.index)
    same = sorted({why.text for why in reasons if why.reason is reason})
    more = f" {len(same) - 1} more nodes likewise." if len(same) > 1 else ""
    asked = describe(pod.request)
    if reason in {Reason.QUEUE_LIMIT, Reason.QUEUE_QUOTA}:
        return Why(reason, same[0])
    return Why(reason, f"It asks for {asked}; {same[0]}{more}")


def describe(request: PodRequest) -> str:
    """A request, for a message."""
    match request.gpu:
        case MemoryShare(mib, devices):
            return f"{mib} MiB" + (f" on each of {devices} GPUs" if devices > 1 else "")
        case FractionShare(fraction, devices):
            return f"{fraction:g} of a GPU" + (f" on each of {devices} GPUs" if devices > 1 else "")
        case WholeGpus(count):
            return f"{count} whole GPU{'s' * (count > 1)}"
        case MigSlices(slices):
            return ", ".join(f"{count} {name}" for name, count in slices)
        case None:
            return f"{float(request.cpu):g} cores and {int(request.memory) >> 20} MiB of the system's memory"
