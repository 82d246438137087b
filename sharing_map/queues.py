"""KAI's queues with what they are promised, may use and use. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cluster.snapshot import Queue
from gpu_sharing.quantities import QuantityError, quantity
from gpu_sharing.request import GPU
from sharing_map.report import Fact, PendingPod, QueueStatus
from sharing_map.view import View, charged, counted

_ROUNDING = 0.01
"""KAI's scheduler charges a share rounded up to hundredths of a GPU; its queue controller does not round
(KAI v0.17.0 pkg/podgroupcontroller)."""
_TOO_SMALL = 0.005


@dataclass(frozen=True)
class _Usage:
    """What a queue's pods come to.

    Attributes:
        charged: GPUs, as the scheduler charges them.
        counted: GPUs, as the queue controller counts them.
        pods: those with GPUs.
        pending: those that wait for KAI.
    """

    charged: float = 0.0
    counted: float = 0.0
    pods: int = 0
    pending: int = 0

    def __add__(self, other: "_Usage") -> "_Usage":
        return _Usage(
            self.charged + other.charged,
            self.counted + other.counted,
            self.pods + other.pods,
            self.pending + other.pending,
        )


def queue_tree(queues: Sequence[Queue], view: View, pending: Sequence[PendingPod]) -> Iterator[QueueStatus]:
    """The queues, each after the one above it; one whose parent is missing, or is below itself, stands on top."""
    own: dict[str, _Usage] = defaultdict(_Usage)
    for user in view.users:
        if user.node and user.queue:
            shared = view.shared_mib(user.node)
            own[user.queue] += _Usage(charged(user.request, shared) or 0, counted(user.request, shared), 1)
    placed = {(user.pod.namespace, user.pod.name) for user in (*view.users, *view.idle) if user.node}
    for pod in pending:
        if pod.queue and (pod.namespace, pod.name) not in placed:
            own[pod.queue] += _Usage(pending=1)
    by_name = {queue.name: queue for queue in queues}
    children: dict[str, list[Queue]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    shown: set[str] = set()

    def below(top: Queue) -> Iterator[tuple[Queue, int]]:
        left = [(top, 0)]
        while left:
            queue, depth = left.pop()
            if queue.name not in shown:
                shown.add(queue.name)
                yield queue, depth
                left += [(child, depth + 1) for child in reversed(children[queue.name])]

    tops = [queue for queue in queues if queue.parent not in by_name]
    order = [entry for queue in (*tops, *queues) for entry in below(queue)]
    totals = _sums(order, own)
    for queue, depth in order:
        yield _queue(queue, depth, totals[queue.name], view)


def _sums(order: Sequence[tuple[Queue, int]], own: Mapping[str, _Usage]) -> Mapping[str, _Usage]:
    """What each queue has with all below it."""
    total: dict[str, _Usage] = {}
    at_depth: dict[int, _Usage] = defaultdict(_Usage)
    # From the end, so that all below a queue came just before it.
    for queue, depth in reversed(order):
        total[queue.name] = own.get(queue.name, _Usage()) + at_depth.pop(depth + 1, _Usage())
        at_depth[depth] += total[queue.name]
    return total


def _queue(queue: Queue, depth: int, usage: _Usage, view: View) -> QueueStatus:
    where = f"Queue {queue.name}"
    try:
        allocated = queue.allocated.get(GPU)
        reported = None if allocated is None else float(quantity(allocated))
    except QuantityError:
        reported = None
    # Without its node nobody knows which part of a GPU so many MiB are.
    is_known = view.knows_pods and view.knows_nodes
    unexplained = _unexplained(usage, reported or 0.0)
    return QueueStatus(
        name=queue.name,
        parent=queue.parent or None,
        depth=depth,
        quota=Fact(value=queue.gpu.quota, proof=f"{where} spec.resources.gpu.quota"),
        limit=Fact(value=queue.gpu.limit, proof=f"{where} spec.resources.gpu.limit"),
        used=Fact(
            value=round(usage.charged, 2) if is_known else None,
            proof=f"{usage.pods} pods of the queue and of those below it",
        ),
        reported=Fact(value=reported, proof=f"{where} status.allocated[{GPU}]"),
        difference=None if reported is None or not is_known else _difference(usage, reported, unexplained),
        unexplained=unexplained if is_known else None,
        pods=usage.pods if view.knows_pods else None,
        pending=usage.pending if view.knows_pods else None,
    )


def _unexplained(usage: _Usage, reported: float) -> float:
    """The GPUs that pods come to beyond what the queue controller says, where it would say that too."""
    gap = usage.counted - reported
    return 0.0 if -_TOO_SMALL < gap <= _ROUNDING * usage.pods or abs(gap) < _TOO_SMALL else round(gap, 2)


def _difference(usage: _Usage, reported: float, unexplained: float) -> str | None:
    if unexplained > 0:
        return f"Its pods come to {unexplained:.2f} GPUs more than the queue controller says: it may be behind."
    if unexplained < 0:
        return f"The queue controller says {-unexplained:.2f} GPUs more than its pods come to: it may be behind."
    if usage.charged - usage.counted >= _TOO_SMALL:
        return "The queue controller counts a share of several GPUs once, and no MIG slices; the scheduler counts all."
    if abs(usage.charged - reported) >= _TOO_SMALL:
        return "The scheduler rounds each share up to hundredths of a GPU, the queue controller does not."
    return None
