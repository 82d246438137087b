"""What must hold of the cluster before the first resource is registered; every finding at once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import HelmRevision, LiveObject, Namespace
from cluster.access.answers.server import Version
from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.access.kubeconfig import ChosenContext, for_its_cluster
from cluster.access.lists import at_once
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.api_server import can_have, judge_server
from cluster.preflight.definitions import judge_unserved, read_unserved
from cluster.preflight.findings import Finding
from cluster.preflight.first_contact import Contact, kai_is_ours, meet, planned_objects, read_unknown
from cluster.preflight.installations import Installations, judge_installations, read_installations
from cluster.preflight.local_charts import wrong_charts
from cluster.preflight.moving_nodes import MovingNode, judge_moving_nodes, read_moving_nodes
from cluster.preflight.namespaces import judge_lost_namespaces, judge_moves, judge_namespaces, judge_pod_security
from cluster.preflight.nodes import judge_nodes
from cluster.preflight.priority_classes import judge_taken_priority_classes, read_taken_priority_classes
from cluster.preflight.profiles import OthersProfiles, judge_others_profiles, read_others_profiles
from cluster.preflight.prometheus_operator import judge_missing_kinds, read_missing_kinds
from cluster.preflight.pull_secrets import PullSecret, judge_missing_secrets, read_missing_secrets
from cluster.preflight.queues import LeavingQueues, judge_leaving_queues, read_leaving_queues
from cluster.preflight.releases import (
    installs,
    is_unknown,
    judge_own_releases,
    judge_releases,
    judge_shard,
    read_revisions,
    releases,
)
from cluster.preflight.remembered_nodes import judge_lost_labels, judge_nodes_that_left
from cluster.preflight.running_pods import RunningPods, judge_running_pods, read_running_pods
from cluster.preflight.sharing import ISOLATOR_WEBHOOK, judge_sharing
from cluster.preflight.unified_memory import judge_unified_memory, read_system_requests
from config.gvirtus import FRONTENDS_NAMESPACE
from config.kai import GpuSharingMode
from config.stack import StackSettings
from manifests import gpu_operator, kai, reservation
from manifests.ownership import key


@dataclass(frozen=True)
class ClusterFacts:
    """What was read from the cluster, once.

    Attributes:
        server: the API server's address.
        context: the kubeconfig's context.
        uid: the cluster's identity.
        version: the API server's version.
        nodes: by name.
        namespaces: those of ours that exist, by name.
        runtime_class: whether RuntimeClass `nvidia` exists.
        mutating_policies: the versions in which MutatingAdmissionPolicy is served.
        revisions: the stored revisions of our Helm releases, by namespace and release.
        installations: GPU Operators and KAI schedulers that are not the stack's.
        unknown: what is there under the names of the stack's objects and is not in its state.
        isolator: whether the webhook is there that gives pods HAMi-core; read only where the stack needs it.
        system_requests: MiB that pods request of the system's memory, by node with unified memory.
        missing_kinds: of the Prometheus Operator, by the setting that needs them.
        shard: whether the default shard of the stack's own KAI is there.
        profiles: of the device plugin, where somebody else runs the GPU Operator and the stack needs some.
        running_pods: those on shared GPUs that KAI will delete or not make again.
        leaving_queues: those that the run deletes, and what is in them.
        missing_secrets: with the login of a registry, that the settings name.
        moving_nodes: those that are to share in another way while pods use their GPUs.
        taken_priority_classes: somebody else's, under the names of those that KAI's chart brings.
    """

    server: str
    context: str
    uid: str
    version: Version
    nodes: dict[str, Node]
    namespaces: dict[str, Namespace]
    runtime_class: bool
    mutating_policies: frozenset[str]
    revisions: dict[tuple[str, str], list[HelmRevision]]
    installations: Installations = field(default_factory=Installations)
    unknown: Mapping[str, LiveObject] = field(default_factory=dict)
    isolator: bool = False
    system_requests: Mapping[str, int] = field(default_factory=dict)
    missing_kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shard: bool = True
    profiles: OthersProfiles | None = None
    running_pods: RunningPods = field(default_factory=RunningPods)
    leaving_queues: LeavingQueues = field(default_factory=LeavingQueues)
    missing_secrets: tuple[PullSecret, ...] = ()
    moving_nodes: tuple[MovingNode, ...] = ()
    taken_priority_classes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The cluster as a person knows it."""
        return where(self.server, self.context)


def where(server: str, context: str) -> str:
    """A cluster as a person knows it."""
    return f"the cluster at {server} (context '{context}')"


class PreflightError(ClusterError):
    """At least one finding is fatal."""


@dataclass(frozen=True)
class PreflightResult:
    """A passed preflight.

    Attributes:
        cluster_uid: the cluster's identity, or None where a preview found no cluster, or the stack is of hosts alone.
        warnings: what a person should know.
        context: the context under which the cluster answered, or None likewise.
        adopted: what objects that the stack adopts held before, by object.
        checked: what was looked at, in words; empty without a cluster.
    """

    cluster_uid: str | None
    warnings: tuple[str, ...]
    context: ChosenContext | None = field(default=None, compare=False)
    adopted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checked: str = ""


def run_preflight(  # noqa: PLR0913 - all by name
    settings: StackSettings,
    state: DeployedState,
    *,
    preview: bool,
    stack: str = "",
    destroys: bool = False,
    refreshes: bool = False,
    folder: Path = Path(),
) -> PreflightResult:
    """Read the cluster and judge it; a stack of hosts alone has none, and asks nobody.

    Args:
        settings: the stack's settings.
        state: what the stack remembers.
        preview: whether nothing will be changed; a stack never deployed can be previewed without a cluster.
        stack: the stack, as project/name. Without it, what a killed run of the stack made counts as somebody else's.
        destroys: whether the stack goes: then nothing matters but that this is its cluster.
        refreshes: whether the run has asked the cluster about all that the stack remembers.
        folder: where the program runs, in which the stack's relative paths begin.

    Raises:
        PreflightError: if anything is missing; the text lists every finding. Or if a stack of hosts alone has a
            cluster.
        ClusterError: if the cluster can't be read.
    """
    if settings.hosts_alone:
        _refuse_what_is_left_behind(state)
        return PreflightResult(None, ())
    if not destroys:
        _refuse(list(wrong_charts(settings, folder)), "The stack's charts are")
    try:
        with closing(Cluster.connect(settings.cluster, timeout_seconds=UP_TIMEOUT_SECONDS)) as cluster:
            facts = read_facts(cluster, settings, state)
            unserved = read_unserved(cluster) if not preview and installs(settings, state) else ()
    except ClusterUnreachableError as error:
        if preview and not state.deployed:
            return PreflightResult(None, (f"Preview without a cluster: {error}",))
        raise
    contact = meet(settings, facts.unknown, facts.nodes, state, stack)
    if destroys and another_cluster(state, facts.where, facts.uid) is None:
        _refuse(list(judge_namespaces(facts.namespaces.values(), state)), f"T{facts.where[1:]} is")
        return PreflightResult(facts.uid, (), cluster.chosen, contact.adopted)
    findings = list(judge(settings, facts, state, contact, stack))
    if state.cluster_uid in {None, facts.uid}:
        findings += judge_unserved(unserved)
        lost = judge_lost_namespaces(settings, facts.namespaces, state, stack, preview=preview)
        findings += [finding for finding in lost if finding.fatal or not refreshes]
        findings += judge_shard(settings, facts.revisions, present=facts.shard, preview=preview)
        if not refreshes:
            findings += judge_nodes_that_left(settings, facts.nodes, state, stack, preview=preview)
            findings += judge_lost_labels(settings, facts.nodes, state, stack, preview=preview)
    findings = [replace(finding, remedy=for_its_cluster(finding.remedy, cluster.chosen)) for finding in findings]
    _refuse(findings, f"T{facts.where[1:]} is")
    warnings = tuple(f"In {facts.where}: {finding.what} {finding.remedy}" for finding in findings)
    return PreflightResult(facts.uid, warnings, cluster.chosen, contact.adopted, _checked(settings, facts))


def _refuse_what_is_left_behind(state: DeployedState) -> None:
    """A stack that has a cluster can't become one of hosts alone: its next `up` would remove what is there.

    Raises:
        PreflightError: if the stack installed something in a cluster.
    """
    if state.cluster_uid is not None:
        raise PreflightError(
            f"installs is 'hosts', but this stack installed KAI in the cluster {state.cluster_uid}, and `pulumi up` "
            "would remove all of that. Nothing was changed.\n"
            "Remove 'installs', and make a stack of its own for the hosts: pulumi stack init. Or remove this one "
            "first: pulumi destroy."
        )


def _checked(settings: StackSettings, facts: ClusterFacts) -> str:
    objects = len(planned_objects(settings))
    return (
        f"Looked at {facts.where}: its version ({facts.version.git}), {len(facts.nodes)} nodes, GPU Operators and KAI "
        f"schedulers in every namespace, the stack's releases, and whose its {objects} objects and node labels are. "
        f"{can_have(settings, facts.version, facts.mutating_policies)} "
        "Not looked at: hosts, images, and what the charts bring."
    )


def _refuse(findings: list[Finding], subject: str) -> None:
    if any(finding.fatal for finding in findings):
        listed = "\n".join(str(finding) for finding in findings)
        raise PreflightError(f"{subject} not ready for this stack. Nothing was changed.\n{listed}")


def read_facts(cluster: Cluster, settings: StackSettings, state: DeployedState) -> ClusterFacts:
    """Ask the cluster everything that the checks need.

    Several questions at a time: a first preview has some thirty, and each takes as long as the way to the cluster.
    """
    # Alone, and first: a cluster that does not answer is found out by one question.
    version = cluster.version()
    names = [namespace for namespace, _ in releases(settings)] + [reservation.NAMESPACE, *_remote_namespaces(settings)]
    if settings.webhooks:
        names.append(settings.admission.namespace)
    if settings.monitoring.enabled:
        names.append(settings.monitoring.namespace)
    with at_once() as threads:
        uid, nodes = threads.submit(cluster.uid), threads.submit(cluster.nodes)
        runtime_class = threads.submit(cluster.has_runtime_class, reservation.RUNTIME_CLASS)
        policies = threads.submit(cluster.mutating_policy_versions)
        installations = threads.submit(read_installations, cluster, settings, state)
        requests = threads.submit(read_system_requests, cluster, settings)
        missing_kinds = threads.submit(read_missing_kinds, cluster, settings)
        isolator = threads.submit(_has_isolator, cluster, settings)
        shard = threads.submit(_has_shard, cluster, settings, state)
        profiles = threads.submit(read_others_profiles, cluster, settings, state)
        running_pods = threads.submit(read_running_pods, cluster, settings, state)
        leaving_queues = threads.submit(read_leaving_queues, cluster, settings, state)
        missing_secrets = threads.submit(read_missing_secrets, cluster, settings)
        priority_classes = threads.submit(read_taken_priority_classes, cluster, settings, state)
        moving_nodes = threads.submit(lambda: read_moving_nodes(cluster, settings, nodes.result(), state))
        answers = dict(zip(names, threads.map(cluster.namespace, names), strict=True))
        namespaces = {name: namespace for name, namespace in answers.items() if namespace is not None}
        revisions = read_revisions(cluster, settings, namespaces)
        unknown = read_unknown(cluster, settings, state)
        if others_operator(settings, installations.result(), revisions, state):
            unknown.pop(key(gpu_operator.operator_namespace(settings)), None)
        return ClusterFacts(
            server=cluster.server,
            context=cluster.context,
            version=version,
            uid=uid.result(),
            nodes=nodes.result(),
            namespaces=namespaces,
            runtime_class=runtime_class.result(),
            mutating_policies=policies.result(),
            revisions=revisions,
            installations=installations.result(),
            unknown=unknown,
            isolator=isolator.result(),
            system_requests=requests.result(),
            missing_kinds=missing_kinds.result(),
            shard=shard.result(),
            profiles=profiles.result(),
            running_pods=running_pods.result(),
            leaving_queues=leaving_queues.result(),
            missing_secrets=missing_secrets.result(),
            moving_nodes=moving_nodes.result(),
            taken_priority_classes=priority_classes.result(),
        )


def others_operator(
    settings: StackSettings,
    installations: Installations,
    revisions: Mapping[tuple[str, str], Sequence[HelmRevision]],
    state: DeployedState,
) -> bool:
    """Whether somebody has an operator.

    He is told to leave the stack's out, and its namespace with it: nothing is adopted then.
    """
    operator = (settings.gpu_operator.namespace, gpu_operator.RELEASE)
    return bool(installations.gpu_operators) or is_unknown(operator, revisions.get(operator, ()), state)


def _has_isolator(cluster: Cluster, settings: StackSettings) -> bool:
    return settings.kai.gpu_sharing_mode is GpuSharingMode.HAMI_CORE and cluster.has_mutating_webhook(ISOLATOR_WEBHOOK)


def _has_shard(cluster: Cluster, settings: StackSettings, state: DeployedState) -> bool:
    return not kai_is_ours(settings, state) or cluster.find_object(kai.default_shard()) is not None


def _remote_namespaces(settings: StackSettings) -> list[str]:
    remote = settings.gvirtus
    if remote is None:
        return []
    return [remote.namespace] if remote.frontends is None else [remote.namespace, FRONTENDS_NAMESPACE]


def judge(
    settings: StackSettings, facts: ClusterFacts, state: DeployedState, contact: Contact, stack: str
) -> Iterator[Finding]:
    """Every finding, from the most basic on: identity first, since all others speak of that cluster."""
    if mismatch := another_cluster(state, facts.where, facts.uid):
        yield mismatch
        return
    yield from judge_server(settings, facts.version, facts.mutating_policies)
    yield from judge_nodes(settings, facts.nodes)
    yield from judge_unified_memory(settings, facts.nodes, facts.system_requests)
    yield from judge_sharing(settings, facts.nodes, isolator=facts.isolator)
    yield from judge_runtime_class(settings, present=facts.runtime_class)
    yield from judge_own_releases(settings, state, stack)
    yield from judge_others_profiles(settings, facts.profiles)
    yield from judge_missing_kinds(facts.missing_kinds)
    yield from judge_installations(facts.installations)
    # Those of another KAI are explained by it.
    if not facts.installations.kais:
        yield from judge_taken_priority_classes(settings, facts.taken_priority_classes)
    yield from contact.findings
    yield from judge_namespaces(facts.namespaces.values(), state)
    yield from judge_moves(settings, state)
    yield from judge_running_pods(facts.running_pods)
    yield from judge_leaving_queues(facts.leaving_queues)
    yield from judge_moving_nodes(facts.moving_nodes)
    yield from judge_missing_secrets(facts.missing_secrets)
    yield from judge_pod_security(settings, facts.namespaces, state)
    yield from judge_releases(facts.revisions, state, stack)


def another_cluster(state: DeployedState, where: str, uid: str) -> Finding | None:
    """What is wrong where a stack meets a cluster that it was not deployed to.

    Args:
        state: what the stack remembers.
        where: the cluster, as a person knows it.
        uid: its identity.
    """
    if state.cluster_uid is None or state.cluster_uid == uid:
        return None
    return Finding(
        f"this stack was deployed to the cluster {state.cluster_uid}; {where} is another one ({uid}).",
        "Choose the right context: cluster.context in the stack's settings, or KUBECONFIG. For this cluster make a "
        "stack of its own: pulumi stack init. Keep the old state: it knows what is to be given back. Only if that "
        "cluster does not exist any more, as after a board was flashed, forget it: docs/recovery.md, Another cluster.",
    )


def judge_runtime_class(settings: StackSettings, *, present: bool) -> Iterator[Finding]:
    """Whether somebody has made the RuntimeClass that the stack does not make."""
    if not settings.gpu_operator.install and not present:
        yield Finding(
            f"RuntimeClass '{reservation.RUNTIME_CLASS}' is missing, and gpu_operator.install is false.",
            "Install the GPU Operator first, or set gpu_operator.install: true.",
        )
