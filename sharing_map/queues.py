"""KAI's queues with what they are promised, may use and use. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from cluster.snapshot import Queue
from gpu_sharing.quantities import QuantityError, quantity
from gpu_sharing.request import GPU
from sharing_map.report import Fact, PendingPod, QueueStatus
from sharing_map.view import View, charged

_ROUNDING = 0.01
"""KAI's scheduler charges a share rounded up to hundredths of a GPU; its queue controller does not round
(KAI v0.17.0 pkg/podgroupcontroller)."""
_TOO_SMALL = 0.005


def queue_tree(queues: Sequence[Queue], view: View, pending: Sequence[PendingPod]) -> Iterator[QueueStatus]:
    """The queues, each after the one above it; one whose parent is missing, or is below itself, stands on top."""
    used: dict[str, float] = defaultdict(float)
    pods: dict[str, int] = defaultdict(int)
    for user in view.users:
        if user.node and user.queue:
            used[user.queue] += charged(user.request, view.shared_mib(user.node)) or 0
            pods[user.queue] += 1
    waits: dict[str, int] = Counter(pod.queue for pod in pending if pod.queue and pod.node is None)
    by_name = {queue.name: queue for queue in queues}
    children: dict[str, list[Queue]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    shown: set[str] = set()

    def below(queue: Queue, depth: int) -> Iterator[tuple[Queue, int]]:
        if queue.name not in shown:
            shown.add(queue.name)
            yield queue, depth
            for child in children[queue.name]:
                yield from below(child, depth + 1)

    tops = [queue for queue in queues if queue.parent not in by_name]
    order = [entry for queue in (*tops, *queues) for entry in below(queue, 0)]
    sums = _sums(order, used), _sums(order, pods), _sums(order, waits)
    for queue, depth in order:
        yield _queue(queue, depth, *(totals[queue.name] for totals in sums))


def _sums(order: Sequence[tuple[Queue, int]], own: Mapping[str, float]) -> Mapping[str, float]:
    """What each queue has with all below it."""
    total: dict[str, float] = defaultdict(float)
    above: list[str] = []
    for queue, depth in order:
        above = [*above[:depth], queue.name]
        for name in above:
            total[name] += own.get(queue.name, 0)
    return total


def _queue(queue: Queue, depth: int, used: float, pods: float, pending: float) -> QueueStatus:
    where = f"Queue {queue.name}"
    try:
        allocated = queue.allocated.get(GPU)
        reported = None if allocated is None else float(quantity(allocated))
    except QuantityError:
        reported = None
    return QueueStatus(
        name=queue.name,
        parent=queue.parent or None,
        depth=depth,
        quota=Fact(value=queue.gpu.quota, proof=f"{where} spec.resources.gpu.quota"),
        limit=Fact(value=queue.gpu.limit, proof=f"{where} spec.resources.gpu.limit"),
        used=Fact(value=round(used, 2), proof=f"{pods:.0f} pods of the queue and of those below it"),
        reported=Fact(value=reported, proof=f"{where} status.allocated[{GPU}]"),
        difference=_difference(used, reported, pods),
        pods=int(pods),
        pending=int(pending),
    )


def _difference(used: float, reported: float | None, pods: float) -> str | None:
    if reported is None or abs(used - reported) < _TOO_SMALL:
        return None
    if 0 <= used - reported <= _ROUNDING * pods:
        return "The scheduler rounds each share up to hundredths of a GPU, the queue controller does not."
    if used > reported:
        return f"Its pods come to {used - reported:.2f} GPUs more than the queue controller says: it may be behind."
    return f"The queue controller says {reported - used:.2f} GPUs more than its pods come to: it may be behind."
