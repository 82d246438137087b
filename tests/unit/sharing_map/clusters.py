"""Maps of clusters that are written down here, as the API server would show them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.lists import Unseen
from cluster.snapshot import BindRequest, Config, PodGroup, Queue, Snapshot
from sharing_map.build import build
from sharing_map.report import Status
from testbed.shared_gpus import Manifest

TAKEN = datetime(2026, 11, 3, 10, tzinfo=UTC)
"""Two days after everything was created."""


def status_of(  # noqa: PLR0913 - what a snapshot holds
    *,
    nodes: Sequence[Manifest] = (),
    pods: Sequence[Manifest] = (),
    queues: Sequence[Manifest] = (),
    pod_groups: Sequence[Manifest] = (),
    bind_requests: Sequence[Manifest] = (),
    configs: Sequence[Manifest] = (),
    unseen: Sequence[Unseen] = (),
) -> Status:
    """The map of these objects."""
    snapshot = Snapshot(
        taken=TAKEN,
        nodes=tuple(Node.model_validate(node) for node in nodes),
        pods=tuple(Pod.model_validate(pod) for pod in pods),
        queues=tuple(Queue.model_validate(queue) for queue in queues),
        pod_groups=tuple(PodGroup.model_validate(pod_group) for pod_group in pod_groups),
        bind_requests=tuple(BindRequest.model_validate(bind_request) for bind_request in bind_requests),
        configs=tuple(Config.model_validate(config_file) for config_file in configs),
        unseen=tuple(unseen),
    )
    return build(snapshot, context="lab", server="https://10.0.0.5:6443", simulated=False)
