"""Checks of pods that have a node and a GPU group, and that KAI's binder could not bind."""

import re
from collections.abc import Callable, Iterator
from functools import partial

from operations.doctor.check import Check, Finding, Subject, of_group, of_node, of_pod
from operations.doctor.facts import Facts, Source

_TIMED_OUT = re.compile(
    r"failed waiting for GPU reservation pod to allocate|Reached timeout while waiting for GPU reservation pod|"
    r"failed to find annotation on reservation pod"
)
_REFUSED = re.compile(
    r"is forbidden|denied the request|denied request|violates PodSecurity|RuntimeClass .* not found|"
    r"failed calling webhook"
)
UNBOUND = frozenset({"KA0513", "KA0514", "KA0705"})
"""What follows where a reservation pod does not do its work."""


def _objections(facts: Facts) -> Iterator[tuple[Subject, str, str, frozenset[str], str]]:
    """Pods that the binder could not bind: the pod, its node, the reason, what it concerns, and where it stands."""
    pods = {(pod.namespace, pod.name): pod for pod in facts.snapshot.pods}
    seen = set()
    for request in facts.snapshot.bind_requests:
        if request.phase == "Failed" and request.reason:
            at = (request.namespace, request.pod)
            seen.add(at)
            annotations = request.annotations | (pods[at].annotations if at in pods else {})
            yield (
                Subject("Pod", request.pod, request.namespace, annotations),
                request.node,
                request.reason,
                frozenset({of_pod(*at), of_node(request.node), *map(of_group, request.groups)}),
                f"BindRequest {request.namespace}/{request.name} (failed {request.failed_attempts} times)",
            )
    for pod in facts.snapshot.pods:
        for condition in pod.conditions:
            at = (pod.namespace, pod.name)
            if condition.type == "PodBound" and condition.status == "False" and at not in seen and not pod.node:
                node = re.search(r" to node (\S+?):", condition.message)
                yield (
                    Subject("Pod", pod.name, pod.namespace, pod.annotations),
                    node[1] if node else "",
                    condition.message,
                    frozenset({of_pod(*at), *([of_node(node[1])] if node else [])}),
                    f"condition PodBound=False of Pod {pod.namespace}/{pod.name}",
                )


def _kind_of(reason: str) -> str:
    if _REFUSED.search(reason):
        return "KA0512"
    return "KA0513" if _TIMED_OUT.search(reason) else "KA0514"


def _unbound(code: str, what: str) -> Callable[[Facts], Iterator[Finding]]:
    def judge(facts: Facts) -> Iterator[Finding]:
        for subject, node, reason, about, where in _objections(facts):
            if _kind_of(reason) == code:
                yield Finding(
                    subject,
                    f"pod {subject.namespace}/{subject.name} was given node '{node}', and {what}",
                    (f"{where}: {reason}",),
                    about=about,
                    reach=frozenset({of_pod(subject.namespace, subject.name)}),
                )

    return judge


_check = partial(Check, needs={Source.PODS, Source.BIND_REQUESTS})

CHECKS = (
    _check(
        "KA0512",
        "Reservation pods are refused",
        _unbound("KA0512", "the API server refused its reservation pod."),
        symptom="BindRequests fail; there is no reservation pod to look at.",
        cause="An admission policy, a webhook, Pod Security or a missing RuntimeClass refuses the pod; the reason "
        "names it. `privileged` beside KAI's allowPrivilegeEscalation=false is refused too.",
        remedy="Do what the refusal says. If it is another policy engine, except the namespace "
        "{reservation_namespace}.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go; Kubernetes validation.go",
        explains={"KA0705", "KA0513"},
    ),
    _check(
        "KA0513",
        "A reservation pod was not ready in time",
        _unbound("KA0513", "its reservation pod did not say its GPU in time."),
        symptom="BindRequests fail with `failed waiting for GPU reservation pod to allocate`.",
        cause="The pod fails, or its image takes longer to pull than 40 s. KAI has deleted it by now.",
        remedy="Watch the next one: kubectl --namespace {reservation_namespace} get pods --watch. Raise "
        "allocationTimeout in KAI's Config for slow pulls.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go; #261, #349",
        explains={"KA0705"},
    ),
    _check(
        "KA0514",
        "A pod can't be bound",
        _unbound("KA0514", "KAI's binder could not bind it."),
        symptom="A BindRequest is Failed; the pod has an event `BindingError`.",
        cause="The reason says it: the API server's answer, a volume, a claim, or a limit that a plugin can't compute.",
        remedy="Do what the reason says; KAI tries again with another GPU group.",
        source="KAI v0.17.0 pkg/binder/controllers/bindrequest_controller.go; #2157",
        explains={"KA0705"},
    ),
)
