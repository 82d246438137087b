"""Checks of the cluster itself, and of what was installed into it."""

from collections.abc import Iterator

from cluster.access.answers.objects import held_by
from cluster.pending import kubectl_says
from cluster.preflight.findings import helm_puts_back
from cluster.waiting import said_by
from config.cluster import OLDEST_KUBERNETES
from manifests import gpu_operator, kai, reservation
from operations.doctor.check import Check, Finding, Severity, Subject, of_deployment, of_pod
from operations.doctor.facts import DaemonSet, Deployment, Facts, Source

_CANT_START = {
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}


def _half_done(facts: Facts) -> Iterator[Finding]:
    for release in facts.releases:
        for revision in release.revisions:
            if revision.half_done:
                yield Finding(
                    Subject("HelmRelease", release.name, release.namespace),
                    f"Helm release '{release.name}' is '{revision.status}' since {revision.created}.",
                    (
                        f"Secret {release.namespace}/{revision.secret}: status={revision.status}",
                        *_hooks_wait(facts, release.namespace),
                    ),
                    remedy="Wait for whoever works there. If that run is dead, take back its half-done revision: "
                    "kai-anywhere rollback --only-heal --stack {stack}. Or by hand: "
                    f"kubectl --namespace {release.namespace} delete secret {revision.secret}",
                )
            if revision.half_removed:
                yield Finding(
                    Subject("HelmRelease", release.name, release.namespace),
                    f"Helm release '{release.name}' is '{revision.status}'.",
                    (
                        f"Secret {release.namespace}/{revision.secret}: status={revision.status}",
                        *_hooks_wait(facts, release.namespace),
                    ),
                    remedy="Wait for whoever removes it. If that run is dead, let it come to its end, then install "
                    "anew: kai-anywhere down --stack {stack}",
                )


def _hooks_wait(facts: Facts, namespace: str) -> Iterator[str]:
    """What Helm waits for in a hook: the pods of Jobs that have not ended, and why Jobs get none."""
    for pod in facts.snapshot.pods:
        if pod.namespace == namespace and pod.owner_kind == "Job" and not pod.ended:
            yield said_by([pod]) or f"pod {pod.name}: {kubectl_says(pod)}"
    for name in dict.fromkeys(event.name for event in facts.events if event.kind == "Job"):
        yield from (f"Job {name}: {words}" for words in facts.events_of("Job", namespace, name)[-1:])


def _failed(facts: Facts) -> Iterator[Finding]:
    for release in facts.releases:
        # By number, as Helm itself does: two may be of one second, and those of a restored backup all are.
        latest = max(release.revisions, key=lambda revision: revision.version, default=None)
        if latest is not None and latest.status == "failed":
            yield Finding(
                Subject("HelmRelease", release.name, release.namespace),
                f"Helm release '{release.name}' has failed at {latest.created}.",
                (f"Secret {release.namespace}/{latest.secret}: status=failed",),
            )


def _terminating(facts: Facts) -> Iterator[Finding]:
    ours = {facts.kai_namespace, facts.operator_namespace, reservation.NAMESPACE, *_places(facts)}
    for namespace in facts.namespaces:
        if namespace.name in ours and namespace.phase == "Terminating":
            yield Finding(
                Subject("Namespace", namespace.name, annotations=namespace.annotations),
                f"Namespace '{namespace.name}' is being deleted, and takes no new objects.",
                (
                    f"Namespace {namespace.name}: status.phase=Terminating",
                    *filter(None, [held_by(namespace.conditions)]),
                ),
            )


def _without_server(facts: Facts) -> Iterator[Finding]:
    for service in facts.api_services:
        if service.unavailable:
            yield Finding(
                Subject("APIService", service.name, annotations=service.annotations),
                f"APIService {service.name} has no server that answers: while that is so, no namespace can go.",
                (
                    f"APIService {service.name}: service {service.namespace}/{service.service}",
                    f"condition Available=False: {service.unavailable}",
                ),
            )


def _nothing_installed(facts: Facts) -> Iterator[Finding]:
    if facts.missing and len(facts.missing) == facts.planned:
        yield Finding(
            Subject("Stack", facts.stack),
            f"None of the {facts.planned} objects of stack '{facts.stack}' is in this cluster.",
        )


def _objects_missing(facts: Facts) -> Iterator[Finding]:
    if not facts.missing or len(facts.missing) == facts.planned:
        return
    for name in sorted(facts.missing):
        kind, *rest = name.split("/")
        yield Finding(
            Subject(kind, rest[-1], rest[0] if len(rest) > 1 else ""),
            f"{kind} {'/'.join(rest)} of stack '{facts.stack}' is not there.",
            # The stack only marks the chart's: one that `repair` makes lacks placement and arguments.
            remedy=helm_puts_back(kai.RELEASE, "{kai_namespace}") if kind == "SchedulingShard" else "",
        )


def _too_old(facts: Facts) -> Iterator[Finding]:
    if facts.version is not None and facts.version.minor_version < OLDEST_KUBERNETES:
        yield Finding(Subject("Cluster", facts.version.git), f"The API server is {facts.version.git}.")


def _places(facts: Facts) -> Iterator[str]:
    """The namespaces of what the stack may have beside both operators."""
    settings = facts.settings
    if settings is not None and settings.webhooks:
        yield settings.admission.namespace
    if settings is not None and settings.gvirtus is not None:
        yield settings.gvirtus.namespace
    if settings is not None and settings.monitoring.enabled:
        yield settings.monitoring.namespace


def _pods_do_not_start(facts: Facts) -> Iterator[Finding]:
    places = {facts.kai_namespace, facts.operator_namespace, *_places(facts)}
    workloads: list[Deployment | DaemonSet] = [*facts.deployments, *facts.daemon_sets]
    for pod in facts.snapshot.pods:
        if pod.namespace not in places or pod.deleted:
            continue
        for status in (*pod.init_statuses, *pod.statuses):
            waits = status.state.get("waiting")
            if waits is None or waits.reason not in _CANT_START:
                continue
            owners = {
                of_deployment(workload.namespace, workload.name)
                for workload in workloads
                if workload.namespace == pod.namespace
                and workload.selector
                and workload.selector.items() <= pod.labels.items()
            }
            yield Finding(
                Subject("Pod", pod.name, pod.namespace, pod.annotations),
                f"Pod {pod.namespace}/{pod.name} does not start: {waits.reason}.",
                (
                    f"container {status.name}: {waits.reason}: {waits.message or 'no message'}",
                    *facts.events_of("Pod", pod.namespace, pod.name),
                ),
                about=frozenset({of_pod(pod.namespace, pod.name)}),
                reach=frozenset(owners),
            )
            break


CHECKS = (
    Check(
        "KA0106",
        "Kubernetes is older than 1.30",
        _too_old,
        needs=frozenset(),
        symptom="The stack is not installed: its guards are ValidatingAdmissionPolicies v1.",
        cause="ValidatingAdmissionPolicy is served as v1 from Kubernetes 1.30 on.",
        remedy="Upgrade the cluster.",
        source="Kubernetes 1.30 release notes",
    ),
    Check(
        "KA0103",
        "A namespace is being deleted",
        _terminating,
        needs={Source.NAMESPACES},
        symptom="Pods and Deployments of KAI, of the GPU Operator or of reservation are refused.",
        cause="Somebody deleted the namespace, and something holds it up: a finalizer of an object in it, or an API "
        "whose server does not answer.",
        remedy="See what holds it up: kubectl get namespace {name} -o jsonpath='{.status.conditions}'. Who set a "
        "finalizer takes it off once his controller runs; an API that is not available (kubectl get apiservices) needs "
        "its server, or is removed by whoever installed it. Once the namespace is gone, install again: "
        "`kai-anywhere repair --stack {stack}`.",
        source="Kubernetes: namespace finalizers",
        explains=frozenset(
            {"KA0105", "KA0201", "KA0202", "KA0204", "KA0205", "KA0206", "KA0208", "KA0209", "KA0301", "KA0512"}
        ),
    ),
    Check(
        "KA0101",
        "A Helm release is half done",
        _half_done,
        needs={Source.RELEASES, Source.DEPLOYMENTS},
        symptom=f"The release `{kai.RELEASE}` or `{gpu_operator.RELEASE}` is in `pending-install`, "
        "`pending-upgrade` or `uninstalling`, "
        "and every later run is refused.",
        cause="A run was killed inside Helm, or another one is at work.",
        remedy="Wait for whoever works there. If that run is dead, take back its half-done revision: "
        "kai-anywhere rollback --only-heal --stack {stack}. Or by hand: "
        "kubectl --namespace {namespace} delete secret sh.helm.release.v1.{name}.vN. Of a removal, let it come to its "
        "end: kai-anywhere down --stack {stack}",
        source="Helm 3: release states",
        explains={"KA0105", "KA0201", "KA0202", "KA0203", "KA0301", "KA0302"},
    ),
    Check(
        "KA0102",
        "A Helm release has failed",
        _failed,
        needs={Source.RELEASES, Source.DEPLOYMENTS},
        symptom="The newest revision of a release has status `failed`.",
        cause="A hook or the release's own wait did not end in time, or the API server refused an object.",
        remedy="Find out why, then run `pulumi up` again: kubectl --namespace {namespace} get events "
        "--field-selector type=Warning",
        source="Helm 3: release states",
    ),
    Check(
        "KA0104",
        "The stack is not installed here",
        _nothing_installed,
        needs={Source.STACK},
        symptom="Nothing of what the stack's settings say is in the cluster.",
        cause="The stack was never installed here, or the command looks at another cluster than you think.",
        remedy="Choose the cluster with KUBECONFIG or `--context`, the stack with `--stack`; or install: `pulumi up`.",
        source="this program",
        explains={"KA0201", "KA0301", "KA0411", "KA0412", "KA0501", "KA0502", "KA0801", "KA0805", "KA0902"},
    ),
    Check(
        "KA0107",
        "A pod of the control plane does not start",
        _pods_do_not_start,
        needs={Source.PODS, Source.DEPLOYMENTS, Source.DAEMON_SETS},
        symptom="A pod of KAI, of the GPU Operator or of this stack is in `ImagePullBackOff`, `CrashLoopBackOff` or "
        "another state from which it does not recover.",
        cause="The evidence says it: an image that can't be pulled, a wrong configuration, or a program that ends.",
        remedy="For images, correct registry, tag or pull secret in the stack. Otherwise read its log: "
        "kubectl --namespace {namespace} logs {name} --previous",
        source="Kubernetes: container states",
        explains=frozenset(
            {
                *("KA0202", "KA0204", "KA0205", "KA0206", "KA0207", "KA0208", "KA0209", "KA0301", "KA0306", "KA0307"),
                *("KA0309", "KA0801", "KA0803", "KA0902"),
            }
        ),
    ),
    Check(
        "KA0108",
        "An API of the cluster has no server",
        _without_server,
        needs={Source.API_SERVICES},
        severity=Severity.WARNING,
        symptom="Pods run as they should. `kai-anywhere down`, and whoever else deletes a namespace, waits until it "
        "answers: `NamespaceDeletionDiscoveryFailure`, `unable to retrieve the complete list of server APIs`.",
        cause="Somebody's extension of the API, such as metrics-server, has no pod that answers, or was removed and "
        "left its APIService. The namespace controller asks every API for what a namespace has, and lets none go where "
        "one does not answer.",
        remedy="Start what serves it: the evidence names its service. If that was removed for good, whoever installed "
        "it removes the APIService {name} too. What waits goes on by itself then.",
        source="Kubernetes v1.36 pkg/controller/namespace/deletion/namespaced_resources_deleter.go",
    ),
    Check(
        "KA0105",
        "An object of the stack is missing",
        _objects_missing,
        needs={Source.STACK},
        symptom="An object that the stack's settings ask for is not in the cluster.",
        cause="Somebody deleted it, or the last run did not get that far.",
        remedy="Put it back: `kai-anywhere repair --stack {stack}`.",
        source="this program",
    ),
)
