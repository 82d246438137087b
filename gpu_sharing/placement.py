"""Who runs where: KAI's allocation of pods to nodes and GPUs, from what is asked and what there is.

KAI v0.17.0 pkg/scheduler/actions/allocate and actions/common and the plugins gpusharingorder, nodeavailability,
nodeplacement, priority, elastic and proportion. Rounds until nothing changes, as on a cluster to which nobody adds
anything: pods that run are never moved or interrupted for others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from gpu_sharing.arithmetic import UNLABELLED_MIB, charged_gpus
from gpu_sharing.model import Node, Packing, Pending, Placed, Pod, Reason, Strategy, Why, Workload
from gpu_sharing.node import MILLI, NodeState, amounts_of, whole_gpus
from gpu_sharing.queues import NOTHING, Amounts, Ledger, Queue, Turns, Used, add
from gpu_sharing.reasons import most_telling, queue_full
from gpu_sharing.request import FractionShare, GpuShare, MemoryShare, PodRequest

_PLENTY = 1e15
"""Millicpus or bytes where they are not known."""
_HIGHEST_DENSITY, _SHARING = 9, 10000
"""Weights of what decides between nodes (KAI v0.17.0 pkg/scheduler/plugins/scores)."""


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


@dataclass(frozen=True)
class _Before:
    """What a gang finds that may have to be undone: only what it changes, since a cluster may have thousands of nodes.

    Attributes:
        placed: how many pods are placed.
        used: of its queue, and of those above.
        nodes: those that its pods came to, as they were.
    """

    placed: int
    used: Used
    nodes: dict[str, NodeState] = field(default_factory=dict)


class _Session:
    """One round of KAI's scheduler."""

    def __init__(
        self, nodes: Sequence[Node], workloads: Sequence[Workload], queues: Sequence[Queue], strategy: Strategy
    ) -> None:
        self._nodes = {node.name: NodeState(node) for node in sorted(nodes, key=lambda node: node.name)}
        self._strategy = strategy
        self._ledger = Ledger(queues, _total(nodes))
        memories = [state.mib for state in self._nodes.values() if state.mib > UNLABELLED_MIB]
        self._smallest, self._largest = min(memories, default=None), max(memories, default=None)
        self._kinds: dict[tuple[PodRequest, frozenset[str] | None], int] = {}
        self._changes = 0
        """Of what is placed. Where it is the same, a pod that asks for the same finds no room for the same reason."""
        self._refused: dict[tuple[int, str | None, bool], tuple[int, Why]] = {}
        self._placed: list[Placed] = []
        self._pending: list[Pending] = []
        self._waiting = [self._start(order, workload) for order, workload in enumerate(workloads)]
        requested: dict[str, Amounts] = {}
        for workload in workloads:
            for pod in workload.pods:
                if workload.queue is not None:
                    amounts = self._estimate(pod.request, self._smallest)
                    requested[workload.queue] = add(requested.get(workload.queue, NOTHING), amounts)
        self._ledger.divide(requested)

    def run(self) -> Packing:
        """Place what waits, in rounds: what others got in one can give a gang its room in the next."""
        waiting = [candidate for candidate in self._waiting if self._has_queue(candidate)]
        refused, placed = tuple(self._pending), -1
        while placed < len(self._placed):
            placed, self._pending = len(self._placed), list(refused)
            self._round([candidate for candidate in waiting if candidate.pods])
        return Packing(tuple(self._placed), tuple(self._pending), tuple(state.use() for state in self._nodes.values()))

    def _round(self, waiting: list[_Waiting]) -> None:
        """Try everything that waits once, one batch after the other."""
        by_queue: dict[str | None, list[tuple[tuple[int, int, int], _Waiting]]] = {}
        for candidate in waiting:
            heappush(by_queue.setdefault(candidate.workload.queue, []), (candidate.key, candidate))
        turns = Turns()
        for name, heap in by_queue.items():
            self._note(turns, name, heap)
        while by_queue:
            # Who keeps to no queue comes before all.
            queue = None if None in by_queue else turns.first()
            _, turn = heappop(by_queue[queue])
            if self._attempt(turn) and turn.pods:
                heappush(by_queue[queue], (turn.key, turn))
            self._note(turns, queue, by_queue[queue])
            if not by_queue[queue]:
                del by_queue[queue]

    def _start(self, order: int, workload: Workload) -> _Waiting:
        running = [pod for pod in workload.pods if pod.node is not None]
        for pod in running:
            if (state := self._nodes.get(str(pod.node))) is not None:
                self._run(workload, pod, state, pod.groups)
            else:
                self._charge(workload, amounts_of(pod.request, whole_gpus(pod.request)))
        return _Waiting(workload, order, [pod for pod in workload.pods if pod.node is None], len(running))

    def _run(self, workload: Workload, pod: Pod, state: NodeState, groups: Sequence[str]) -> None:
        state.add(pod, groups)
        self._changes += 1
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
            why = Why(
                Reason.QUEUE_UNKNOWN,
                f"There is no queue '{queue}' below a top queue: create what is missing, or correct the label.",
            )
        else:
            why = Why(
                Reason.QUEUE_NOT_A_LEAF, f"Queue '{queue}' has queues below it: pods are submitted to one of those."
            )
        self._pending += [Pending(pod, why) for pod in waiting.pods]
        return False

    def _note(self, turns: Turns, queue: str | None, heap: Sequence[tuple[object, _Waiting]]) -> None:
        """Note what the next pods of a queue ask for."""
        if queue is None:
            return
        requested = NOTHING
        for pod in heap[0][1].batch if heap else ():
            requested = add(requested, self._estimate(pod.request, self._smallest))
        turns.set(self._ledger, queue, requested if heap else None)

    def _attempt(self, waiting: _Waiting) -> bool:
        """Place the next batch whole, or none of it; then all pods that are left stay Pending."""
        batch, workload = waiting.batch, waiting.workload
        if len(batch) < workload.min_member - waiting.running:
            text = f"Its workload runs with {workload.min_member} pods or none, and has {len(waiting.pods)}."
            self._pending += [Pending(pod, Why(Reason.GANG, text)) for pod in waiting.pods]
            return False
        before = self._before(workload) if len(batch) > 1 else None
        why = self._objection(workload, batch)
        for count, pod in enumerate(batch):
            why = why or self._place(workload, pod, before)
            if why is None:
                continue
            if before is not None:
                self._take_back(before)
                text = f"Only {count} of the {len(batch)} pods that must run together have room. {why.text}"
                why = Why(Reason.GANG, text)
            self._pending += [Pending(remaining, why) for remaining in waiting.pods]
            return False
        waiting.pods = waiting.pods[len(batch) :]
        waiting.running += len(batch)
        return True

    def _before(self, workload: Workload) -> _Before:
        used = {} if workload.queue is None else self._ledger.used_along(workload.queue)
        return _Before(len(self._placed), used)

    def _take_back(self, before: _Before) -> None:
        """Undo what was placed since then."""
        del self._placed[before.placed :]
        self._nodes |= before.nodes
        self._ledger.set_used(before.used)
        self._changes += 1

    def _objection(self, workload: Workload, batch: Sequence[Pod]) -> Why | None:
        """Whether the queue has no room, whichever node is taken (IsJobOverQueueCapacity)."""
        if workload.queue is None:
            return None
        requested = NOTHING
        for pod in batch:
            requested = add(requested, self._estimate(pod.request, self._largest))
        over = self._ledger.objection(workload.queue, requested, preemptible=workload.preemptible)
        return None if over is None else queue_full(over)

    def _place(self, workload: Workload, pod: Pod, before: _Before | None) -> Why | None:
        kind = self._kinds.setdefault((pod.request, pod.may_run_on), len(self._kinds))
        like = (kind, workload.queue, workload.preemptible)
        changes, why = self._refused.get(like, (-1, None))
        if why is None or changes != self._changes:
            why = self._try(workload, pod, kind, before)
        if why is not None:
            self._refused[like] = (self._changes, why)
        return why

    def _try(self, workload: Workload, pod: Pod, kind: int, before: _Before | None) -> Why | None:
        fitting = [state for state in self._nodes.values() if state.why_not(pod, kind) is None]
        idle = [state.idle for state in self._nodes.values() if state.node.gpus]
        extremes = (min(idle, default=0), max(idle, default=0))
        reasons = []
        for state in sorted(fitting, key=lambda candidate: -self._score(candidate, pod, kind, extremes)):
            if workload.queue is not None and (
                over := self._ledger.objection(
                    workload.queue, state.required(pod.request), preemptible=workload.preemptible
                )
            ):
                reasons.append(queue_full(over))
                continue
            share = pod.request.gpu
            groups = state.choose_groups(share, self._strategy) if isinstance(share, GpuShare) else ()
            if before is not None and state.node.name not in before.nodes:
                before.nodes[state.node.name] = state.copy()
            self._run(workload, pod, state, groups)
            return None
        reasons += [why for state in self._nodes.values() if (why := state.why_not(pod, kind)) is not None]
        return most_telling(pod, reasons)

    def _score(self, state: NodeState, pod: Pod, kind: int, idle: tuple[int, int]) -> float:
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
            case MemoryShare(share_mib, devices):
                return amounts_of(request, devices * share_mib / mib if mib else 0)
            case FractionShare(fraction, devices):
                return amounts_of(request, charged_gpus(fraction, devices))
            case _:
                return amounts_of(request, whole_gpus(request))


def _total(nodes: Iterable[Node]) -> Amounts:
    total = NOTHING
    for node in nodes:
        cpu = _PLENTY if node.cpu is None else float(node.cpu * MILLI)
        total = add(total, (float(node.gpus), cpu, _PLENTY if node.memory is None else float(node.memory)))
    return total
