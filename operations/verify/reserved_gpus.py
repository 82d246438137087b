"""The GPUs behind pods that share: the reservation pod of each GPU group, the GPU that it names, and what it logged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from gpu_sharing.request import GPU_GROUP
from manifests import reservation, reservation_index

_LOG_LINES = 3
_NAME = "gpu-reservation"
"""What a reservation pod is called in evidence: its own name may have its node's in it."""


@dataclass(frozen=True)
class Reserved:
    """What was found for pods that run.

    Attributes:
        evidence: a line for each GPU group, the log's lines below it; and what could not be seen.
        missing: GPU groups that no reservation pod holds, or whose does not name its GPU; in words.
    """

    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def reserved_gpus(cluster: Cluster, running: Sequence[Pod], *, logs: bool) -> Reserved:
    """Look at the reservation pods of the GPU groups of pods that run.

    Args:
        cluster: where they run.
        running: the pods.
        logs: whether they have logs; a simulator's pods are records.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    groups = sorted({pod.labels[GPU_GROUP] for pod in running if GPU_GROUP in pod.labels})
    missing = [f"{pod.name} has no GPU group" for pod in running if GPU_GROUP not in pod.labels]
    try:
        pods = cluster.pods(namespace=reservation.NAMESPACE)
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        return Reserved((f"not seen: reservation pods: {str(error).splitlines()[0]}",), tuple(missing))
    evidence: list[str] = []
    for group in groups:
        holders = [pod for pod in pods if pod.labels.get(GPU_GROUP) == group]
        if not holders:
            missing.append(f"GPU group {group} has no reservation pod")
        for pod in holders:
            if gpu := _gpu(pod):
                evidence.append(f"{_NAME} of GPU group {group}: {gpu}")
            else:
                missing.append(f"the reservation pod of GPU group {group} names no GPU")
            evidence += _log(cluster, pod) if logs else ()
    return Reserved(tuple(evidence), tuple(missing))


def _gpu(pod: Pod) -> str:
    """The UUID that it found out; on a Jetson of one GPU the annotation that KAI reads has the index, and ours this."""
    uuid = pod.annotations.get(reservation_index.UUID) or pod.annotations.get(reservation_index.WRITTEN_BY_KAI)
    return uuid or ""


def _log(cluster: Cluster, pod: Pod) -> Iterator[str]:
    log = cluster.log(pod.namespace, pod.name, lines=_LOG_LINES)
    yield from (f"  log: {line.replace(pod.name, _NAME).strip()}" for line in log.splitlines() if line.strip())
