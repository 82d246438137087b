"""Machines whose GPU takes its memory from the system's: KAI and the kubelet give away the same bytes."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from gpu_sharing.quantities import MIB
from gpu_sharing.request import RequestError, pod_request

REMEDY = "Lower gpu_memory_mib, or the memory that pods request of the system."


def gpu_memory(settings: StackSettings) -> dict[str, int]:
    """What KAI may give away on each machine with unified memory, in MiB, where the settings say it."""
    declared = {name: (node.gpu_memory_mib, 1) for name, node in settings.platform.unified_memory_nodes.items()}
    declared |= {name: (jetson.gpu_memory_mib, jetson.gpu_count) for name, jetson in settings.platform.jetsons.items()}
    return {name: mib * count for name, (mib, count) in sorted(declared.items()) if mib is not None}


def read_system_requests(cluster: Cluster, settings: StackSettings) -> dict[str, int]:
    """What pods request of the system's memory on these machines, in MiB; nothing without the right to see pods.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    if not (machines := gpu_memory(settings)):
        return {}
    try:
        pods = cluster.objects("/api/v1/pods", Pod)
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return {}
    return requested_mib(pods, machines)


def requested_mib(pods: Iterable[Pod], machines: Collection[str]) -> dict[str, int]:
    """What the pods of each machine request of the system's memory together, rounded up to MiB.

    Those that ended hold nothing any more.
    """
    requested = dict.fromkeys(machines, 0)
    for pod in pods:
        if pod.node in requested and not pod.ended:
            requested[pod.node] += _memory(pod)
    return {name: -(-memory // MIB) for name, memory in requested.items()}


def judge_unified_memory(
    settings: StackSettings, nodes: Mapping[str, Node], requests: Mapping[str, int]
) -> Iterator[Finding]:
    """Every machine whose memory is given away twice.

    A label that alone is too large is another finding, and fatal.
    """
    for name, mib in gpu_memory(settings).items():
        machine = nodes[name].memory_mib if name in nodes else 0
        if mib < machine and (what := sold_twice(name, mib, requests.get(name, 0), machine)):
            yield Finding(what, REMEDY, fatal=False)


def sold_twice(node: str, gpu_mib: int, requests_mib: int, machine_mib: int) -> str | None:
    """That a machine's memory is given away twice; None where it is not."""
    too_much = gpu_mib + requests_mib - machine_mib
    if too_much <= 0:
        return None
    return (
        f"node '{node}' has {machine_mib} MiB for its GPU and the system together. KAI may give away {gpu_mib} MiB, "
        f"pods request {requests_mib} MiB of the system: {too_much} MiB are given away twice."
    )


def _memory(pod: Pod) -> int:
    try:
        return int(pod_request(pod.as_manifest()).memory)
    except RequestError:
        return 0
