"""The pods that wait, and why, in the words of whoever says so. Pure."""

from collections.abc import Iterator

from operations.status.report import Fact, PendingPod
from operations.status.view import User, View, asks, scheduled_since, waits_for


def pending_pods(view: View) -> Iterator[PendingPod]:
    """Every pod that waits, by namespace and name: of KAI's, and of those that ask for a GPU."""
    waiting = [
        user for user in (*view.users, *view.idle) if user.pod.phase in {"", "Pending"} and user.pod.deleted is None
    ]
    for user in sorted(waiting, key=lambda each: (each.pod.namespace, each.pod.name)):
        yield PendingPod(
            namespace=user.pod.namespace,
            name=user.pod.name,
            queue=user.queue,
            node=user.node or None,
            asks=asks(user) if user.request is not None or user.problem else None,
            created=user.pod.created,
            reasons=tuple(_reasons(user, view)),
        )


def _reasons(user: User, view: View) -> Iterator[Fact[str]]:
    pod = user.pod
    request = view.bind_requests.get((pod.namespace, pod.name))
    if request is not None and not pod.node and (request.reason or request.failed_attempts):
        attempts = f" ({request.failed_attempts} failed attempts)" if request.failed_attempts else ""
        yield Fact(
            value=f"{request.reason or request.phase}{attempts}",
            proof=f"BindRequest {request.namespace}/{request.name} status.reason",
            since=request.created,
        )
    for condition in pod.conditions:
        words = condition.message or condition.reason
        if words and condition.type == "PodScheduled" and condition.status == "False" and not pod.node:
            yield Fact(
                value=words,
                proof=f"{user.where} status.conditions[PodScheduled]",
                since=condition.since,
            )
    if why := waits_for(pod):
        yield Fact(value=why, proof=f"{user.where} status.containerStatuses", since=scheduled_since(pod))
    group = view.group_of(pod)
    if group is None or pod.node:
        return
    for said in group.scheduling_conditions:
        words = "; ".join(each.message or each.reason for each in said.reasons) or said.message or said.reason
        if said.status != "False" and words:
            yield Fact(
                value=words,
                proof=f"PodGroup {group.namespace}/{group.name} status.schedulingConditions",
                since=said.since,
            )
