"""Queues that leave the stack while pods or others' queues are in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.snapshot import read_snapshot
from config.stack import StackSettings
from gpu_sharing.queues import QUEUE_LABEL
from manifests import kai
from manifests.wording import first_of

_KIND = "Queue/"


@dataclass(frozen=True)
class Members:
    """What a run leaves without its queue.

    Attributes:
        pods: those that have not ended, as namespace/name.
        children: queues that are not the stack's.
    """

    pods: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeavingQueues:
    """The queues that a run deletes, as far as something is in them.

    Attributes:
        members: by queue.
        others: the queues that the stack has afterwards and that take pods, in the order of names.
    """

    members: Mapping[str, Members] = field(default_factory=dict)
    others: tuple[str, ...] = ()


def read_leaving_queues(cluster: Cluster, settings: StackSettings, state: DeployedState) -> LeavingQueues:
    """What is in them. Nothing is asked where none leaves; what the user may not see counts as not there.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
        LoginError: if the login is not accepted.
    """
    staying = kai.queues(settings)
    # One that was adopted is never deleted.
    leaving = {
        name.removeprefix(_KIND)
        for name in state.objects - frozenset(state.adopted)
        if name.startswith(_KIND) and name.count("/") == 1
    } - frozenset(staying)
    if not leaving:
        return LeavingQueues()
    snapshot = read_snapshot(cluster)
    pods: dict[str, list[str]] = {name: [] for name in leaving}
    for pod in snapshot.pods:
        queue = snapshot.queue_of(pod)
        if queue in leaving and snapshot.of_kai(pod) and not pod.ended and not snapshot.reserves(pod):
            pods[queue].append(f"{pod.namespace}/{pod.name}")
    children: dict[str, list[str]] = {name: [] for name in leaving}
    for child in snapshot.queues:
        # The stack's own get their new parent in the same run.
        if child.parent in leaving and child.name not in leaving and child.name not in staying:
            children[child.parent].append(child.name)
    return LeavingQueues(
        {
            name: Members(tuple(pods[name]), tuple(children[name]))
            for name in sorted(leaving)
            if pods[name] or children[name]
        },
        # Pods are submitted to queues that are nobody's parent.
        tuple(sorted(frozenset(staying) - {queue["spec"].get("parentQueue") for queue in staying.values()})),
    )


def judge_leaving_queues(leaving: LeavingQueues) -> Iterator[Finding]:
    """What becomes of the pods.

    Symptom without it: the run succeeds. KAI's webhook is not asked about a queue that is deleted, and KAI schedules
    nothing of a pod group whose queue is not there, or has no parent (KAI v0.17.0
    pkg/operator/operands/queue_controller/resources.go, pkg/scheduler/cache/cluster_info).
    """
    for name, members in leaving.members.items():
        if members.pods:
            yield Finding(
                f"this run deletes the queue '{name}', and pods are in it: {first_of(members.pods)}. What waits there "
                "stays Pending, and so does what is submitted to it later.",
                f"Let them end first, or submit them again with the label {QUEUE_LABEL} of another queue: "
                f"{first_of(leaving.others) or 'this stack has none'}.",
                fatal=False,
            )
        if members.children:
            yield Finding(
                f"this run deletes the queue '{name}', and it is the parent of queues that are not this stack's: "
                f"{first_of(members.children)}. KAI ignores a queue whose parent is missing: its pods stay Pending.",
                "Give each of them another parent first: kubectl edit queue NAME",
                fatal=False,
            )
