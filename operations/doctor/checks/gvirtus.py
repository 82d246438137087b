"""Checks of GPUs over the network."""

from collections.abc import Iterator

from config.gvirtus import FRONTEND_ALLOWED, FRONTENDS_NAMESPACE
from manifests.gvirtus import frontends
from manifests.gvirtus import objects as gvirtus
from manifests.gvirtus.backends import BACKEND_LABEL
from manifests.gvirtus.injection import BACKEND_ANNOTATION, ENABLED_LABEL
from manifests.objects import manifests
from manifests.ownership import key
from operations.doctor.check import Check, Finding, Severity, Subject, of_deployment, of_node, of_pod
from operations.doctor.checks.workloads import ends, judge_deployment, ready_nodes, remedy_of_deployment
from operations.doctor.facts import Facts, Source
from operations.doctor.requests import asks_for_share

_CARRIER = {
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ConfigMap",
}
_OOM = "OOMKilled"
"""With version 2 of cgroups a kubelet ends all of the container with it, so every client's process."""


def _backends(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or settings.gvirtus is None:
        return
    for manifest in manifests(gvirtus.objects(settings)).values():
        if manifest["kind"] == "Deployment":
            name = manifest["metadata"]["name"]
            yield from judge_deployment(
                facts, settings.gvirtus.namespace, name, role=f"The remote GPU's backend '{name}'"
            )


def _out_of_memory(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or settings.gvirtus is None:
        return
    for pod in facts.snapshot.pods:
        backend = settings.gvirtus.backends.get(pod.labels.get(BACKEND_LABEL, ""))
        if backend is None or pod.namespace != settings.gvirtus.namespace or pod.deleted:
            continue
        if any(status.end is not None and status.end.reason == _OOM for status in pod.statuses):
            name = pod.labels[BACKEND_LABEL]
            yield Finding(
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                f"the remote GPU's backend '{name}' ran out of memory, and every application that used it failed.",
                (*ends(pod), f"gvirtus.backends.{name}.memory: {backend.memory}"),
                about=frozenset({of_pod(pod.namespace, pod.name)}),
                reach=frozenset({of_deployment(pod.namespace, name)}),
                remedy=f"Raise `gvirtus.backends.{name}.memory` in the stack, then `pulumi up`.",
            )


def _device(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    named = settings.gvirtus.frontends.nodes if settings and settings.gvirtus and settings.gvirtus.frontends else ()
    for node in facts.snapshot.nodes:
        if (node.is_frontend or node.name in named) and not node.devices:
            yield Finding(
                Subject("Node", node.name, annotations=node.annotations),
                f"node '{node.name}' is to use remote GPUs and advertises none.",
                (
                    f"label {FRONTEND_ALLOWED}={node.labels.get(FRONTEND_ALLOWED, 'missing')}",
                    f"Node {node.name}: status.allocatable has no nvidia.com/gpu",
                ),
                about=frozenset({of_node(node.name)}),
                reach=frozenset({of_node(node.name)}),
            )


def _plugin(facts: Facts) -> Iterator[Finding]:
    for daemon_set in facts.daemon_sets:
        is_plugin = (daemon_set.namespace, daemon_set.name) == (FRONTENDS_NAMESPACE, frontends.DEVICE_PLUGIN)
        if is_plugin and daemon_set.ready < daemon_set.desired:
            ready = ready_nodes(facts, daemon_set)
            waiting = sorted({pod.node for pod in facts.pods_of(daemon_set) if pod.node not in ready})
            yield Finding(
                Subject("DaemonSet", daemon_set.name, daemon_set.namespace, daemon_set.annotations),
                f"the frontends' device plugin is ready on {daemon_set.ready} of {daemon_set.desired} nodes.",
                tuple(f"not ready on {node}" for node in waiting[:5]),
                reach=frozenset(map(of_node, waiting)),
            )


def _not_injected(facts: Facts) -> Iterator[Finding]:
    for pod in facts.snapshot.pods:
        if pod.labels.get(ENABLED_LABEL) == "true" and not pod.ended and BACKEND_ANNOTATION not in pod.annotations:
            yield Finding(
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                f"pod {pod.namespace}/{pod.name} is to use a remote GPU and was given no backend.",
                (f"label {ENABLED_LABEL}=true, no annotation {BACKEND_ANNOTATION}",),
                about=frozenset({of_pod(pod.namespace, pod.name)}),
            )


def _carrier(facts: Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings is None or settings.gvirtus is None:
        return
    for manifest in manifests(gvirtus.objects(settings)).values():
        if manifest["kind"] in _CARRIER and key(manifest) in (facts.missing or ()):
            name = manifest["metadata"]["name"]
            yield Finding(
                Subject(manifest["kind"], name, manifest["metadata"].get("namespace", "")),
                f"{manifest['kind']} {name} is missing: pods with {ENABLED_LABEL}=true get no backend.",
                (f"{key(manifest)}: not found",),
            )


def _both(facts: Facts) -> Iterator[Finding]:
    for pod in facts.snapshot.pods:
        if pod.labels.get(ENABLED_LABEL) == "true" and asks_for_share(pod) and not pod.ended:
            yield Finding(
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                f"pod {pod.namespace}/{pod.name} asks for a part of a local GPU and for a remote one.",
                (
                    f"label {ENABLED_LABEL}=true, "
                    + ", ".join(
                        f"{name}={value}" for name, value in pod.annotations.items() if name.startswith("gpu-")
                    ),
                ),
                about=frozenset({of_pod(pod.namespace, pod.name)}),
            )


CHECKS = (
    Check(
        "KA0805",
        "What gives pods their remote GPU is missing",
        _carrier,
        needs={Source.STACK},
        symptom="Applications start without a backend's address and end at their first CUDA call.",
        cause="An admission policy, its binding or the ConfigMap with the backends' addresses was deleted.",
        remedy="Put it back: `kai-anywhere repair --stack {stack}`. Pods that are there already must be made again.",
        source="this program: manifests/gvirtus/policy.py",
        explains={"KA0105", "KA0804"},
    ),
    Check(
        "KA0801",
        "A backend of remote GPUs does not run",
        _backends,
        needs={Source.DEPLOYMENTS},
        symptom="Applications on nodes without a GPU end at their first CUDA call.",
        cause="The backend's Deployment is scaled to 0, is missing, or its pod is not ready: one malformed "
        "request ends "
        "GVirtuS' serving process, and its probe restarts it.",
        remedy=remedy_of_deployment(),
        source="GVirtuS src/backend/Backend.cpp; docs/gvirtus.md",
        explains={"KA0105"},
    ),
    Check(
        "KA0807",
        "A backend of remote GPUs ran out of memory",
        _out_of_memory,
        severity=Severity.WARNING,
        needs={Source.PODS},
        symptom="Applications end in the middle of their work, all that use the backend at once; the next ones run.",
        cause="What applications copy from the GPU passes through the memory of their backend, and so does "
        "page-locked memory. Above its limit the kernel ends the container.",
        remedy="Raise `gvirtus.backends.<name>.memory` in the stack, then `pulumi up`.",
        source="LUPINE 1.0 with an NVIDIA H100; docs/gvirtus.md",
        explains={"KA0107", "KA0801"},
    ),
    Check(
        "KA0803",
        "The frontends' device plugin is not ready everywhere",
        _plugin,
        needs={Source.DAEMON_SETS, Source.PODS},
        symptom="Nodes without a GPU advertise no remote ones.",
        cause="Its pod fails there, or its image can't be pulled.",
        remedy="kubectl --namespace {namespace} describe daemonset {name}",
        source="squat/generic-device-plugin",
        explains={"KA0802"},
    ),
    Check(
        "KA0802",
        "A frontend advertises no GPU",
        _device,
        needs={Source.NODES},
        symptom="Pods that use a remote GPU stay Pending.",
        cause="The frontends' device plugin does not run on the node.",
        remedy="Look at its pods: kubectl --namespace gvirtus-frontends get pods --output wide",
        source="squat/generic-device-plugin; docs/gvirtus.md",
        explains={"KA0705"},
    ),
    Check(
        "KA0804",
        "A pod was given no backend",
        _not_injected,
        needs={Source.PODS},
        symptom="The application ends at its first CUDA call.",
        cause="The pod was made while the policy or the webhook was not there, or in a namespace that is left alone.",
        remedy="Make the pod again once the carrier is there (KA0805): kubectl --namespace {namespace} delete "
        "pod {name}",
        source="this program: manifests/gvirtus/injection.py",
    ),
    Check(
        "KA0806",
        "A pod asks for a local and for a remote GPU",
        _both,
        severity=Severity.WARNING,
        needs={Source.PODS},
        symptom="The application uses the remote GPU, and holds the local share without using it.",
        cause=f"The pod has an annotation of KAI's and the label `{ENABLED_LABEL}`.",
        remedy="Remove one of them from the workload.",
        source="this program: manifests/gvirtus/injection.py",
    ),
)
