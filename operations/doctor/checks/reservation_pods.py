"""Checks of reservation pods, each of which finds out a GPU's UUID: those that do not, and why."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from cluster.access.answers.pods import Pod
from cluster.pending import kubectl_says
from gpu_sharing.request import gpu_groups
from manifests.reservation_index import WRITTEN_BY_KAI
from operations.doctor.check import Check, Finding, Subject, of_group, of_node, of_pod
from operations.doctor.checks.binding import UNBOUND
from operations.doctor.facts import NOT_ADMITTED, Facts, Source

_LIBRARY = re.compile("ERROR_LIBRARY_NOT_FOUND")
_DRIVER = re.compile("Driver Not Loaded|Insufficient Permissions|NVML: Unknown Error|found 0 devices, 1 was expected")
_MISMATCH = re.compile("Driver/library version mismatch")
_COUNT = re.compile(r"found (?!0 )\d+ devices, 1 was expected")
_CANT_PULL = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName"}
_ANSWERS_WITHIN = timedelta(seconds=20)
"""One that runs answers in a second or two. KAI deletes one that does not after 40 s and makes another: a longer
wait never finds any (KAI v0.17.0 pkg/binder/binding/resourcereservation, allocationTimeout)."""


def pod_finding(pod: Pod, what: str, *evidence: str) -> Finding:
    """What is wrong with a reservation pod, or with a pod of its GPU group: it concerns the pod's node and groups."""
    reach = frozenset({of_node(pod.node), *map(of_group, gpu_groups(pod.as_manifest()))})
    return Finding(
        Subject("Pod", pod.name, pod.namespace, pod.annotations),
        what,
        evidence,
        about=reach | {of_pod(pod.namespace, pod.name)},
        reach=reach,
    )


def _silent(facts: Facts) -> Iterator[tuple[Pod, str]]:
    """Reservation pods that do not say their GPU, and what they say instead."""
    for pod in facts.reservation_pods:
        if pod.annotations.get(WRITTEN_BY_KAI) or pod.deleted:
            continue
        if pod.reason == NOT_ADMITTED or _pulls(pod) is not None:
            continue
        states = [state for status in pod.statuses for state in status.state.values()]
        texts = [facts.logs.get(pod.name, ""), *(state.message for state in states), pod.message]
        output = "\n".join(filter(None, texts))
        ended = any(status.restarts or "terminated" in status.state for status in pod.statuses)
        if ended or _is_explained(output) or not facts.is_young(pod, _ANSWERS_WITHIN):
            yield pod, output


def _by_log(line_of: Callable[[str], str | None], what: str) -> Callable[[Facts], Iterator[Finding]]:
    def judge(facts: Facts) -> Iterator[Finding]:
        for pod, output in _silent(facts):
            if (line := line_of(output)) is not None:
                yield pod_finding(
                    pod,
                    f"reservation pod {pod.name} on node '{pod.node}' {what}",
                    f"log: {line}",
                    f"runtimeClassName: {pod.runtime_class or 'none'}",
                )

    return judge


def _line(text: re.Pattern[str]) -> Callable[[str], str | None]:
    return lambda output: next((line.strip() for line in output.splitlines() if text.search(line)), None)


def _is_explained(output: str) -> bool:
    return any(text.search(output) for text in (_LIBRARY, _DRIVER, _MISMATCH, _COUNT))


def _no_uuid(facts: Facts) -> Iterator[Finding]:
    for pod, output in _silent(facts):
        if not _is_explained(output):
            last = output.splitlines()[-3:]
            yield pod_finding(
                pod,
                f"reservation pod {pod.name} on node '{pod.node}' does not say its GPU ({kubectl_says(pod)}).",
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
        if (failure := _pulls(pod)) is not None:
            yield pod_finding(pod, f"reservation pod {pod.name} on node '{pod.node}' can't pull its image.", failure)


def _host_path(facts: Facts) -> Iterator[Finding]:
    for pod in facts.reservation_pods:
        messages = [
            message
            for message in facts.events_of("Pod", pod.namespace, pod.name)
            if "hostPath type check failed" in message
        ]
        if messages:
            yield pod_finding(
                pod, f"node '{pod.node}' does not have a folder that its reservation pods mount.", *messages
            )


def _unexpected(facts: Facts) -> Iterator[Finding]:
    for pod in facts.reservation_pods:
        if pod.reason == NOT_ADMITTED:
            yield pod_finding(
                pod,
                f"the kubelet of node '{pod.node}' refused reservation pod {pod.name}.",
                f"Pod {pod.namespace}/{pod.name}: {pod.reason}: {pod.message}",
            )


reservation_check = partial(Check, needs={Source.PODS, Source.CONFIG})

CHECKS = (
    reservation_check(
        "KA0504",
        "A reservation pod finds no NVML",
        _by_log(_line(_LIBRARY), "finds no NVML."),
        symptom="The log says `unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND`; the workload stays Pending.",
        cause="The pod does not run under NVIDIA's runtime, the host has no driver, or, on a Jetson, the pod gets no "
        "driver libraries from it.",
        remedy="Give reservation pods RuntimeClass nvidia (KA0516). Where they have it, look at the host: nvidia-smi, "
        "and whether the runtime `nvidia` is NVIDIA's. On a Jetson, list the node under platform.tegra_nodes and run "
        "`pulumi up`; a toolkit folder of the GPU Operator at /usr/local/nvidia/toolkit there must go.",
        source="KAI #261, #340, #349, #522; v0.17.0 pkg/resourcereservation/discovery",
        explains=UNBOUND,
    ),
    reservation_check(
        "KA0505",
        "A reservation pod can't open its GPU",
        _by_log(_line(_DRIVER), "finds NVML, and can't open its GPU."),
        symptom="The log says `unable to initialize NVML:` and `Driver Not Loaded`, `Insufficient Permissions` or "
        "`Unknown Error`, or it says `found 0 devices, 1 was expected`.",
        cause="The libraries are there, and the device files are not, or the pod may not open them: on a Jetson they "
        "are of root and group video. `Unknown Error`: its container's device cgroup lacks them. `found 0 devices`: "
        "only the GPU's own is missing or closed, or device plugin and runtime do not agree on its name.",
        remedy="On a Jetson, raise reservation.privilege (`make probe-privilege` asks the board how far). Elsewhere "
        "load the driver on the host (nvidia-smi), and give reservation pods RuntimeClass nvidia (KA0516).",
        source="KAI v0.17.0 pkg/resourcereservation/discovery; NVML of driver 580.159.04 in containers of runc",
        explains=UNBOUND,
    ),
    reservation_check(
        "KA0506",
        "A reservation pod sees more than one GPU",
        _by_log(_line(_COUNT), "does not see exactly one GPU."),
        symptom="The log says `found N devices, 1 was expected`.",
        cause="The pod is privileged, or gets all GPUs by its environment: then it sees every GPU of the node.",
        remedy="Take global privilege back (reservationContainerSecurityContext, a patched binder, another admission "
        "webhook): only single-GPU Jetsons may have it, per node.",
        source="KAI v0.17.0 pkg/resourcereservation/discovery/discovery.go",
        explains=UNBOUND,
    ),
    reservation_check(
        "KA0507",
        "Driver and library differ",
        _by_log(_line(_MISMATCH), "finds a library that is not the driver's."),
        symptom="`Driver/library version mismatch` in reservation pods, in nvidia-smi, and where containers start.",
        cause="The driver's packages were upgraded and the old module is still loaded.",
        remedy="Restart the node; then hold the driver's packages back.",
        source="NVML: nvmlInit, error 18",
        explains=UNBOUND | {"KA0711"},
    ),
    reservation_check(
        "KA0517",
        "The reservation image can't be pulled",
        _image,
        symptom="Reservation pods are in `ImagePullBackOff`; after 40 s KAI deletes them and tries again.",
        cause="Registry, tag or pull secret is wrong, or the image is not mirrored. The code's own name of the image "
        "is resource-reservation, the published one is resourcereservation.",
        remedy="Correct kai.images in the stack: `kai-anywhere images` lists what is needed. A slow first pull needs "
        "a longer allocationTimeout in KAI's Config.",
        source="KAI v0.17.0 pkg/apis/kai/v1/binder/binder.go",
        explains=UNBOUND,
    ),
    reservation_check(
        "KA0518",
        "A node lacks a folder that reservation pods mount",
        _host_path,
        needs={Source.PODS, Source.CONFIG, Source.EVENTS},
        symptom="The pod stays in ContainerCreating: `hostPath type check failed`.",
        cause="The driver's libraries are elsewhere on that Jetson than the stack says.",
        remedy="Set driver_library_paths of the node in the stack.",
        source="Kubernetes hostPath; this program: manifests/reservation.py",
        explains=UNBOUND | {"KA0508"},
    ),
    reservation_check(
        "KA0509",
        "A kubelet refuses reservation pods",
        _unexpected,
        symptom="Reservation pods end in `UnexpectedAdmissionError`, again and again.",
        cause="KAI's and the kubelet's books of the node's GPUs differ: something took a GPU past KAI, or the device "
        "plugin was restarted.",
        remedy="Delete pods that take GPUs past KAI on that node, then the failed reservation pods: kubectl "
        "--namespace {namespace} delete pod {name}",
        source="KAI #848, #1673",
        explains=UNBOUND,
    ),
    reservation_check(
        "KA0508",
        "A reservation pod does not say its GPU",
        _no_uuid,
        symptom="Pods with a fraction stay Pending; the reservation pod has no UUID.",
        cause="The pod ends or hangs before it knows its GPU, or can't write its annotation; log and events say why.",
        remedy="kubectl --namespace {namespace} logs {name}. KAI deletes the pod after 40 s: raise allocationTimeout "
        "in its Config to look longer.",
        source="KAI v0.17.0 cmd/resourcereservation/app/app.go",
        explains=UNBOUND,
    ),
)
