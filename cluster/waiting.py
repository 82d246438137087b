"""Bounded waits for what an operator makes after its release: each says what it waits for, and why it may not come."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.access.answers import DaemonSet, Deployment
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from manifests.wording import first_of

POLL_SECONDS = 1.0
"""The longest pause, but after a costly look. The first one is a tenth of it: most of what is waited for comes within a
second or two."""
_PAUSES_GROW_BY = 1.5
_LOOKS_TAKE = 0.05
"""Of a processor, at most. A look at 1,000 nodes reads all of them: megabytes, and a tenth of a second of a processor.
How long an answer is on its way does not count."""
_LONGEST_PAUSE_SECONDS = 10.0
REPORT_SECONDS = 10.0
_UNSEEN = "its controller has not seen its last change yet"
_DRY_RUN_MANAGER = "kai-anywhere-wait"
_WEBHOOK_REFUSES = "denied the request"
"""In the API server's words of every webhook's refusal (apiserver, plugin/webhook/errors/statuserror.go)."""
_NOT_FOUND = 404
_SETTLED = frozenset({400, 409, 422})
"""Bad request, conflict, invalid: no wait makes them good."""


@dataclass(frozen=True)
class Condition:
    """Something to wait for.

    Attributes:
        what: it, as a noun phrase.
        missing: asks the cluster; returns what is still missing, or None when it holds.
        causes: the likely causes of it not coming, and what to look at.
    """

    what: str
    missing: Callable[[Cluster], str | None]
    causes: str


def wait_for(cluster: Cluster, condition: Condition, *, timeout_seconds: float, report: Callable[[str], None]) -> None:
    """Wait until the condition holds; an API server that is away for a moment only costs time.

    Raises:
        ClusterError: when the time is over; the text says what is missing and the likely causes.
    """
    start = time.monotonic()
    reported = start
    pause = POLL_SECONDS / 10
    while True:
        begin = time.thread_time()
        try:
            missing = condition.missing(cluster)
            rest = (time.thread_time() - begin) / _LOOKS_TAKE
        except ClusterUnreachableError as error:
            missing = str(error).splitlines()[0]
            rest = 0.0
        if missing is None:
            return
        now = time.monotonic()
        if now - start >= timeout_seconds:
            raise ClusterError(
                f"Waited {timeout_seconds:.0f} s for {condition.what} without success: {missing}.\n{condition.causes}"
            )
        if now - reported >= REPORT_SECONDS:
            reported = now
            report(f"waiting for {condition.what}: {missing} ({now - start:.0f} s of at most {timeout_seconds:.0f} s)")
        # What comes at the very end of the time is seen by a last look.
        time.sleep(min(max(pause, rest), _LONGEST_PAUSE_SECONDS, start + timeout_seconds - now))
        pause = min(pause * _PAUSES_GROW_BY, POLL_SECONDS)


def release_rolled_out(namespace: str, release: str) -> Condition:
    """The Deployments and DaemonSets of a Helm release, for which Helm itself is told not to wait (decision 3).

    A pod of a Deployment that fails after it was ready holds up no later `up`, nor does a node that is not Ready, for
    which Helm would wait. Of a DaemonSet's other nodes one may be without its pod, or a tenth: one broken node of a
    large cluster must not hold up every `up` either.
    """
    return Condition(
        what=f"the pods of Helm release '{release}' in namespace '{namespace}'",
        missing=lambda cluster: _not_rolled_out(cluster, namespace, release),
        causes=(
            "Likely causes: an image can't be pulled, no node takes the pods, or a pod fails.\n"
            f"Look at: kubectl --namespace {namespace} get pods,deployments,daemonsets,events"
        ),
    )


def _not_rolled_out(cluster: Cluster, namespace: str, release: str) -> str | None:
    for deployment in cluster.deployments(namespace=namespace):
        if deployment.release == (namespace, release) and not deployment.rolled_out:
            return f"Deployment '{deployment.name}': {_lacks(deployment) or 'its roll-out has not ended yet'}"
    for daemon_set in cluster.daemon_sets(namespace=namespace):
        if daemon_set.release == (namespace, release) and (missing := _waits_for_nodes(cluster, daemon_set)):
            return f"DaemonSet '{daemon_set.name}': {missing}"
    return None


def _waits_for_nodes(cluster: Cluster, daemon_set: DaemonSet) -> str | None:
    if not daemon_set.is_observed:
        return _UNSEEN
    if daemon_set.ready < daemon_set.desired:
        away = sum(node.conditions.get("Ready") != "True" for node in cluster.nodes().values())
        most = max(daemon_set.desired - max(daemon_set.desired // 10, 1), 1)
        if daemon_set.ready < min(daemon_set.desired - away, most):
            return f"it is ready on {daemon_set.ready} of {daemon_set.desired} nodes"
    return None


def runtime_class(name: str, *, operator_namespace: str) -> Condition:
    """The RuntimeClass that ClusterPolicy owns; KAI's fraction pods are refused until it exists."""
    return Condition(
        what=f"RuntimeClass '{name}'",
        missing=lambda cluster: None if cluster.has_runtime_class(name) else "it does not exist yet",
        causes=(
            "The GPU Operator makes it from its ClusterPolicy. Likely causes: the operator does not run, or "
            "cdi.nriPluginEnabled is on.\n"
            f"Look at: kubectl --namespace {operator_namespace} get pods,clusterpolicies"
        ),
    )


def gpus_advertised(named_nodes: frozenset[str], *, operator_namespace: str) -> Condition:
    """`nvidia.com/gpu` on every node that the stack names, and on one at least of those where the operator found a GPU.

    Not on all of these: one broken node of a large cluster must not hold up every `up`.
    """

    def missing(cluster: Cluster) -> str | None:
        nodes = cluster.nodes().values()
        without = sorted(node.name for node in nodes if node.gpus == 0 and node.name in named_nodes)
        if without:
            return f"no nvidia.com/gpu on {first_of(without)}"
        gpu_nodes = [node for node in nodes if node.labels.get("nvidia.com/gpu.present") == "true"]
        if gpu_nodes and not any(node.gpus or node.slices for node in gpu_nodes):
            return f"no nvidia.com/gpu on any of {first_of(sorted(node.name for node in gpu_nodes))}"
        return None

    return Condition(
        what="GPUs to be advertised",
        missing=missing,
        causes=(
            "The device plugin's pod on the node does it. Likely causes: its init container waits for the container "
            "toolkit, the driver does not load, the node's device-plugin profile is unknown, or an image can't be "
            f"pulled.\nLook at: kubectl --namespace {operator_namespace} get pods --output wide"
        ),
    )


def deployment_available(namespace: str, name: str, *, causes: str) -> Condition:
    """A Deployment that an operator makes."""
    return Condition(
        what=f"Deployment '{name}' in namespace '{namespace}'",
        missing=lambda cluster: deployment_missing(cluster, namespace, name),
        causes=f"{causes}\nLook at: kubectl --namespace {namespace} get pods,deployments,events",
    )


def deployment_missing(cluster: Cluster, namespace: str, name: str) -> str | None:
    """What a Deployment lacks to be available, or None."""
    deployment = cluster.deployment(namespace, name)
    return "it does not exist yet" if deployment is None else _lacks(deployment)


def _lacks(deployment: Deployment) -> str | None:
    if not deployment.is_observed:
        return _UNSEEN
    if deployment.available < max(deployment.desired, 1):
        return f"{deployment.available} of {deployment.desired} replicas are available"
    if deployment.updated < deployment.desired:
        return f"{deployment.updated} of {deployment.desired} replicas are up to date"
    return None


def webhook_answers(manifest: Mapping[str, Any], *, causes: str) -> Condition:
    """The admission webhook of an object's kind, asked by a server-side dry run of that object.

    Symptom without it: `failed calling webhook "queue-validation.kai.scheduler"` for the first queue of a new cluster.
    KAI's queue controller has no readiness probe, so its Deployment is available before it listens, and before its
    Service has an endpoint (KAI v0.17.0, pkg/operator/operands/queue_controller).

    A webhook that refuses the object has answered, and a schema that refuses it comes before every webhook: the
    object's own creation then says why.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]

    def missing(cluster: Cluster) -> str | None:
        objection = cluster.objection(manifest, manager=_DRY_RUN_MANAGER)
        if objection is None or objection.code in _SETTLED or _WEBHOOK_REFUSES in objection.message:
            return None
        if objection.code == _NOT_FOUND:
            # A definition that has only just come is not served at once; one that was deleted never is.
            return (
                f"the cluster does not know the kind {kind}: its CustomResourceDefinition is missing. The chart has it "
                "in its folder crds/, which Helm installs once: if somebody deleted it, apply it from there"
            )
        return f"last heard: {objection.message}"

    return Condition(
        what=f"the admission webhook of {kind} '{name}' to answer",
        missing=missing,
        causes=f"{causes}\nLook at: kubectl get validatingwebhookconfigurations",
    )
