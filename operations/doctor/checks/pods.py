"""Checks of workloads: what they ask for, why they wait, and why they do not start."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cluster.access.answers.pods import Pod
from cluster.pending import kubectl_says, scheduler_says
from manifests.node_labels import GPU_MEMORY
from manifests.reservation import RUNTIME_CLASS
from operations.doctor.check import SUPPRESS, Check, Finding, Severity, Subject, of_node, of_pod, of_queue
from operations.doctor.checks.queues import queue_of
from operations.doctor.checks.workloads import ends
from operations.doctor.facts import NOT_ADMITTED, Facts, Source
from operations.doctor.requests import asks_for_share, objection_to

_NOT_SYNCED = "gpu memory count on the node was not synced"
_NAMES = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")
_NODES = 20
_AGAIN = {"CrashLoopBackOff", "Init:CrashLoopBackOff"}


def _finding(pod: Pod, what: str, *evidence: str, nodes: Iterable[str] = (), queue: str = "") -> Finding:
    about = {of_pod(pod.namespace, pod.name), *map(of_node, nodes)}
    if pod.node:
        about.add(of_node(pod.node))
    if queue:
        about.add(of_queue(queue))
    return Finding(
        Subject("Pod", pod.name, pod.namespace, pod.annotations),
        what,
        evidence,
        about=frozenset(about),
        reach=frozenset({of_pod(pod.namespace, pod.name)}),
    )


def _elsewhere(facts: Facts) -> Iterator[Finding]:
    for pod in facts.snapshot.pods:
        if asks_for_share(pod) and not pod.ended and pod.scheduler not in {facts.scheduler_name, ""}:
            yield _finding(
                pod,
                f"pod {pod.namespace}/{pod.name} asks for a part of a GPU, and its scheduler is '{pod.scheduler}'.",
                f"Pod {pod.namespace}/{pod.name}: spec.schedulerName={pod.scheduler}, "
                + ", ".join(f"{name}={value}" for name, value in pod.annotations.items() if name.startswith("gpu-")),
            )


def _refused(facts: Facts) -> Iterator[Finding]:
    for pod in facts.snapshot.pods:
        if pod.scheduler == facts.scheduler_name and not pod.ended and (objection := objection_to(pod)) is not None:
            yield _finding(
                pod,
                f"pod {pod.namespace}/{pod.name} asks for GPUs in a way that KAI refuses.",
                f"Pod {pod.namespace}/{pod.name}: {objection}",
            )


def _claims(facts: Facts) -> Iterator[Finding]:
    shared = {node.name for node in facts.kai_gpu_nodes}
    for pod in facts.snapshot.claiming:
        if pod.node in shared:
            names = ", ".join(str(claim.get("name")) for claim in pod.claims)
            yield Finding(
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                f"pod {pod.namespace}/{pod.name} has devices by DRA claims on node '{pod.node}'. If these are GPUs, "
                "this program counts them as free.",
                (f"Pod {pod.namespace}/{pod.name}: spec.resourceClaims: {names}",),
                # It is not why the pod itself does not run, where it does not.
                about=frozenset({of_node(pod.node)}),
            )


def _unexpected(facts: Facts) -> Iterator[Finding]:
    ours = {id(pod) for pod in facts.reservation_pods}
    for pod in facts.snapshot.pods:
        if pod.reason == NOT_ADMITTED and id(pod) not in ours:
            yield _finding(
                pod,
                f"the kubelet of node '{pod.node}' refused pod {pod.namespace}/{pod.name}.",
                f"Pod {pod.namespace}/{pod.name}: {pod.reason}: {pod.message}",
            )


def _scheduler_message(facts: Facts, pod: Pod) -> str:
    """Why a pod finds no place, in the scheduler's words; empty while it has said nothing."""
    return scheduler_says(pod, facts.snapshot.group_of(pod))


def _unlabelled(facts: Facts) -> Iterator[Finding]:
    unlabelled = [node.name for node in facts.kai_gpu_nodes if not node.gpus or GPU_MEMORY not in node.labels][:_NODES]
    for pod in facts.pending_of_kai:
        if _NOT_SYNCED in (message := _scheduler_message(facts, pod)):
            yield _finding(
                pod,
                f"pod {pod.namespace}/{pod.name} waits: KAI knows of no node's GPU memory for it.",
                f"condition PodScheduled=False: {message}",
                nodes=unlabelled,
                queue=queue_of(facts, pod),
            )


def _waits(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pending_of_kai:
        message = _scheduler_message(facts, pod)
        if message and _NOT_SYNCED not in message:
            named = sorted(facts.gpu_node_names & set(_NAMES.findall(message)))
            alone = facts.gpu_nodes if len(facts.gpu_nodes) == 1 else ()
            yield _finding(
                pod,
                f"pod {pod.namespace}/{pod.name} waits for resources.",
                f"condition of Pod {pod.namespace}/{pod.name}: {message}",
                nodes=named or [node.name for node in alone],
                queue=queue_of(facts, pod),
            )


def _unseen(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pending_of_kai:
        if _scheduler_message(facts, pod) or any(condition.type == "PodBound" for condition in pod.conditions):
            continue
        request = facts.snapshot.bind_request_of(pod)
        if request is not None and request.phase == "Failed":
            continue
        if request is not None:
            seen = "it has a BindRequest, and no answer to it"
        elif not pod.group:
            seen = "it has no annotation pod-group-name: KAI's pod grouper has not seen it"
        else:
            seen = f"it is in PodGroup {pod.group}, and the scheduler has said nothing about it"
        yield _finding(
            pod,
            f"no part of KAI has said anything about pod {pod.namespace}/{pod.name}, which waits.",
            f"Pod {pod.namespace}/{pod.name}: {seen}",
            *facts.events_of("Pod", pod.namespace, pod.name),
            nodes=(),
            queue=queue_of(facts, pod),
        )


_CDI = ("unresolvable CDI devices",)
_ID = ("unsupported device id",)
_RUNTIME = ('no runtime for "nvidia" is configured', 'no runtime for \\"nvidia\\" is configured')
_CGROUPS = ("expected cgroupsPath",)
_MISMATCH = ("Driver/library version mismatch",)
_KNOWN = (*_CDI, *_ID, *_RUNTIME, *_CGROUPS, *_MISMATCH, "hostPath type check failed")


def _not_starting(facts: Facts) -> Iterator[tuple[Pod, tuple[str, ...]]]:
    """Pods on a node whose containers do not start, and what is said of them."""
    for pod in facts.snapshot.pods:
        if not pod.node or pod.ended or pod.deleted:
            continue
        waits = tuple(
            f"container {status.name}: {state.reason}: {state.message}"
            for status in (*pod.init_statuses, *pod.statuses)
            for kind, state in status.state.items()
            if kind == "waiting" and state.message
        )
        evidence = (*waits, *facts.events_of("Pod", pod.namespace, pod.name))
        if evidence and (waits or pod.phase == "Pending"):
            yield pod, evidence


def _start(texts: tuple[str, ...], what: str) -> Callable[[Facts], Iterator[Finding]]:
    def judge(facts: Facts) -> Iterator[Finding]:
        for pod, evidence in _not_starting(facts):
            lines = [line for line in evidence if any(text in line for text in texts)]
            if lines:
                yield _finding(
                    pod, f"pod {pod.namespace}/{pod.name} does not start on node '{pod.node}': {what}", *lines
                )

    return judge


def _no_runtime(facts: Facts) -> Iterator[Finding]:
    """What kubelet says of a node before any pod fails there, then the pods that have."""
    handler = next(
        (runtime_class.handler for runtime_class in facts.runtime_classes if runtime_class.name == RUNTIME_CLASS), ""
    )
    for node in facts.gpu_nodes if handler else ():
        if node.lacks_runtime(handler):
            yield Finding(
                Subject("Node", node.name, annotations=node.annotations),
                f"node '{node.name}' starts no pod with RuntimeClass '{RUNTIME_CLASS}': its container runtime has no "
                f"'{handler}'.",
                (f"Node {node.name}: status.runtimeHandlers: {', '.join(sorted(node.runtimes))}",),
                about=frozenset({of_node(node.name)}),
                reach=frozenset({of_node(node.name)}),
            )
    yield from _start(_RUNTIME, f"its container runtime has no runtime '{RUNTIME_CLASS}'.")(facts)


def _other_start(facts: Facts) -> Iterator[Finding]:
    ours = {facts.kai_namespace, facts.operator_namespace, *(pod.namespace for pod in facts.reservation_pods)}
    for pod, evidence in _not_starting(facts):
        of_gpu = pod.scheduler == facts.scheduler_name or pod.gpus or pod.time_slices or asks_for_share(pod)
        if of_gpu and pod.namespace not in ours and not any(text in line for text in _KNOWN for line in evidence):
            does = "ends again and again" if kubectl_says(pod) in _AGAIN else "does not start"
            what = f"pod {pod.namespace}/{pod.name} {does} on node '{pod.node}'."
            yield _finding(pod, what, *evidence, *ends(pod))


_check = partial(Check, needs={Source.PODS, Source.EVENTS})


_WAITING = {Source.PODS, Source.POD_GROUPS, Source.CONFIG}

CHECKS = (
    _check(
        "KA0701",
        "A pod asks KAI for a fraction, and another scheduler places it",
        _elsewhere,
        needs={Source.PODS, Source.CONFIG},
        symptom="The pod runs without a GPU, or with one that KAI does not know of.",
        cause="The annotation is KAI's; `spec.schedulerName` is not `kai-scheduler`, so nobody reads it.",
        remedy="Set spec.schedulerName: {scheduler} in the workload's pod template.",
        source="KAI v0.17.0 pkg/admission: matchConditions on schedulerName",
        explains=("KA0712",),
    ),
    _check(
        "KA0702",
        "A pod asks for GPUs in a way that KAI refuses",
        _refused,
        needs={Source.PODS, Source.CONFIG},
        symptom="The pod is refused at creation; made while KAI's admission did not run, it stays Pending or "
        "gets no GPU.",
        cause="A fraction together with `nvidia.com/gpu`, a value with a unit, or a number out of range.",
        remedy="Correct the workload as the evidence says.",
        source="KAI v0.17.0 pkg/binder/plugins/gpusharing/gpu-request/gpu_request_validator.go",
        explains=("KA0705", "KA0706"),
    ),
    _check(
        "KA0703",
        "A kubelet refuses a pod",
        _unexpected,
        needs={Source.PODS, Source.CONFIG},
        symptom="The pod ends in `UnexpectedAdmissionError`.",
        cause="The kubelet has no GPU left for it: KAI's books and the kubelet's differ, or the device plugin was "
        "restarted.",
        remedy="Delete the pod, and pods that take GPUs past KAI on that node: kubectl --namespace {namespace} "
        "delete pod "
        "{name}",
        source="KAI #848",
    ),
    _check(
        "KA0713",
        "A pod has devices by DRA claims on a node whose GPUs KAI shares",
        _claims,
        severity=Severity.WARNING,
        needs={Source.PODS, Source.NODES, Source.SHARDS, Source.CONFIG},
        symptom="`status` and `plan` call a GPU free that a claim has; pods are refused by the kubelet, or run out of "
        "memory.",
        cause="NVIDIA's DRA driver and its device plugin give away the same GPUs, and neither knows of the other. What "
        "a claim has is not looked at here: it may be something else than a GPU.",
        remedy="If it is a GPU, keep DRA's GPUs on nodes of their own. Else annotate the pod: kubectl --namespace "
        f"{{namespace}} annotate pod {{name}} {SUPPRESS}=KA0713",
        source="Kubernetes: Dynamic Resource Allocation; NVIDIA aicr #332",
    ),
    _check(
        "KA0704",
        "A pod waits for a node that says its GPU's memory",
        _unlabelled,
        needs=_WAITING,
        symptom="`node is not a gpu node or the gpu memory count on the node was not synced yet`.",
        cause="No node that the pod accepts has both a GPU and the label `nvidia.com/gpu.memory`.",
        remedy="Give the nodes their label (KA0404).",
        source="KAI v0.17.0 pkg/scheduler/plugins/predicates/predicates.go; #256, #257",
    ),
    _check(
        "KA0706",
        "KAI says nothing about a pod that waits",
        _unseen,
        needs={*_WAITING, Source.BIND_REQUESTS},
        symptom="The pod stays Pending without a condition and without an event.",
        cause="One of KAI's parts does not do its work: the pod grouper (no PodGroup), the scheduler (no word), or the "
        "binder (no answer to the BindRequest).",
        remedy="Look at that part's log: kubectl --namespace {kai_namespace} logs deployment/pod-grouper, "
        "deployment/{scheduler}-default or deployment/binder.",
        source="KAI v0.17.0 pkg/podgrouper, pkg/scheduler, pkg/binder",
    ),
    _check(
        "KA0707",
        "A GPU has no CDI name on its node",
        _start(_CDI, "the GPU's CDI name is not known there."),
        symptom="`unresolvable CDI devices` where the container is created.",
        cause="KAI writes `k8s.device-plugin.nvidia.com/gpu=UUID`, and no CDI specification on the node has it: on a "
        "Jetson, with containerd before 1.7, or with CDI off in the operator.",
        remedy="On Jetsons keep reservation.overrides, which tells workloads index 0. Elsewhere let "
        "kai.cdi_enabled and "
        "gpu_operator.cdi say the same.",
        source="NVIDIA Container Toolkit #1239, #1895; kubeedge #6425",
        explains=("KA0712",),
    ),
    _check(
        "KA0708",
        "The container toolkit does not know a GPU's name",
        _start(_ID, "the container toolkit does not take the GPU's name."),
        symptom="`unsupported device id: GPU-...` where the container is created, on a Jetson.",
        cause="From 1.19 on the toolkit takes only `all` and `0` on boards with one GPU; KAI writes the UUID.",
        remedy="Keep reservation.overrides: the policy kai-anywhere-reservation-index tells workloads index 0.",
        source="NVIDIA Container Toolkit v1.20.0 pkg/nvcdi/lib-csv.go; PR #1464",
        explains=("KA0712",),
    ),
    _check(
        "KA0709",
        "A node's container runtime does not know 'nvidia'",
        _no_runtime,
        symptom='`no runtime for "nvidia" is configured` where the pod is created.',
        cause="containerd was not configured for NVIDIA's runtime, was not restarted since, or reads another file than "
        "the one that was written.",
        remedy="Have this program prepare the host: hosts (docs/hosts.md). Prepared by hand, as docs/distributions.md "
        "says, its containerd has to be restarted.",
        source="GPU Operator #413, #432, #730",
        explains=("KA0306", "KA0712"),
    ),
    _check(
        "KA0710",
        "Runtimes of a node disagree about cgroups",
        _start(_CGROUPS, "the runtime and the kubelet disagree about cgroups."),
        symptom='`expected cgroupsPath to be of format "slice:prefix:name"` where containers are created.',
        cause="SystemdCgroup is true for runc and not for nvidia, or was lost with an update.",
        remedy="Set SystemdCgroup to true in containerd's options for both, and restart it.",
        source="k8s-snap #2529",
        explains=("KA0712",),
    ),
    _check(
        "KA0711",
        "Driver and library of a node differ",
        _start(_MISMATCH, "the driver's library is not the driver's."),
        symptom="`Driver/library version mismatch` where the container is created.",
        cause="The driver's packages were upgraded and the old module is still loaded.",
        remedy="Restart the node; then hold the driver's packages back.",
        source="NVML: nvmlInit, error 18",
        explains=("KA0712",),
    ),
    _check(
        "KA0712",
        "A GPU pod does not start",
        _other_start,
        severity=Severity.WARNING,
        needs={Source.PODS, Source.EVENTS, Source.CONFIG},
        symptom="The pod is on its node, and its containers do not start, or end again and again.",
        cause="The evidence says it: an image, a volume, a missing ConfigMap, or how a container ended. `OOMKilled` is "
        "a memory limit that is too low, or, where the GPU has no memory of its own, the machine's.",
        remedy="kubectl --namespace {namespace} describe pod {name}",
        source="Kubernetes: container states",
    ),
    _check(
        "KA0705",
        "A pod waits for resources",
        _waits,
        severity=Severity.WARNING,
        needs=_WAITING,
        symptom="The pod stays Pending, and KAI says why.",
        cause="No node has what it asks for at the moment. KAI rounds a GPU's memory down to hundreds of MiB.",
        remedy="Wait, ask for less, or free GPUs: `kai-anywhere doctor pod {name} --namespace {namespace}` says more.",
        source="KAI v0.17.0 pkg/scheduler/api/node_info",
    ),
)
