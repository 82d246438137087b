"""Bounded waits for what an operator makes after its release: each says what it waits for, and why it may not come."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import DaemonSet, Deployment
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.access.connection import REFUSES
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.pending import said_of
from config.gvirtus import GvirtusSettings
from manifests.gpu_operator import DEVICE_PLUGIN
from manifests.gvirtus.backends import BACKEND_LABEL
from manifests.node_labels import GPU_PRESENT
from manifests.objects import Manifest
from manifests.pod_guard import POD_GUARD
from manifests.tolerations import GPU
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
_NOT_FOUND = 404
_SETTLED = frozenset({400, 409, 422})
"""Bad request, conflict, invalid: no wait makes them good."""
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""What a kubelet says of every pod at first."""
_MOST_WORDS = 200
"""Characters of it: a line of progress is read at a terminal."""
MOST_OF_A_REFUSAL = 1000
"""Likewise: the names of the pod and of the policy come first, and what is to be done last."""


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

    A release of which nothing is there fails at once: no run installs what the state says is there.
    """
    return Condition(
        what=f"the pods of Helm release '{release}' in namespace '{namespace}'",
        missing=lambda cluster: _release_lacks(cluster, namespace, release),
        causes=(
            "Likely causes: an image can't be pulled, no node takes the pods, a pod fails, or a quota or policy of the "
            "cluster refuses it.\n"
            f"Look at: kubectl --namespace {namespace} get pods,deployments,daemonsets,events"
        ),
    )


def operands_rolled_out(namespace: str, names: Collection[str]) -> Condition:
    """Those of an operator's Deployments that it has made, each once, as those of a release.

    Without it, a pod that is created right after `up` may be refused: KAI's admission, whose webhooks say `Fail`, takes
    some seconds longer than the queue controller (KAI v0.17.0 pkg/operator/operands/admission). One that another
    version does not have is not waited for, nor is one that somebody else lets the operator make.
    """

    def missing(cluster: Cluster) -> str | None:
        made = (deployment for deployment in cluster.deployments(namespace=namespace) if deployment.name in names)
        return next((lacks for deployment in made if (lacks := _not_rolled_out(cluster, deployment))), None)

    return Condition(
        what=f"{', '.join(names)} in namespace '{namespace}'",
        missing=missing,
        causes=(
            "Likely causes: an image can't be pulled, no node takes the pods, a pod fails, or a quota or policy of the "
            "cluster refuses it.\n"
            f"Look at: kubectl --namespace {namespace} get pods,deployments,events"
        ),
    )


def _release_lacks(cluster: Cluster, namespace: str, release: str) -> str | None:
    deployments = [
        deployment
        for deployment in cluster.deployments(namespace=namespace)
        if deployment.release == (namespace, release)
    ]
    for deployment in deployments:
        if lacks := _not_rolled_out(cluster, deployment):
            return lacks
    daemon_sets = [
        daemon_set
        for daemon_set in cluster.daemon_sets(namespace=namespace)
        if daemon_set.release == (namespace, release)
    ]
    for daemon_set in daemon_sets:
        if missing := _waits_for_nodes(cluster, daemon_set):
            return f"DaemonSet '{daemon_set.name}': {missing}{_said_by_pods(cluster, daemon_set)}"
    if not deployments and not daemon_sets and not cluster.helm_revisions(namespace, release):
        raise ClusterError(
            f"Helm release '{release}' is not in namespace '{namespace}', though the stack's state says so: somebody "
            "uninstalled it, or deleted the namespace.\nOnly a refresh tells the stack, and then it is installed anew: "
            "pulumi up --refresh"
        )
    return None


def _not_rolled_out(cluster: Cluster, deployment: Deployment) -> str | None:
    if deployment.rolled_out:
        return None
    return f"Deployment '{deployment.name}': {_lacks(cluster, deployment) or 'its roll-out has not ended yet'}"


def _waits_for_nodes(cluster: Cluster, daemon_set: DaemonSet) -> str | None:
    if not daemon_set.is_observed:
        return _UNSEEN
    if daemon_set.ready < daemon_set.desired:
        most = max(daemon_set.desired - max(daemon_set.desired // 10, 1), 1)
        if daemon_set.ready < most and daemon_set.ready < daemon_set.desired - _away(cluster, daemon_set):
            return f"it is ready on {daemon_set.ready} of {daemon_set.desired} nodes"
    return None


def _away(cluster: Cluster, daemon_set: DaemonSet) -> int:
    """How many nodes of a DaemonSet are not Ready: those that its pods are on, since its pods tolerate that.

    A node that it is not for, such as a worker without GPUs that is off, must not stand for one that it is for.
    """
    away = {node.name for node in cluster.nodes().values() if node.conditions.get("Ready") != "True"}
    if not away:
        return 0
    try:
        pods = cluster.pods(namespace=daemon_set.namespace)
    except ClusterUnreachableError:
        raise
    except ClusterError:
        # Who may not read pods does not know which of them are its nodes.
        return len(away)
    return len({pod.node for pod in pods if pod.node in away and _is_of(pod, daemon_set)})


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


def gpus_advertised(
    named_nodes: frozenset[str], *, operator_namespace: str, tolerations: Sequence[Manifest] = (GPU,)
) -> Condition:
    """`nvidia.com/gpu` on every node that the stack names, and on one at least of those where the operator found a GPU.

    MIG slices stand for it: with `gpu_operator.mig_strategy: mixed` they have resources of their own, and a node whose
    GPUs are all split advertises no other. Not on all where the operator found one: one broken node of a large cluster
    must not hold up every `up`.

    Args:
        named_nodes: those that the stack names.
        operator_namespace: where the operator is.
        tolerations: what its operands tolerate.
    """

    def named(node: Node) -> str:
        # Of a node whose kubelet is off nobody else says anything.
        off = ["not Ready"] if node.conditions.get("Ready", "True") != "True" else []
        taints = node.repels(tolerations)
        why = [*off, *([f"tainted {', '.join(taints)}"] if taints else [])]
        return f"{node.name} ({'; '.join(why)})" if why else node.name

    def missing(cluster: Cluster) -> str | None:
        nodes = sorted(cluster.nodes().values(), key=lambda node: node.name)
        without = [node for node in nodes if node.name in named_nodes and not (node.gpus or node.slices)]
        if without:
            said = _said_by_operands(cluster, operator_namespace, without[0].name)
            return f"no nvidia.com/gpu on {first_of(list(map(named, without)))}{said}"
        gpu_nodes = [node for node in nodes if node.labels.get(GPU_PRESENT) == "true" and not node.is_frontend]
        if gpu_nodes and not any(node.gpus or node.slices or node.time_slices for node in gpu_nodes):
            said = _said_by_operands(cluster, operator_namespace, gpu_nodes[0].name)
            return f"no nvidia.com/gpu on any of {first_of(list(map(named, gpu_nodes)))}{said}"
        return None

    return Condition(
        what="GPUs to be advertised",
        missing=missing,
        causes=(
            "The device plugin's pod on the node does it. Likely causes: its init container waits for the container "
            "toolkit, the driver does not load, the node's device-plugin profile is unknown, the node has a taint that "
            "it does not tolerate (cluster.tolerated_taints) or is not Ready, or an image can't be pulled.\n"
            f"Look at: kubectl --namespace {operator_namespace} get pods,daemonsets,events --output wide"
        ),
    )


def _said_by_operands(cluster: Cluster, namespace: str, node: str) -> str:
    """Why the GPU Operator's pods on a node do not run, as the end of a sentence; empty while nobody says so.

    One node is looked at, however many lack GPUs: its pods are few, and all of them are thousands.
    """
    try:
        pods = cluster.pods(namespace=namespace, node=node)
        if said := said_by(pods):
            return f"; {said}"
        plugins = [
            daemon_set for daemon_set in cluster.daemon_sets(namespace=namespace) if daemon_set.name == DEVICE_PLUGIN
        ]
        refused = [plugin for plugin in plugins if not any(_is_of(pod, plugin) for pod in pods)]
        return _refused(refused[0], _refusal(cluster, refused[0], refused[0].ready)) if refused else ""
    except ClusterError:
        return ""


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
    return "it does not exist yet" if deployment is None else _lacks(cluster, deployment)


def _lacks(cluster: Cluster, deployment: Deployment) -> str | None:
    if not deployment.is_observed:
        return _UNSEEN
    if deployment.available < max(deployment.desired, 1):
        lacks = f"{deployment.available} of {deployment.desired} replicas are available"
    elif deployment.updated < deployment.desired:
        lacks = f"{deployment.updated} of {deployment.desired} replicas are up to date"
    else:
        return None
    return f"{lacks}{_said_by_pods(cluster, deployment)}"


def _said_by_pods(cluster: Cluster, workload: Deployment | DaemonSet, *, most: int | None = _MOST_WORDS) -> str:
    """Why a pod of a Deployment or DaemonSet does not run, as the end of a sentence; empty while nobody says so.

    Minutes of `0 of 1 replicas are available` would hide what Kubernetes has known since the first second.
    """
    try:
        pods = [pod for pod in cluster.pods(namespace=workload.namespace) if _is_of(pod, workload)]
        if said := said_by(pods, most=most):
            return f"; {said}"
        return _refused(workload, _refusal(cluster, workload, len(pods)))
    except ClusterError:
        return ""


def _refused(workload: Deployment | DaemonSet, refusal: str) -> str:
    if not refusal:
        return ""
    # What the controller said last stays until it tries again: a quota that was lifted looks as if it still refused.
    again = (
        f"kubectl --namespace {workload.namespace} rollout restart {type(workload).__name__.lower()} {workload.name}"
    )
    return (
        f"; its pods are refused: {' '.join(refusal.split())[:MOST_OF_A_REFUSAL]} "
        f"(once that is mended Kubernetes tries again, within 17 minutes; at once: {again})"
    )


def said_by(pods: Iterable[Pod], *, most: int | None = _MOST_WORDS) -> str:
    """Which of some pods does not run, and why, in the words of whoever says so; empty while nobody does."""
    for pod in pods:
        for statement in said_of(pod):
            if statement.words not in _STARTING:
                return f"pod {pod.name}: {' '.join(statement.words.split())[:most]}{_how_it_ends(pod)}"
    return ""


def _how_it_ends(pod: Pod) -> str:
    """How a container ends again and again, as the end of a sentence: the kubelet's words for that leave it out.

    Such as by a namespace's LimitRange, whose default is less memory than a program needs.
    """
    for status in (*pod.init_statuses, *pod.statuses):
        waiting, end = status.state.get("waiting"), status.before.get("terminated")
        if waiting is not None and waiting.reason == "CrashLoopBackOff" and end is not None:
            return f" (its last end: {end.reason or 'no reason'}, status {end.exit_code})"
    return ""


def _is_of(pod: Pod, workload: Deployment | DaemonSet) -> bool:
    """Whether a pod is a Deployment's or DaemonSet's."""
    # A Deployment's pods are made by a ReplicaSet that has its name and a hash. A DaemonSet may be called so too.
    made = (
        (pod.owner.rpartition("-")[0], "Deployment") if pod.owner_kind == "ReplicaSet" else (pod.owner, pod.owner_kind)
    )
    return made == (workload.name, type(workload).__name__)


def _refusal(cluster: Cluster, workload: Deployment | DaemonSet, pods: int) -> str:
    """Why a quota, Pod Security or somebody's policy refuses a workload's pods, of which there are so many."""
    if isinstance(workload, Deployment):
        return workload.refusal
    # Its controller says so in events alone, which stay for an hour.
    return next(reversed(cluster.warnings(workload.namespace, workload.name)), "") if pods < workload.desired else ""


def backend_ready(gvirtus: GvirtusSettings, name: str) -> Condition:
    """A backend of remote GPUs, unless it is to have the GPU of one that leaves the stack.

    Pulumi deletes what left a stack after everything else: on a node with one GPU, a backend that was given another
    name would wait for the old one for ever, and every later `up` too.
    """

    def missing(cluster: Cluster) -> str | None:
        deployments = {
            deployment.labels.get(BACKEND_LABEL): deployment
            for deployment in cluster.deployments(namespace=gvirtus.namespace)
        }
        if (backend := deployments.get(name)) is None:
            return "it does not exist yet"
        lacks = _not_rolled_out(cluster, backend)
        leaving = deployments.keys() - gvirtus.backends.keys() - {None}
        no_gpu = f"Insufficient {gvirtus.backends[name].gpu_resource}"
        if lacks and leaving and no_gpu in _said_by_pods(cluster, backend, most=None):
            return None
        return lacks

    return Condition(
        what=f"backend '{name}' of remote GPUs in namespace '{gvirtus.namespace}'",
        missing=missing,
        causes=(
            "Likely causes: its image can't be pulled, no node with a free GPU takes it, or its program ends.\n"
            f"Look at: kubectl --namespace {gvirtus.namespace} get pods,deployments,events"
        ),
    )


def guard_admits(manifest: Mapping[str, Any]) -> Condition:
    """The guard of all pods as it is in force, asked by a server-side dry run of an object of the stack's own.

    API servers learn of a change of the guard in their own time, a second or so.
    """

    def missing(cluster: Cluster) -> str | None:
        objection = cluster.objection(manifest, manager=_DRY_RUN_MANAGER)
        if objection is None or f"ValidatingAdmissionPolicy '{POD_GUARD}'" not in objection.message:
            return None
        return f"last heard: {objection.message}"

    return Condition(
        what=f"the pod guard to admit {manifest['kind']} '{manifest['metadata']['name']}'",
        missing=missing,
        causes=(
            "Likely causes: somebody changed the guard, which pulumi up --refresh puts back.\n"
            f"Look at: kubectl get validatingadmissionpolicies {POD_GUARD}"
        ),
    )


def webhook_answers(manifest: Mapping[str, Any], *, causes: str) -> Condition:
    """The admission webhook of an object's kind, asked by a server-side dry run of that object.

    Symptom without it: `failed calling webhook "queue-validation.kai.scheduler"` for the first queue of a new cluster.
    KAI's queue controller has no readiness probe, so its Deployment is available before it listens, and before its
    Service has an endpoint (KAI v0.17.0, pkg/operator/operands/queue_controller).

    A webhook that refuses the object has answered, and a schema or a policy that refuses it comes before every webhook:
    the object's own creation then says why.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]

    def missing(cluster: Cluster) -> str | None:
        objection = cluster.objection(manifest, manager=_DRY_RUN_MANAGER)
        if objection is None or objection.code in _SETTLED or any(words in objection.message for words in REFUSES):
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
