"""What several categories ask of Deployments and DaemonSets."""

from collections.abc import Iterator

from cluster.access.answers.pods import Pod
from cluster.pending import kubectl_says
from operations.doctor.check import Finding, Subject, of_deployment
from operations.doctor.facts import DaemonSet, Deployment, Facts

INSTALL_AGAIN = "Install it again: `kai-anywhere repair --stack {stack}`."


def remedy_of_deployment(replicas: int = 1, missing: str = INSTALL_AGAIN) -> str:
    """What to do about a Deployment that does not run, whichever of the three it is; a finding says its own.

    Args:
        replicas: how many it has when it is well.
        missing: what to do if it is missing.
    """
    return (
        f"If it is missing: {missing} If it is scaled to 0: kubectl "
        f"--namespace {{namespace}} scale deployment {{name}} --replicas={replicas}. Else see why its pods do not run: "
        "kubectl --namespace {namespace} describe deployment {name}"
    )


def judge_deployment(  # noqa: PLR0913 - what is known of a Deployment
    facts: Facts, namespace: str, name: str, *, role: str, replicas: int = 1, missing: str = INSTALL_AGAIN
) -> Iterator[Finding]:
    """A Deployment that must be there and have a pod that is available.

    Args:
        facts: the cluster.
        namespace: of the Deployment.
        name: its name.
        role: what runs in it, as a sentence's subject.
        replicas: how many it has when it is well.
        missing: what to do if it is missing.
    """
    about = frozenset({of_deployment(namespace, name)})
    deployment = facts.deployment(namespace, name)
    if deployment is None:
        yield Finding(
            Subject("Deployment", name, namespace),
            f"{role} is missing: there is no Deployment {namespace}/{name}.",
            (f"Deployments in namespace {namespace}: {_others(facts, namespace)}",),
            about=about,
            remedy=missing,
        )
        return
    subject = Subject("Deployment", name, namespace, deployment.annotations)
    if deployment.desired == 0:
        yield Finding(
            subject,
            f"{role} is switched off: Deployment {namespace}/{name} is scaled to 0.",
            (f"Deployment {namespace}/{name}: spec.replicas=0",),
            about=about,
            remedy=how_to_start(deployment, replicas),
        )
    elif deployment.available == 0:
        yield Finding(
            subject,
            f"{role} does not run: Deployment {namespace}/{name} has 0 of {deployment.desired} replicas available.",
            tuple(_evidence(facts, deployment)),
            about=about,
            remedy=how_to_start(deployment, replicas),
        )


def how_to_start(deployment: Deployment, replicas: int = 1) -> str:
    """What to do about a Deployment that is there and has no pod that is available.

    Args:
        deployment: it.
        replicas: how many it has when it is well.
    """
    kubectl = f"kubectl --namespace {deployment.namespace}"
    if deployment.desired == 0:
        return f"{kubectl} scale deployment {deployment.name} --replicas={replicas}"
    return f"See why its pods do not run: {kubectl} describe deployment {deployment.name}"


def _evidence(facts: Facts, deployment: Deployment) -> Iterator[str]:
    yield f"Deployment {deployment.namespace}/{deployment.name}: 0 of {deployment.desired} replicas are available"
    for condition in deployment.conditions:
        # The one that is bad where it is true: the API server refuses its pods.
        if condition.message and (condition.status != "True" or condition.type == "ReplicaFailure"):
            yield f"condition {condition.type}={condition.status}: {condition.message}"
    for pod in facts.pods_of(deployment)[:3]:
        yield f"Pod {pod.namespace}/{pod.name}: {kubectl_says(pod)}{f' on {pod.node}' if pod.node else ''}"
        yield from ends(pod)
        yield from facts.events_of("Pod", pod.namespace, pod.name)


def ends(pod: Pod) -> Iterator[str]:
    """How each container of a pod ended last, if not well, in the kubelet's words."""
    for status in (*pod.init_statuses, *pod.statuses):
        end = status.end
        if end is not None and end.exit_code != 0:
            when = f" at {end.ended:%Y-%m-%d %H:%M} UTC" if end.ended else ""
            how = f"{end.reason or 'no reason'} (status {end.exit_code}), restarts: {status.restarts}"
            yield f"container {status.name} ended{when}: {how}"


def _others(facts: Facts, namespace: str) -> str:
    return (
        ", ".join(sorted(deployment.name for deployment in facts.deployments if deployment.namespace == namespace))
        or "none"
    )


def ready_nodes(facts: Facts, daemon_set: DaemonSet) -> frozenset[str]:
    """The nodes on which a pod of a DaemonSet is ready."""
    return frozenset(
        pod.node
        for pod in facts.pods_of(daemon_set)
        if not pod.deleted
        and any(condition.type == "Ready" and condition.status == "True" for condition in pod.conditions)
    )
