"""Checks of KAI's queues."""

from collections import defaultdict
from collections.abc import Iterator

from cluster.access.answers.pods import Pod
from cluster.snapshot import PodGroup, Queue
from config.kai import DEFAULT_QUEUE as NO_QUEUE
from gpu_sharing.queues import QUEUE_LABEL
from manifests.wording import first_of
from operations.doctor.check import Check, Finding, Severity, Subject, of_pod, of_queue
from operations.doctor.facts import Facts, Source

_WITH_QUEUES = frozenset({Source.QUEUES, Source.KINDS})
_SHOWN = 10
"""Queues of a circle whose parents are evidence."""


def _subject(queue: Queue) -> Subject:
    return Subject("Queue", queue.name, annotations=queue.annotations)


def _no_queue(facts: Facts) -> Iterator[Finding]:
    if facts.kai_is_there and not facts.snapshot.queues:
        yield Finding(
            Subject("Queue", NO_QUEUE),
            "There is no queue, so KAI schedules nothing.",
            ("Queues (scheduling.run.ai/v2): none",),
        )


def _orphans(facts: Facts) -> Iterator[Finding]:
    names = {queue.name for queue in facts.snapshot.queues}
    for queue in facts.snapshot.queues:
        if queue.parent and queue.parent not in names:
            yield Finding(
                _subject(queue),
                f"queue '{queue.name}' has the parent '{queue.parent}', which is not there.",
                (f"Queues: {first_of(sorted(names))}",),
                about=frozenset({of_queue(queue.name)}),
                reach=frozenset({of_queue(queue.name)}),
                remedy=_of_stack(facts, queue.parent),
            )


def _of_stack(facts: Facts, queue: str) -> str:
    """What to do about a queue that is not there, where it is one of the stack's; else the check's own remedy holds."""
    is_gone = f"Queue/{queue}" in (facts.missing or ())
    return "Put that queue back: `kai-anywhere repair --stack {stack}`." if is_gone else ""


def _circles(facts: Facts) -> Iterator[Finding]:
    queues = {queue.name: queue for queue in facts.snapshot.queues}
    judged: set[str] = set()
    for queue in facts.snapshot.queues:
        path: list[str] = []
        name = queue.name
        while name in queues and name not in judged:
            judged.add(name)
            path.append(name)
            name = queues[name].parent
        if name in path:
            circle = path[path.index(name) :]
            yield Finding(
                _subject(queues[name]),
                f"queue '{name}' is below itself: the parents of {first_of(circle)} lead in a circle.",
                tuple(f"Queue {name}: spec.parentQueue={queues[name].parent}" for name in circle[:_SHOWN]),
                about=frozenset(map(of_queue, circle)),
            )


def queue_of(facts: Facts, pod: Pod) -> str:
    """The queue in which KAI has a pod."""
    return facts.snapshot.queue_of(pod) or NO_QUEUE


def _waiting_groups(facts: Facts) -> Iterator[tuple[PodGroup, frozenset[str]]]:
    """The groups of pods that wait for KAI, with those pods."""
    waiting: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in facts.pending_of_kai:
        waiting[pod.namespace, pod.group].add(of_pod(pod.namespace, pod.name))
    for group in facts.snapshot.pod_groups:
        if pods := waiting.get((group.namespace, group.name)):
            yield group, frozenset(pods)


def _workloads(facts: Facts) -> Iterator[tuple[Subject, str, str, frozenset[str]]]:
    """What waits for KAI: the object, its queue, where that stands, and the pods that it concerns."""
    for pod in facts.pending_of_kai:
        if facts.snapshot.group_of(pod) is None:
            label = pod.labels.get(QUEUE_LABEL)
            yield (
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                queue_of(facts, pod),
                f"label {QUEUE_LABEL}={label}" if label else f"no label {QUEUE_LABEL}, so KAI takes {NO_QUEUE}",
                frozenset({of_pod(pod.namespace, pod.name)}),
            )
    for group, pods in _waiting_groups(facts):
        yield (
            Subject("PodGroup", group.name, group.namespace, group.annotations),
            group.queue or NO_QUEUE,
            f"PodGroup {group.namespace}/{group.name}: spec.queue={group.queue or 'empty'}",
            pods,
        )


def _unknown(facts: Facts) -> Iterator[Finding]:
    names = {queue.name for queue in facts.snapshot.queues}
    for subject, queue, where, pods in _workloads(facts) if names else ():
        if queue not in names:
            yield Finding(
                subject,
                f"{subject} is submitted to queue '{queue}', which is not there.",
                (where, f"Queues: {first_of(sorted(names))}"),
                about=pods,
                reach=pods,
                remedy=_of_stack(facts, queue),
            )


def _parents(facts: Facts) -> Iterator[Finding]:
    parents = {queue.parent for queue in facts.snapshot.queues if queue.parent}
    for subject, queue, where, pods in _workloads(facts):
        if queue in parents:
            leaves = sorted(child.name for child in facts.snapshot.queues if child.parent == queue)
            yield Finding(
                subject,
                f"{subject} is submitted to queue '{queue}', which has queues below it: KAI runs pods in leaves only.",
                (where, f"queues below '{queue}': {first_of(leaves)}"),
                about=pods,
                reach=pods,
            )


def _by_reason(facts: Facts, reason: str, what: str) -> Iterator[Finding]:
    for group, pods in _waiting_groups(facts):
        explanations = [
            explanation for condition in group.scheduling_conditions for explanation in condition.explanations
        ]
        where = f"PodGroup {group.namespace}/{group.name}"
        for explanation in explanations:
            if explanation.reason == reason or f"Reason: {reason}" in explanation.message:
                yield Finding(
                    Subject("PodGroup", group.name, group.namespace, group.annotations),
                    f"{where} waits in queue '{group.queue}': {what}",
                    (f"condition of {where}: {explanation.message or reason}", *_queue_evidence(facts, group.queue)),
                    about=pods,
                    reach=pods,
                )
                break


def _queue_evidence(facts: Facts, name: str) -> Iterator[str]:
    for queue in facts.snapshot.queues:
        if queue.name == name:
            used = queue.allocated.get("nvidia.com/gpu", "0")
            yield f"Queue {name}: GPU quota {queue.gpu.quota:g}, limit {queue.gpu.limit:g}, in use {used}"


def _over_quota(facts: Facts) -> Iterator[Finding]:
    yield from _by_reason(
        facts, "NonPreemptibleOverQuota", "it may not be interrupted, and would use more than its quota."
    )


def _over_limit(facts: Facts) -> Iterator[Finding]:
    yield from _by_reason(facts, "OverLimit", "the queue's limit is used up.")


def _closed(facts: Facts) -> Iterator[Finding]:
    for queue in facts.snapshot.queues:
        resources = {"gpu": queue.gpu, "cpu": queue.cpu, "memory": queue.memory}
        closed = {name: "limit" in said.model_fields_set for name, said in resources.items() if not said.limit}
        if closed:
            yield Finding(
                _subject(queue),
                f"queue '{queue.name}' has a limit of 0 for {', '.join(closed)}: no pod in it that asks for it runs.",
                tuple(
                    f"Queue {queue.name}: spec.resources.{name}.limit {'is 0' if is_said else 'is missing, which is 0'}"
                    for name, is_said in closed.items()
                ),
                about=frozenset({of_queue(queue.name)}),
                reach=frozenset({of_queue(queue.name)}),
            )


def _overpromised(facts: Facts) -> Iterator[Finding]:
    children: dict[str, list[Queue]] = defaultdict(list)
    for queue in facts.snapshot.queues:
        children[queue.parent].append(queue)
    for queue in facts.snapshot.queues:
        below = [child for child in children[queue.name] if child.gpu.quota > 0]
        promised = sum(child.gpu.quota for child in below)
        if queue.gpu.quota != -1 and 0 < queue.gpu.quota < promised:
            yield Finding(
                _subject(queue),
                f"the queues below '{queue.name}' are promised {promised:g} GPUs, and it has "
                f"{queue.gpu.quota:g} itself.",
                tuple(f"Queue {child.name}: GPU quota {child.gpu.quota:g}" for child in below),
            )


CHECKS = (
    Check(
        "KA0601",
        "There is no queue",
        _no_queue,
        needs=_WITH_QUEUES | {Source.DEPLOYMENTS, Source.CONFIG},
        symptom="Every pod for KAI stays Pending.",
        cause="The chart makes its default queues at the first install only; they were deleted, or never made.",
        remedy="Set kai.default_queue or kai.queues in the stack, and run `kai-anywhere repair --stack {stack}`.",
        source="KAI v0.17.0 deployments/kai-scheduler/templates/default-queue.yaml",
        explains={"KA0105", "KA0603", "KA0705", "KA0706"},
    ),
    Check(
        "KA0602",
        "A queue's parent is missing",
        _orphans,
        needs=_WITH_QUEUES,
        symptom="The queue is ignored, and its pods stay Pending.",
        cause="The parent was deleted after the queue was made, or while the queue controller did not run.",
        remedy="Make the parent again, or give the queue another one: kubectl edit queue {name}",
        source="KAI v0.17.0 pkg/scheduler/cache/cluster_info",
        explains={"KA0603", "KA0705", "KA0706"},
    ),
    Check(
        "KA0609",
        "A queue is below itself",
        _circles,
        needs=_WITH_QUEUES,
        symptom="KAI's scheduler stops at the first pod that is submitted to such a queue, or to one below it: no pod "
        "is placed any more, in any queue, and nothing says why.",
        cause="The parents of some queues lead back to them. KAI's admission lets that pass, and its scheduler goes "
        "from parent to parent without an end.",
        remedy="Give one of them another parent, or none: kubectl edit queue {name}. Then restart the scheduler, which "
        "may not come back by itself: kubectl --namespace {kai_namespace} rollout restart "
        "deployment/{scheduler}-default",
        source="KAI v0.17.0 pkg/scheduler/plugins/proportion/proportion.go, pkg/admission/webhook/queuehooks; tried",
        explains={"KA0604", "KA0705", "KA0706"},
    ),
    Check(
        "KA0603",
        "A workload is submitted to a queue that is not there",
        _unknown,
        needs=_WITH_QUEUES | {Source.PODS, Source.POD_GROUPS},
        symptom="The pod stays Pending; the PodGroup says `Queue '...' does not exist`.",
        cause=f"The label `{QUEUE_LABEL}` names no queue. Without it KAI takes `{NO_QUEUE}`.",
        remedy=f"Correct the label {QUEUE_LABEL} of the workload, or add the queue under kai.queues of the stack.",
        source="KAI v0.17.0 pkg/podgrouper/podgrouper/plugins/defaultgrouper; QueueDoesNotExist",
        explains={"KA0705", "KA0706"},
    ),
    Check(
        "KA0604",
        "A workload is submitted to a queue above others",
        _parents,
        needs=_WITH_QUEUES | {Source.PODS, Source.POD_GROUPS},
        symptom="The pod stays Pending.",
        cause="KAI runs pods in leaves of the tree of queues.",
        remedy=f"Name one of the queues below in the label {QUEUE_LABEL}.",
        source="KAI v0.17.0 pkg/scheduler/actions/utils",
        explains={"KA0705", "KA0706"},
    ),
    Check(
        "KA0607",
        "A queue may use nothing of a resource",
        _closed,
        severity=Severity.WARNING,
        needs=_WITH_QUEUES,
        symptom="Pods in the queue stay Pending with `OverLimit`.",
        cause="A limit of it, of GPUs, cores or memory, is 0, or is missing: the same to KAI. -1 stands for no limit.",
        remedy="Set each limit in the stack, or -1: kubectl edit queue {name}",
        source="KAI v0.17.0 pkg/apis/scheduling/v2/resources.go, docs/queues",
        explains={"KA0606"},
    ),
    Check(
        "KA0605",
        "A workload that may not be interrupted is over its quota",
        _over_quota,
        severity=Severity.WARNING,
        needs=_WITH_QUEUES | {Source.PODS, Source.POD_GROUPS},
        symptom="Pending with `NonPreemptibleOverQuota`, while GPUs are free.",
        cause="Workloads of priority 100 and more (`build`, `inference`) may not be interrupted, and get their queue's "
        "quota only; the default queue's is 0.",
        remedy="Give the queue a GPU quota, or the workload a PriorityClass below 100, such as train.",
        source="KAI v0.17.0 pkg/scheduler/plugins/proportion/capacity_policy",
        explains={"KA0705"},
    ),
    Check(
        "KA0606",
        "A queue's limit is used up",
        _over_limit,
        severity=Severity.WARNING,
        needs=_WITH_QUEUES | {Source.PODS, Source.POD_GROUPS},
        symptom="Pending with `OverLimit`, while GPUs are free.",
        cause="The queue, or one above it, may use no more.",
        remedy="Wait, or raise the queue's limit in the stack.",
        source="KAI v0.17.0 pkg/apis/scheduling/v2alpha2/podgroup_types.go",
        explains={"KA0705"},
    ),
    Check(
        "KA0608",
        "Queues are promised more than the queue above them",
        _overpromised,
        severity=Severity.WARNING,
        needs=_WITH_QUEUES,
        symptom="A queue does not get its quota although nobody else uses more than theirs.",
        cause="KAI divides a queue's own share among the queues below it.",
        remedy="Raise the quota above, or lower those below.",
        source="KAI v0.17.0 pkg/scheduler/plugins/proportion/resource_division",
    ),
)
