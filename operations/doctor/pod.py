"""Why one pod does not run: the cause that the checks found, else what KAI, the kubelet or its arithmetic says."""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cluster.access.answers.pods import Pod
from cluster.pending import said_of, scheduler_says
from gpu_sharing.model import NodeUse, Reason
from gpu_sharing.placement import place
from gpu_sharing.request import gpu_groups
from manifests.node_labels import GPU_MEMORY
from operations.doctor.check import Severity, of_pod
from operations.doctor.checks.workloads import ends
from operations.doctor.diagnosis import Diagnosis, Judged, Problem
from operations.doctor.facts import Facts, Source
from operations.errors import OperationError
from operations.plan.live import scene_of_cluster

_GENERIC = "KA0705"
"""The check that says no more than that a pod waits."""
_NODE_OFF = "KA0401"
"""The check that says that a node is not ready."""
_ELSEWHERE = "KA0701"
"""The check that says that another scheduler than KAI's has a pod with a share."""
_KUBERNETES = "default-scheduler"
_NODES = 5
_OTHERWISE = "Wait until others end, or ask for less: `kai-anywhere plan --live` says what would fit."
_OF_NODES = (
    "Compare its node selector and tolerations with the labels and taints of the nodes. One that is cordoned takes no "
    "pods: kubectl uncordon NODE"
)


@dataclass(frozen=True)
class PodVerdict:
    """What became of a pod.

    Attributes:
        pod: it.
        runs: whether it does what it was made for.
        sentence: what became of it, and why.
        evidence: what the cluster says.
        code: of the check that found the cause, or None.
        remedy: what to do; empty where it runs or nothing helps but waiting.
    """

    pod: Pod
    runs: bool
    sentence: str
    evidence: tuple[str, ...] = ()
    code: str | None = None
    remedy: str = ""


def find_pod(facts: Facts, name: str, namespace: str) -> Pod:
    """The pod.

    Raises:
        OperationError: if there is none of this name there, or the pods there may not be read.
    """
    for pod in facts.snapshot.pods:
        if (pod.namespace, pod.name) == (namespace, name):
            return pod
    unseen = facts.unseen.get(Source.PODS)
    if unseen is not None and not unseen.but:
        raise OperationError(
            f"The pods of namespace '{namespace}' can't be read: {unseen.why} The right to list pods in that "
            "namespace is enough."
        )
    elsewhere = [pod.namespace for pod in facts.snapshot.pods if pod.name == name]
    names = [pod.name for pod in facts.snapshot.pods if pod.namespace == namespace]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" It is in namespace {elsewhere[0]}: add --namespace {elsewhere[0]}." if elsewhere else ""
    hint = hint or (f" Did you mean '{near[0]}'?" if near else "")
    raise OperationError(f"There is no pod '{name}' in namespace '{namespace}'.{hint}")


def explain(facts: Facts, diagnosis: Diagnosis, pod: Pod) -> PodVerdict:
    """Say in one sentence why a pod is as it is: by a check, else by KAI's arithmetic, else by what was said of it."""
    where = f"Pod {pod.namespace}/{pod.name}"
    if _runs(facts, pod):
        ended = "has succeeded" if pod.phase == "Succeeded" else "runs"
        sentence = f"{where} {ended} on node {pod.node}"
        groups = tuple(f"GPU group {group}" for group in gpu_groups(pod.as_manifest()))
        # Such as one that asks for a share of a GPU, and has none since another scheduler placed it.
        wrong = _cause(diagnosis.problems, pod) or _left_to_kubernetes(facts, diagnosis, pod)
        if wrong is not None and wrong[1].check.severity is Severity.ERROR:
            return _of_check(pod, f"{sentence}, but", *wrong, groups)
        return PodVerdict(pod, runs=True, sentence=f"{sentence}.", evidence=groups)
    subject = f"{where} is {_state(pod)}"
    cause = _cause((*diagnosis.problems, *diagnosis.suppressed), pod) or _of_its_node(diagnosis, pod)
    statements = tuple(_statements(facts, pod))
    if cause is not None and cause[0].check.code != _GENERIC:
        return _of_check(pod, f"{subject} because", *cause, statements)
    if (why := _arithmetic(facts, pod)) is not None:
        return PodVerdict(
            pod,
            runs=False,
            sentence=f"{subject} because {_clause(pod, why.sentence)}",
            evidence=(*why.free, *statements),
            code=_GENERIC,
            remedy=why.remedy,
        )
    describe = f"kubectl --namespace {pod.namespace} describe pod {pod.name}"
    if not statements:
        return PodVerdict(
            pod,
            runs=False,
            sentence=f"{subject}, and nobody has said why yet.",
            remedy=f"Ask again in a minute; {describe} has its events.",
        )
    kept = facts.snapshot
    words = next((said.words for said in said_of(pod, kept.group_of(pod), kept.bind_request_of(pod))), None)
    return PodVerdict(
        pod,
        runs=False,
        sentence=f"{subject}: {words or statements[0].partition(': ')[2] or statements[0]}",
        evidence=statements,
        code=cause[0].check.code if cause else None,
        remedy=describe,
    )


def _of_check(pod: Pod, subject: str, cause: Judged, own: Judged, statements: Iterable[str]) -> PodVerdict:
    """What a check found: the cause, and beside it the finding that names the pod."""
    evidence = [*cause.finding.evidence, *(own.finding.evidence if own is not cause else ()), *statements]
    return PodVerdict(
        pod,
        runs=False,
        sentence=f"{subject} {_clause(pod, cause.finding.what)}",
        evidence=tuple(dict.fromkeys(evidence)),
        code=cause.check.code,
        remedy=cause.remedy,
    )


def _runs(facts: Facts, pod: Pod) -> bool:
    # Of a host that is off the kubelet's last words stay as they are.
    node = facts.nodes.get(pod.node)
    is_off = node is not None and node.conditions.get("Ready", "True") != "True"
    unready = any(condition.type == "Ready" and condition.status == "False" for condition in pod.conditions)
    ready = not (is_off or unready) and all(status.ready for status in pod.statuses)
    return pod.phase == "Succeeded" or (pod.phase == "Running" and ready and pod.deleted is None)


def _state(pod: Pod) -> str:
    if pod.deleted:
        return "being deleted"
    if pod.phase == "Running":
        return "Running and not ready"
    return f"{pod.phase or 'unknown'}{f' on node {pod.node}' if pod.node else ''}"


def _cause(problems: Iterable[Problem], pod: Pod) -> tuple[Judged, Judged] | None:
    """The first problem that concerns the pod: its cause, and the finding that names the pod."""
    name = of_pod(pod.namespace, pod.name)
    causes = [(problem.cause, result) for problem in problems for result in problem.all if name in result.finding.about]
    # What says more than that the pod waits comes first.
    return min(causes, key=lambda pair: pair[0].check.code == _GENERIC, default=None)


def _left_to_kubernetes(facts: Facts, diagnosis: Diagnosis, pod: Pod) -> tuple[Judged, Judged] | None:
    """That Kubernetes' own scheduler has the pod, which is never KAI's, whoever may not read how KAI's is called."""
    undone = [gap.check for gap in diagnosis.not_checked if gap.check.code == _ELSEWHERE]
    judged = (
        Judged(check, finding, facts.names)
        for check in undone
        if pod.scheduler == _KUBERNETES
        for finding in check.judge(facts)
        if of_pod(pod.namespace, pod.name) in finding.about and not finding.subject.suppresses(check.code)
    )
    return next(((result, result) for result in judged), None)


def _of_its_node(diagnosis: Diagnosis, pod: Pod) -> tuple[Judged, Judged] | None:
    """That the pod's node is not ready, where that was found."""
    judged = (result for problem in (*diagnosis.problems, *diagnosis.suppressed) for result in problem.all)
    off = (result for result in judged if result.check.code == _NODE_OFF and result.finding.subject.name == pod.node)
    return next(((result, result) for result in off), None)


def _clause(pod: Pod, sentence: str) -> str:
    """A sentence as the end of another one about the pod: names keep their capitals."""
    its_name = rf"\b[Pp]od {re.escape(f'{pod.namespace}/{pod.name}')}(?![\w-]|\.\w)"
    sentence = re.sub(its_name, "it", sentence, count=1).replace(" it, which waits.", " it.")
    first = sentence.split(" ", 1)[0]
    lowered = first.lower() if first in {"The", "It", "There", "No", "None", "A"} else first
    return lowered + sentence[len(first) :]


def _statements(facts: Facts, pod: Pod) -> Iterator[str]:
    """What the cluster says of a pod: how it ended, conditions, its group and bind request, containers, events."""
    if pod.reason or pod.message:
        yield f"status: {pod.reason}: {pod.message}"
    yield from ends(pod)
    for condition in pod.conditions:
        if condition.status == "False" and condition.message:
            yield f"condition {condition.type}=False ({condition.reason}): {condition.message}"
    group = facts.snapshot.group_of(pod)
    if words := scheduler_says(pod, group):
        yield f"KAI says: {words}"
    if group is not None:
        yield f"PodGroup {group.name}: queue {group.queue or 'none'}"
    elif pod.group and Source.POD_GROUPS not in facts.unseen:
        yield f"PodGroup {pod.group}: not found"
    for request in facts.snapshot.bind_requests:
        if (request.namespace, request.pod) == (pod.namespace, pod.name):
            answer = f"{request.phase}: {request.reason}" if request.reason else request.phase or "no answer yet"
            yield f"BindRequest {request.name} to node {request.node}: {answer}"
    yield from _containers(pod)
    yield from facts.events_of("Pod", pod.namespace, pod.name)


def _containers(pod: Pod) -> Iterator[str]:
    """What is said of containers that do not run, beyond how they ended."""
    for status in (*pod.init_statuses, *pod.statuses):
        for kind, state in status.state.items():
            # How one ended that did not end well is said already.
            reason = "" if kind == "terminated" and state.exit_code else state.reason
            words = ": ".join(filter(None, (reason, state.message)))
            if kind != "running" and words:
                yield f"container {status.name}: {words}"


@dataclass(frozen=True)
class _NoRoom:
    """Why KAI can't place a pod, as a sentence, with what to do, and what is free on each node."""

    sentence: str
    remedy: str
    free: tuple[str, ...]


def _arithmetic(facts: Facts, pod: Pod) -> _NoRoom | None:
    """Why KAI can't place the pod, as its arithmetic has it, with what is free where; None where it could."""
    if pod.node or pod.scheduler != facts.scheduler_name or {Source.NODES, Source.PODS} & facts.unseen.keys():
        return None
    scene = scene_of_cluster(facts.snapshot, facts.settings, None)
    name = pod.name if pod.namespace == "default" else f"{pod.namespace}/{pod.name}"
    # What else waits would take its turn too; whether this pod fits beside what runs is the question.
    workloads = [
        workload
        for workload in scene.workloads
        if any(member.node is not None or member.name == name for member in workload.pods)
    ]
    packing = place([machine.node for machine in scene.machines], workloads, scene.queues, scene.strategy)
    for waiting in packing.pending:
        if waiting.pod.name == name:
            remedy = _OF_NODES if waiting.why.reason is Reason.NODE_SELECTION else _OTHERWISE
            return _NoRoom(waiting.why.text, remedy, tuple(_free(use, facts) for use in packing.nodes[:_NODES]))
    return None


def _free(use: NodeUse, facts: Facts) -> str:
    node = facts.nodes[use.node.name]
    off = "cordoned, " if node.unschedulable else f"tainted ({node.keeps_off[0]}), " if node.keeps_off else ""
    return f"Node {node.name}: {off}{_left(use)}"


def _left(use: NodeUse) -> str:
    if use.node.has_mig:
        return f"KAI gives no fractions there (MIG strategy {use.node.mig})"
    if use.node.shared_mib is None:
        return f"no label {GPU_MEMORY}, so how much it has left is not known"
    left = ", ".join(f"{gpu.free_mib} MiB" for gpu in use.gpus) or "no GPU"
    return f"{left} left of {use.node.shared_mib} MiB that KAI shares of each GPU"
