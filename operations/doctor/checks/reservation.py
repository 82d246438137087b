"""Checks of KAI's reservation pods, which find out a GPU's UUID and hold the GPU, and of what binds pods to them."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cluster.answers import Pod
from manifests import reservation, reservation_guard, reservation_index
from manifests.admission import RESERVATION_WEBHOOK
from manifests.objects import manifests
from manifests.ownership import key
from manifests.reservation_index import WRITTEN_BY_KAI
from operations.doctor.check import Category, Finding, Severity, Subject, check, of_group, of_node, of_pod
from operations.doctor.facts import GPU_GROUP, Facts, Source

_LIBRARY = re.compile("ERROR_LIBRARY_NOT_FOUND")
_DRIVER = re.compile("Driver Not Loaded|Insufficient Permissions")
_MISMATCH = re.compile("Driver/library version mismatch")
_COUNT = re.compile(r"found \d+ devices, 1 was expected")
_TIMED_OUT = re.compile(
    r"failed waiting for GPU reservation pod to allocate|Reached timeout while waiting for GPU reservation pod|"
    r"failed to find annotation on reservation pod"
)
_REFUSED = re.compile(
    r"is forbidden|denied the request|denied request|violates PodSecurity|RuntimeClass .* not found|"
    r"failed calling webhook"
)
_CANT_PULL = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName"}
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_BINDING = frozenset({"KA0513", "KA0514", "KA0705"})


def _pod_finding(pod: Pod, what: str, *evidence: str) -> Finding:
    about = {of_pod(pod.namespace, pod.name), of_node(pod.node), of_group(pod.labels.get(GPU_GROUP, ""))}
    return Finding(
        Subject("Pod", pod.name, pod.namespace, pod.annotations),
        what,
        evidence,
        about=frozenset(about),
        reach=frozenset({of_node(pod.node), of_group(pod.labels.get(GPU_GROUP, ""))}),
    )


def _silent(facts: Facts) -> Iterator[tuple[Pod, str]]:
    """Reservation pods that do not say their GPU, and what they say instead."""
    for pod in facts.reservation_pods:
        if pod.annotations.get(WRITTEN_BY_KAI) or pod.deleted or facts.is_young(pod):
            continue
        if pod.reason == "UnexpectedAdmissionError" or _pulls(pod) is not None:
            continue
        states = [state for status in pod.statuses for state in status.state.values()]
        said = [facts.logs.get(pod.name, ""), *(state.message for state in states), pod.message]
        yield pod, "\n".join(filter(None, said))


def _by_log(wanted: Callable[[str], str | None], what: str) -> Callable[[Facts], Iterator[Finding]]:
    def judge(facts: Facts) -> Iterator[Finding]:
        for pod, said in _silent(facts):
            if (line := wanted(said)) is not None:
                yield _pod_finding(
                    pod,
                    f"reservation pod {pod.name} on node '{pod.node}' {what}",
                    f"log: {line}",
                    f"runtimeClassName: {pod.runtime_class or 'none'}",
                )

    return judge


def _line(text: re.Pattern[str]) -> Callable[[str], str | None]:
    return lambda said: next((line.strip() for line in said.splitlines() if text.search(line)), None)


def _known(said: str) -> bool:
    return any(text.search(said) for text in (_LIBRARY, _DRIVER, _MISMATCH, _COUNT))


def _no_uuid(facts: Facts) -> Iterator[Finding]:
    for pod, said in _silent(facts):
        if not _known(said):
            last = said.splitlines()[-3:]
            yield _pod_finding(
                pod,
                f"reservation pod {pod.name} on node '{pod.node}' does not say its GPU ({pod.phase or 'no phase'}).",
                f"Pod {pod.namespace}/{pod.name}: no annotation {WRITTEN_BY_KAI}",
                *(f"log: {line.strip()}" for line in last),
                *facts.events_of("Pod", pod.namespace, pod.name),
            )


def _pulls(pod: Pod) -> str | None:
    for status in pod.statuses:
        waits = status.state.get("waiting")
        if waits is not None and waits.reason in _CANT_PULL:
            return f"container {status.name}: {waits.reason}: {waits.message}"
    return None


def _image(facts: Facts) -> Iterator[Finding]:
    for pod in facts.reservation_pods:
        if (said := _pulls(pod)) is not None:
            yield _pod_finding(pod, f"reservation pod {pod.name} on node '{pod.node}' can't pull its image.", said)


def _host_path(facts: Facts) -> Iterator[Finding]:
    for pod in facts.reservation_pods:
        said = [
            each for each in facts.events_of("Pod", pod.namespace, pod.name) if "hostPath type check failed" in each
        ]
        if said:
            yield _pod_finding(pod, f"node '{pod.node}' does not have a folder that its reservation pods mount.", *said)


def _unexpected(facts: Facts) -> Iterator[Finding]:
    for pod in facts.reservation_pods:
        if pod.reason == "UnexpectedAdmissionError":
            yield _pod_finding(
                pod,
                f"the kubelet of node '{pod.node}' refused reservation pod {pod.name}.",
                f"Pod {pod.namespace}/{pod.name}: {pod.reason}: {pod.message}",
            )


def _stale(facts: Facts) -> Iterator[Finding]:
    place = {pod.namespace for pod in facts.reservation_pods}
    used = {
        value
        for pod in facts.snapshot.pods
        if pod.namespace not in place and not pod.ended
        for name, value in pod.labels.items()
        if name == GPU_GROUP or name.startswith(f"{GPU_GROUP}/")
    }
    asked = {group for request in facts.snapshot.bind_requests for group in request.groups}
    for pod in facts.reservation_pods:
        group = pod.labels[GPU_GROUP]
        if group not in used | asked and not facts.is_young(pod) and not pod.deleted:
            yield _pod_finding(
                pod,
                f"reservation pod {pod.name} holds a GPU of node '{pod.node}' for nobody.",
                f"label {GPU_GROUP}={group}: no pod and no BindRequest has it",
            )


def _duplicates(facts: Facts) -> Iterator[Finding]:
    by_group: dict[str, list[Pod]] = defaultdict(list)
    for pod in facts.reservation_pods:
        if not pod.ended and not pod.deleted:
            by_group[pod.labels[GPU_GROUP]].append(pod)
    for group, pods in sorted(by_group.items()):
        if len(pods) > 1:
            yield _pod_finding(
                pods[1],
                f"GPU group {group} has {len(pods)} reservation pods: each holds a GPU.",
                *(f"Pod {pod.namespace}/{pod.name} on {pod.node}" for pod in pods),
            )


def _without_pod(facts: Facts) -> Iterator[Finding]:
    place = {pod.namespace for pod in facts.reservation_pods} | {reservation.NAMESPACE}
    groups = {pod.labels[GPU_GROUP] for pod in facts.reservation_pods}
    for pod in facts.snapshot.pods:
        group = pod.labels.get(GPU_GROUP)
        if group is None or pod.namespace in place or pod.ended or not pod.node or pod.deleted or facts.is_young(pod):
            continue
        if group not in groups:
            yield _pod_finding(
                pod,
                f"pod {pod.namespace}/{pod.name} shares a GPU of node '{pod.node}' that no reservation pod holds.",
                f"label {GPU_GROUP}={group}: no reservation pod in namespace {reservation.NAMESPACE} has it",
            )


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


def _missing(facts: Facts, wanted: Iterable[str]) -> list[str]:
    return sorted(set(wanted) & (facts.missing or frozenset()))


def _overrides(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or settings.overridden_platform is None:
        return
    objects = manifests(reservation.objects(settings) | reservation_index.objects(settings))
    wanted = [key(each) for each in objects.values() if each["kind"] != "Namespace"]
    for name in _missing(facts, [*wanted, f"MutatingWebhookConfiguration/{RESERVATION_WEBHOOK}"]):
        kind, *rest = name.split("/")
        yield Finding(
            Subject(kind, rest[-1]),
            f"{kind} {rest[-1]} is missing: reservation pods on Jetsons get no libraries and no devices.",
            (f"{kind} {rest[-1]}: not found", f"Jetsons: {', '.join(sorted(settings.platform.jetsons))}"),
        )


def _guard(facts: Facts) -> Iterator[Finding]:
    if facts.settings is None:
        return
    for name in _missing(facts, map(key, manifests(reservation_guard.objects(facts.settings)).values())):
        kind, *rest = name.split("/")
        yield Finding(
            Subject(kind, rest[-1]),
            f"{kind} {rest[-1]} is missing: whoever may make pods in {reservation.NAMESPACE} gets a Jetson's "
            "privileges.",
            (f"{kind} {rest[-1]}: not found",),
        )


def _pod_security(facts: Facts) -> Iterator[Finding]:
    if facts.settings is None:
        return
    wanted = reservation.reservation_namespace(facts.settings)["metadata"]["labels"][_POD_SECURITY]
    for namespace in facts.namespaces:
        level = namespace.labels.get(_POD_SECURITY)
        if namespace.name == reservation.NAMESPACE and wanted == "privileged" and level not in {None, wanted}:
            yield Finding(
                Subject("Namespace", namespace.name, annotations=namespace.annotations),
                f"namespace '{namespace.name}' enforces the pod-security level '{level}', and reservation pods on "
                f"Jetsons need '{wanted}'.",
                (f"label {_POD_SECURITY}={level}",),
            )


def _no_class(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    if config is None or config.reservation.get("runtimeClassName") or any(each.nri for each in facts.cluster_policies):
        return
    overridden = facts.settings is not None and facts.settings.overridden_platform is not None
    others = [
        node.name
        for node in facts.kai_gpu_nodes
        if not (overridden and facts.settings and node.name in facts.settings.platform.jetsons)
    ]
    if others:
        yield Finding(
            Subject("Config", config.name, annotations=config.annotations),
            "KAI gives its reservation pods no RuntimeClass.",
            ("Config kai-config: spec.binder.resourceReservation.runtimeClassName is empty",),
            reach=frozenset(map(of_node, others)),
        )


_check = partial(check, Category.RESERVATION, sees=(Source.PODS, Source.CONFIG))


CHECKS = (
    _check(
        "KA0501",
        "The overrides of a Jetson's reservation pods are missing",
        _overrides,
        sees=(Source.STACK,),
        symptom="Reservation pods on Jetsons end with `ERROR_LIBRARY_NOT_FOUND` or `Driver Not Loaded`.",
        cause="The admission policy, its binding or the webhook that adds libraries and devices was deleted.",
        remedy="Put them back: `kai-anywhere repair`. Pods that are there already do not change: KAI makes new ones.",
        source="this program: manifests/reservation.py",
        explains=_BINDING | {"KA0105", "KA0504", "KA0505", "KA0508"},
    ),
    _check(
        "KA0502",
        "The guard of the reservation namespace is missing",
        _guard,
        sees=(Source.STACK,),
        symptom="Nothing fails. Whoever may create pods in the namespace of the reservation pods can be root on "
        "a Jetson.",
        cause="The ValidatingAdmissionPolicy or its binding was deleted.",
        remedy="Put it back: `kai-anywhere repair`.",
        source="this program: manifests/reservation_guard.py",
        explains=frozenset({"KA0105"}),
    ),
    _check(
        "KA0503",
        "Pod Security refuses a Jetson's reservation pods",
        _pod_security,
        sees=(Source.NAMESPACES,),
        symptom="BindRequests fail with `violates PodSecurity`.",
        cause=f"The label `{_POD_SECURITY}` of the reservation pods' namespace was changed.",
        remedy="Put it back: `kai-anywhere repair`.",
        source="Kubernetes Pod Security; this program: manifests/reservation.py",
        explains=_BINDING | {"KA0512"},
    ),
    _check(
        "KA0516",
        "Reservation pods get no RuntimeClass",
        _no_class,
        sees=(Source.CONFIG, Source.NODES, Source.SHARDS, Source.CLUSTER_POLICIES),
        severity=Severity.WARNING,
        symptom="Reservation pods end with `ERROR_LIBRARY_NOT_FOUND`, unless NVIDIA's runtime is the node's default.",
        cause="From KAI 0.16 on the RuntimeClass of reservation pods is empty by default. The path that "
        "upstream's docs "
        "name, binder.resourceReservation.runtimeClassName, is read by no template.",
        remedy="Set binder.runtimeClassName=nvidia in KAI's values; this stack does.",
        source="KAI v0.17.0 docs/gpu-sharing/README.md; #349, #360, #1543",
        explains=_BINDING | {"KA0504"},
    ),
    _check(
        "KA0504",
        "A reservation pod finds no NVML",
        _by_log(_line(_LIBRARY), "finds no NVML."),
        symptom="The log says `unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND`; the workload stays Pending.",
        cause="The pod does not run under NVIDIA's runtime, or, on a Jetson, gets no driver libraries from it.",
        remedy="Give reservation pods RuntimeClass nvidia (KA0516). On a Jetson, list the node under "
        "platform.tegra_nodes "
        "and run `pulumi up`; a toolkit folder of the GPU Operator at /usr/local/nvidia/toolkit there must go.",
        source="KAI #261, #340, #349, #522; v0.17.0 pkg/resourcereservation/discovery",
        explains=_BINDING,
    ),
    _check(
        "KA0505",
        "A reservation pod finds no driver",
        _by_log(_line(_DRIVER), "finds NVML, and no driver behind it."),
        symptom="The log says `unable to initialize NVML: Driver Not Loaded` or `Insufficient Permissions`.",
        cause="The libraries are there and the device files are not, or the pod may not open them: on a Jetson "
        "they are "
        "of root and group video.",
        remedy="On a Jetson, raise reservation.privilege (`make probe-privilege` asks the board how far). "
        "Elsewhere load the driver on the host: nvidia-smi.",
        source="KAI v0.17.0 pkg/resourcereservation/discovery; NVML's documentation",
        explains=_BINDING,
    ),
    _check(
        "KA0506",
        "A reservation pod sees more than one GPU",
        _by_log(_line(_COUNT), "does not see exactly one GPU."),
        symptom="The log says `found N devices, 1 was expected`.",
        cause="The pod is privileged, or gets all GPUs by its environment: then it sees every GPU of the node. "
        "With none, "
        "the device plugin and the runtime do not agree on names.",
        remedy="Take global privilege back (reservationContainerSecurityContext, a patched binder, another admission "
        "webhook): only single-GPU Jetsons may have it, per node.",
        source="KAI v0.17.0 pkg/resourcereservation/discovery/discovery.go",
        explains=_BINDING,
    ),
    _check(
        "KA0507",
        "Driver and library differ",
        _by_log(_line(_MISMATCH), "finds a library that is not the driver's."),
        symptom="`Driver/library version mismatch` in reservation pods, in nvidia-smi, and where containers start.",
        cause="The driver's packages were upgraded and the old module is still loaded.",
        remedy="Restart the node; then hold the driver's packages back.",
        source="NVML: nvmlInit, error 18",
        explains=_BINDING | {"KA0711"},
    ),
    _check(
        "KA0517",
        "The reservation image can't be pulled",
        _image,
        symptom="Reservation pods are in `ImagePullBackOff`; after 40 s KAI deletes them and tries again.",
        cause="Registry, tag or pull secret is wrong, or the image is not mirrored. The code's own name of the "
        "image is "
        "resource-reservation, the published one is resourcereservation.",
        remedy="Correct kai.images in the stack: `kai-anywhere images` lists what is needed. A slow first pull needs a "
        "longer allocationTimeout in KAI's Config.",
        source="KAI v0.17.0 pkg/apis/kai/v1/binder/binder.go",
        explains=_BINDING,
    ),
    _check(
        "KA0518",
        "A node lacks a folder that reservation pods mount",
        _host_path,
        sees=(Source.PODS, Source.CONFIG, Source.EVENTS),
        symptom="The pod stays in ContainerCreating: `hostPath type check failed`.",
        cause="The driver's libraries are elsewhere on that Jetson than the stack says.",
        remedy="Set driver_library_paths of the node in the stack.",
        source="Kubernetes hostPath; this program: manifests/reservation.py",
        explains=_BINDING | {"KA0508"},
    ),
    _check(
        "KA0509",
        "A kubelet refuses reservation pods",
        _unexpected,
        symptom="Reservation pods end in `UnexpectedAdmissionError`, again and again.",
        cause="KAI's and the kubelet's books of the node's GPUs differ: something took a GPU past KAI, or the device "
        "plugin was restarted.",
        remedy="Delete pods that take GPUs past KAI on that node, then the failed reservation pods: kubectl "
        "--namespace "
        "{namespace} delete pod {name}",
        source="KAI #848, #1673",
        explains=_BINDING,
    ),
    _check(
        "KA0508",
        "A reservation pod does not say its GPU",
        _no_uuid,
        symptom="Pods with a fraction stay Pending; the reservation pod has no UUID.",
        cause="The pod does not get so far, or can't write its annotation; its log and its events say why.",
        remedy="kubectl --namespace {namespace} logs {name}. KAI deletes the pod after 40 s: raise "
        "allocationTimeout in "
        "its Config to look longer.",
        source="KAI v0.17.0 cmd/resourcereservation/app/app.go",
        explains=_BINDING,
    ),
    _check(
        "KA0511",
        "A GPU group has several reservation pods",
        _duplicates,
        symptom="Fewer GPUs are free than nobody uses.",
        cause="KAI before 0.16 gave reservation pods random names and made another one at each retry.",
        remedy="Upgrade KAI. Until then delete the newer pods of the group: kubectl --namespace {namespace} delete pod "
        "{name}",
        source="KAI #1673, PR #1693",
        explains=frozenset({"KA0705"}),
    ),
    _check(
        "KA0510",
        "A reservation pod holds a GPU for nobody",
        _stale,
        severity=Severity.WARNING,
        sees=(Source.PODS, Source.CONFIG, Source.BIND_REQUESTS),
        symptom="A GPU is taken, and no workload uses it.",
        cause="The binder did not run when the last pod of the group ended, or it was restarted in between.",
        remedy="The binder removes it when it next looks at the group. Or: kubectl --namespace {namespace} delete pod "
        "{name}",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go",
        explains=frozenset({"KA0705"}),
    ),
    _check(
        "KA0515",
        "A pod shares a GPU that nobody holds",
        _without_pod,
        symptom="KAI's binder deletes the pod.",
        cause="Somebody deleted its reservation pod, or its node went away and came back.",
        remedy="Let it be made again: a Deployment or Job does so by itself. Do not delete reservation pods.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go",
    ),
    _check(
        "KA0512",
        "Reservation pods are refused",
        _unbound("KA0512", "the API server refused its reservation pod."),
        sees=(Source.PODS, Source.BIND_REQUESTS),
        symptom="BindRequests fail; there is no reservation pod to look at.",
        cause="An admission policy, a webhook, Pod Security or a missing RuntimeClass refuses the pod; the "
        "reason names "
        "it. `privileged` beside KAI's allowPrivilegeEscalation=false is refused too.",
        remedy="Do what the refusal says. If it is another policy engine, except the namespace "
        "kai-resource-reservation.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go; Kubernetes validation.go",
        explains=frozenset({"KA0705", "KA0513"}),
    ),
    _check(
        "KA0513",
        "A reservation pod was not ready in time",
        _unbound("KA0513", "its reservation pod did not say its GPU in time."),
        sees=(Source.PODS, Source.BIND_REQUESTS),
        symptom="BindRequests fail with `failed waiting for GPU reservation pod to allocate`.",
        cause="The pod fails, or its image takes longer to pull than 40 s. KAI has deleted it by now.",
        remedy="Watch the next one: kubectl --namespace kai-resource-reservation get pods --watch. Raise "
        "allocationTimeout in KAI's Config for slow pulls.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go; #261, #349",
        explains=frozenset({"KA0705"}),
    ),
    _check(
        "KA0514",
        "A pod can't be bound",
        _unbound("KA0514", "KAI's binder could not bind it."),
        sees=(Source.PODS, Source.BIND_REQUESTS),
        symptom="A BindRequest is Failed; the pod has an event `BindingError`.",
        cause="The reason says it: the API server's answer, a volume, a claim, or a limit that a plugin can't compute.",
        remedy="Do what the reason says; KAI tries again with another GPU group.",
        source="KAI v0.17.0 pkg/binder/controllers/bindrequest_controller.go; #2157",
        explains=frozenset({"KA0705"}),
    ),
)
