"""The pods that wait, and why, in the words of whoever says so. Pure."""

from collections.abc import Iterator

from cluster.pending import said_of
from sharing_map.report import Fact, PendingPod
from sharing_map.view import User, View, asks


def pending_pods(view: View) -> Iterator[PendingPod]:
    """Every pod that waits, by namespace and name: of KAI's, and of those that ask for a GPU."""
    waiting = [
        user for user in (*view.users, *view.idle) if user.pod.phase in {"", "Pending"} and user.pod.deleted is None
    ]
    for user in sorted(waiting, key=lambda pending: (pending.pod.namespace, pending.pod.name)):
        yield PendingPod(
            namespace=user.pod.namespace,
            name=user.pod.name,
            queue=user.queue,
            node=user.pod.node or None,
            gated=user.pod.gated,
            asks=asks(user) if user.request is not None or user.problem or user.pod.time_slices else None,
            created=user.pod.created,
            reasons=tuple(_reasons(user, view)),
        )


def _reasons(user: User, view: View) -> Iterator[Fact[str]]:
    snapshot = view.snapshot
    if (request := user.binding) is not None:
        where = f"BindRequest {request.namespace}/{request.name} spec.selectedNode"
        yield Fact(value=f"KAI's binder is to put it on {request.node}", proof=where, since=request.created)
    for statement in said_of(user.pod, snapshot.group_of(user.pod), snapshot.bind_request_of(user.pod)):
        yield Fact(value=statement.words, proof=statement.proof, since=statement.since)
