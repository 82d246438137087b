"""From the sharing map to Prometheus' metrics. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from sharing_map.report import Gpu, NodeStatus, PendingPod, QueueStatus, Share, Status

MOST_PODS = 5000
"""Pods that have samples of their own, of those with a share and of those that wait; the rest is only counted."""
_MIB = 1024 * 1024


def metrics(status: Status) -> Iterator[Metric]:
    """Everything that the map says, in bytes, GPUs and Unix times."""
    yield from _nodes(status.nodes)
    yield from _groups(status.nodes)
    yield from _queues(status.queues)
    shares = list(_shares(status.nodes))
    yield from _pods(shares[:MOST_PODS])
    left_out = _Family("kai_anywhere_pods_left_out", "Pods without samples of their own, beyond the most there may be")
    if status.summary.pending is not None:
        yield from _pending(status.pending, {queue.name for queue in status.queues})
        left_out.add(max(0, len(shares) - MOST_PODS) + max(0, len(status.pending) - MOST_PODS))
    unreadable = _Family("kai_anywhere_unreadable", "1 for what the API server refuses to the exporter", "what")
    for resource in status.unseen:
        unreadable.add(1, resource.what)
    yield from (left_out.family, unreadable.family)


class _Family:
    """Samples of one name.

    Attributes:
        family: as prometheus_client takes it.
    """

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        self.family = GaugeMetricFamily(name, documentation, labels=labels)

    def add(self, value: float | None, *labels: str) -> None:
        """One sample; none where the value is not known."""
        if value is not None:
            self.family.add_metric(labels, value)


def _nodes(nodes: Sequence[NodeStatus]) -> Iterator[Metric]:
    info = _Family(
        "kai_anywhere_node_info",
        "A node with GPUs and how they are shared: kai, time-slicing, mig; none while nothing tells of them",
        *("node", "platform", "architecture", "sharing"),
    )
    ready = _Family("kai_anywhere_node_ready", "Whether the node is ready", "node")
    cordoned = _Family("kai_anywhere_node_cordoned", "Whether the node is cordoned", "node")
    gpus = _Family("kai_anywhere_node_gpus", "Physical GPUs of the node", "node")
    in_use = _Family(
        "kai_anywhere_node_gpus_in_use", "GPUs of the node that KAI counts as shared or taken whole", "node"
    )
    advertised = _Family("kai_anywhere_node_gpus_advertised", "GPUs and MIG slices that pods may have", "node")
    total = _Family("kai_anywhere_node_gpu_memory_bytes", "GPU memory of the node that KAI can share", "node")
    allocated = _Family("kai_anywhere_node_gpu_memory_allocated_bytes", "GPU memory of the node that pods have", "node")
    free = _Family(
        "kai_anywhere_node_gpu_memory_free_bytes", "GPU memory of the node that more pods can get together", "node"
    )
    largest = _Family(
        "kai_anywhere_node_gpu_memory_largest_free_bytes", "The most that one more pod gets of one GPU there", "node"
    )
    remarks = _Family("kai_anywhere_node_remarks", "What does not fit together: kai-anywhere status says it", "node")
    families = (info, ready, cordoned, gpus, in_use, advertised, total, allocated, free, largest, remarks)
    for node in nodes:
        # Of one that is gone, or may not be read, nothing is known but its pods.
        if not node.has_gpus or node.sharing.value == "remote" or node.ready.value is None:
            continue
        info.add(1, node.name, node.platform.value or "", node.architecture, node.sharing.value)
        ready.add(node.ready.value, node.name)
        cordoned.add(node.cordoned.value, node.name)
        gpus.add(node.gpu_count.value, node.name)
        advertised.add(node.advertised.value, node.name)
        remarks.add(len(node.remarks), node.name)
        total.add(_bytes(node.can_share_mib), node.name)
        if any(gpu.use == "unknown" for gpu in node.gpus):
            continue
        in_use.add(sum(gpu.in_use for gpu in node.gpus), node.name)
        # Of other nodes' memory nobody keeps account, whichever of their pods KAI has put on a GPU.
        if node.sharing.value == "kai":
            allocated.add(_sum(gpu.taken_mib for gpu in node.gpus), node.name)
            left = [max(0, gpu.free_mib) if node.takes_pods else 0 for gpu in node.gpus if gpu.free_mib is not None]
            free.add(_sum(left), node.name)
            largest.add(_bytes(max(left, default=None)), node.name)
    yield from (family.family for family in families)


def _sum(mib: Iterable[int | None]) -> int | None:
    """Bytes; None where nothing is known."""
    numbers = [number for number in mib if number is not None]
    return sum(numbers) * _MIB if numbers else None


def _groups(nodes: Sequence[NodeStatus]) -> Iterator[Metric]:
    labels = ("node", "gpu_group")
    total = _Family("kai_anywhere_gpu_group_memory_bytes", "What KAI shares of the GPU of a GPU group", *labels)
    allocated = _Family("kai_anywhere_gpu_group_memory_allocated_bytes", "What the pods of a GPU group have", *labels)
    free = _Family(
        "kai_anywhere_gpu_group_memory_free_bytes",
        "What a GPU group has free; below 0, pods have been promised more than there is",
        *labels,
    )
    pods = _Family("kai_anywhere_gpu_group_pods", "Pods that share the GPU of a GPU group", *labels)
    answered = _Family(
        "kai_anywhere_gpu_group_reservation_answered",
        "1 once the group's reservation pod has said its GPU; 0 before, and without a reservation pod that runs",
        *labels,
    )
    device = _Family(
        "kai_anywhere_gpu_group_info", "The GPU of a GPU group, as its reservation pod said it", *labels, "gpu"
    )
    for node in nodes:
        for gpu in node.gpus:
            if gpu.group is None:
                continue
            total.add(_bytes(gpu.total_mib), node.name, gpu.group)
            allocated.add(_bytes(gpu.taken_mib), node.name, gpu.group)
            free.add(_bytes(gpu.free_mib), node.name, gpu.group)
            pods.add(len(gpu.shares), node.name, gpu.group)
            device_id = gpu.reservation.device.value if gpu.reservation else None
            holds = gpu.reservation is not None and not gpu.reservation.ended
            answered.add(holds and device_id is not None, node.name, gpu.group)
            device.add(1 if device_id else None, node.name, gpu.group, device_id or "")
    yield from (family.family for family in (total, allocated, free, pods, answered, device))


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * _MIB


def _queues(queues: Sequence[QueueStatus]) -> Iterator[Metric]:
    info = _Family("kai_anywhere_queue_info", "A queue of KAI's and the queue above it", "queue", "parent")
    quota = _Family("kai_anywhere_queue_quota_gpus", "GPUs that the queue is promised", "queue")
    limit = _Family("kai_anywhere_queue_limit_gpus", "GPUs that the queue may use", "queue")
    used = _Family(
        "kai_anywhere_queue_allocated_gpus", "GPUs that the pods of the queue and of those below it come to", "queue"
    )
    reported = _Family("kai_anywhere_queue_reported_gpus", "The same, as KAI's queue controller says it", "queue")
    unexplained = _Family(
        "kai_anywhere_queue_unexplained_gpus",
        "GPUs that the pods come to beyond what the queue controller says, its own ways of counting aside",
        "queue",
    )
    pods = _Family("kai_anywhere_queue_pods", "Pods with GPUs, of the queue and of those below it", "queue")
    for queue in queues:
        info.add(1, queue.name, queue.parent or "")
        quota.add(_unlimited(queue.quota.value), queue.name)
        limit.add(_unlimited(queue.limit.value), queue.name)
        used.add(queue.used.value, queue.name)
        reported.add(queue.reported.value, queue.name)
        unexplained.add(queue.unexplained, queue.name)
        pods.add(queue.pods, queue.name)
    yield from (family.family for family in (info, quota, limit, used, reported, unexplained, pods))


def _unlimited(gpus: float) -> float:
    """KAI writes -1 for all."""
    return math.inf if gpus < 0 else gpus


_Placed = tuple[NodeStatus, Gpu | None, Share]


def _shares(nodes: Sequence[NodeStatus]) -> Iterator[_Placed]:
    """Every pod with a share, once for each of its GPU groups; once where it has whole GPUs."""
    for node in nodes:
        whole: set[tuple[str, str]] = set()
        for gpu in node.gpus:
            for share in gpu.shares:
                if gpu.group is None:
                    if (share.namespace, share.name) in whole:
                        continue
                    whole.add((share.namespace, share.name))
                yield node, gpu, share
        for share in node.other_pods:
            yield node, None, share


def _pods(shares: Iterable[_Placed]) -> Iterator[Metric]:
    labels = ("namespace", "pod", "node", "queue")
    memory = _Family(
        "kai_anywhere_pod_gpu_memory_bytes", "GPU memory that a pod has of the GPU of a GPU group", *labels, "gpu_group"
    )
    gpus = _Family("kai_anywhere_pod_gpus", "What a pod's queue is charged for it, in GPUs", *labels)
    charged: set[tuple[str, str]] = set()
    for node, gpu, share in shares:
        pod = (share.namespace, share.name, node.name, share.queue or "")
        memory.add(_bytes(share.mib), *pod, (gpu.group if gpu else None) or "")
        if pod[:2] not in charged:
            charged.add(pod[:2])
            gpus.add(share.gpus, *pod)
    yield from (memory.family, gpus.family)


def _pending(pending: Sequence[PendingPod], queues: Collection[str]) -> Iterator[Metric]:
    counts = _Family(
        "kai_anywhere_pods_pending", "Pods that wait, by queue and by whom they wait for", "queue", "reason"
    )
    since = _Family(
        "kai_anywhere_pod_pending_since_timestamp_seconds",
        "When a pod that waits was created, Unix time",
        *("namespace", "pod", "queue", "reason"),
    )
    # A pod may name any queue: each name that is no queue's would be a series of its own.
    waiting = Counter((pod.queue if pod.queue in queues else "", waits_for(pod)) for pod in pending)
    for (queue, reason), pods in sorted(waiting.items()):
        counts.add(pods, queue or "", reason)
    for pod in pending[:MOST_PODS]:
        created = pod.created.timestamp() if pod.created else None
        since.add(created, pod.namespace, pod.name, pod.queue or "", waits_for(pod))
    yield from (counts.family, since.family)


_SAID_BY: Mapping[str, str] = {"BindRequest": "binder", "Pod": "scheduler", "PodGroup": "scheduler"}


def waits_for(pod: PendingPod) -> str:
    """Whom a pod waits for.

    `node`: it has a node, and its containers do not run. `binder`: KAI's binder is at it, or could not bind it.
    `scheduler`: the scheduler says why it finds no place. `gate`: whoever gave it scheduling gates has not taken them
    away. `nobody`: nothing says why yet.
    """
    if pod.node is not None:
        return "node"
    if pod.gated:
        return "gate"
    for reason in pod.reasons:
        return _SAID_BY[reason.proof.partition(" ")[0]]
    return "nobody"
