"""Why a pod waits, in the words of whoever says so: KAI's binder, the scheduler, or the kubelet. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cluster.access.answers.pods import ContainerStatus, Pod
from cluster.snapshot import BindRequest, PodGroup


@dataclass(frozen=True)
class Said:
    """What somebody says of a pod that waits.

    Attributes:
        by: who.
        words: theirs.
        proof: the object and the field that have them.
        since: when they were written; None where the API server does not tell.
    """

    by: Literal["binder", "scheduler", "kubelet"]
    words: str
    proof: str
    since: datetime | None


def said_of(pod: Pod, group: PodGroup | None = None, request: BindRequest | None = None) -> Iterator[Said]:
    """What is said of a pod, what says most first.

    Args:
        pod: it.
        group: its pod group, where that was read.
        request: likewise its bind request.
    """
    where = f"Pod {pod.namespace}/{pod.name}"
    if request is not None and not pod.node and (request.reason or request.failed_attempts):
        attempts = f" ({request.failed_attempts} failed attempts)" if request.failed_attempts else ""
        proof = f"BindRequest {request.namespace}/{request.name} status.reason"
        yield Said("binder", f"{request.reason or request.phase}{attempts}", proof, request.created)
    for condition in pod.conditions:
        words = condition.message or condition.reason
        if words and condition.type == "PodScheduled" and condition.status == "False" and not pod.node:
            yield Said("scheduler", words, f"{where} status.conditions[PodScheduled]", condition.since)
    if words := kubelet_says(pod):
        field = "initContainerStatuses" if _waits(pod.init_statuses) else "containerStatuses"
        yield Said("kubelet", words, f"{where} status.{field}", pod.since("PodScheduled"))
    if group is None or pod.node:
        return
    for scheduling_condition in group.scheduling_conditions:
        if words := "; ".join(
            explanation.message or explanation.reason for explanation in scheduling_condition.explanations
        ):
            proof = f"PodGroup {group.namespace}/{group.name} status.schedulingConditions"
            yield Said("scheduler", words, proof, scheduling_condition.since)


def scheduler_says(pod: Pod, group: PodGroup | None = None) -> str:
    """Why a pod finds no place, in the scheduler's words; empty while it has said nothing."""
    return next((statement.words for statement in said_of(pod, group) if statement.by == "scheduler"), "")


def kubelet_says(pod: Pod) -> str:
    """Why a pod's containers do not run, in the kubelet's words; empty where it says nothing."""
    return _waits(pod.init_statuses) or _waits(pod.statuses)


def kubectl_says(pod: Pod) -> str:
    """A pod's state in a word, as kubectl's column STATUS has it (Kubernetes v1.36 printers.go, printPod).

    The phase alone says Running of a pod whose container ends again and again.
    """
    if pod.deleted and not pod.ended:
        return "Unknown" if pod.reason == "NodeLost" else "Terminating"
    said = pod.reason or pod.phase or "Unknown"
    if pod.gated:
        said = "SchedulingGated"
    sidecars = {container.name for container in pod.init_containers if container.restart_policy == "Always"}
    for index, status in enumerate(pod.init_statuses):
        end = status.state.get("terminated")
        if (end is not None and end.exit_code == 0) or (status.name in sidecars and status.started):
            continue
        word = _word(status)
        said = f"Init:{index}/{len(pod.init_containers)}" if word in {"", "PodInitializing"} else f"Init:{word}"
        if pod.since("Initialized") is None:
            return said
        break
    for status in reversed(pod.statuses):
        said = _word(status) or said
    if said == "Completed" and any(status.ready and "running" in status.state for status in pod.statuses):
        return "NotReady" if pod.since("Ready") is None else "Running"
    return said


def _word(status: ContainerStatus) -> str:
    """Why a container waits, or how it ended; empty where it runs."""
    waiting, end = status.state.get("waiting"), status.state.get("terminated")
    if waiting is not None and waiting.reason:
        return waiting.reason
    return "" if end is None else end.reason or f"ExitCode:{end.exit_code}"


def _waits(statuses: Iterable[ContainerStatus]) -> str:
    for status in statuses:
        waiting = status.state.get("waiting")
        if waiting is not None and waiting.reason:
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    return ""
