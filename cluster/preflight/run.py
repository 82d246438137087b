"""What must hold of the cluster before the first resource is registered; every finding at once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import HelmRevision, LiveObject, Namespace
from cluster.access.answers.server import Version
from cluster.access.client import Cluster
from cluster.access.connection import UP_TIMEOUT_SECONDS
from cluster.access.kubeconfig import ChosenContext
from cluster.access.lists import at_once
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.api_server import can_have, judge_server
from cluster.preflight.definitions import judge_unserved, read_unserved
from cluster.preflight.findings import Finding, helm_puts_back
from cluster.preflight.first_contact import Contact, kai_is_ours, meet, planned_objects, read_unknown
from cluster.preflight.installations import Installations, judge_installations, read_installations
from cluster.preflight.local_charts import chart_name
from cluster.preflight.namespaces import judge_moves, judge_namespaces
from cluster.preflight.nodes import judge_nodes, remote_nodes
from cluster.preflight.prometheus_operator import judge_missing_kinds, read_missing_kinds
from cluster.preflight.running_pods import judge_running_pods, read_running_pods
from cluster.preflight.sharing import ISOLATOR_WEBHOOK, judge_sharing
from cluster.preflight.unified_memory import judge_unified_memory, read_system_requests
from config.gvirtus import FRONTENDS_NAMESPACE
from config.kai import GpuSharingMode
from config.stack import StackSettings
from manifests import gpu_operator, kai, reservation
from manifests.node_labels import NVIDIA_PCI_DEVICE, node_labels
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER
from manifests.wording import first_of


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
        missing_kinds: of the Prometheus Operator, where the stack needs them.
        shard: whether the default shard of the stack's own KAI is there.
        running_pods: those that KAI deletes when it starts, where the stack has yet to install it.
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
    missing_kinds: tuple[str, ...] = ()
    shard: bool = True
    running_pods: tuple[str, ...] = ()

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
    folder: Path = Path(),
) -> PreflightResult:
    """Read the cluster and judge it; a stack of hosts alone has none, and asks nobody.

    Args:
        settings: the stack's settings.
        state: what the stack remembers.
        preview: whether nothing will be changed; a stack never deployed can be previewed without a cluster.
        stack: the stack, as project/name. Without it, what a killed run of the stack made counts as somebody else's.
        destroys: whether the stack goes: then nothing matters but that this is its cluster.
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
            unserved = read_unserved(cluster) if not preview and _installs(settings, state) else ()
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
        findings += judge_nodes_that_left(settings, facts.nodes, state, stack, preview=preview)
        findings += judge_lost_namespaces(settings, facts.namespaces, state, stack, preview=preview)
        findings += judge_shard(settings, facts, preview=preview)
        findings += judge_lost_labels(settings, facts.nodes, state, stack, preview=preview)
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


def wrong_charts(settings: StackSettings, folder: Path) -> Iterator[Finding]:
    """Local charts that are not where the stack says, or are another one's; Helm itself looks for remote ones."""
    charts = (("gpu_operator", settings.gpu_operator.chart, GPU_OPERATOR), ("kai", settings.kai.chart, KAI_SCHEDULER))
    for key, chart, pin in charts:
        if not chart.is_local or chart.source is None or (key == "gpu_operator" and not settings.gpu_operator.install):
            continue
        path = folder / chart.source
        if not path.is_file() and not (path / "Chart.yaml").is_file():
            yield Finding(
                f"{key}.chart.source is {path}, which is neither a chart folder (with Chart.yaml) nor an archive.",
                "Correct the path, or remove 'source' to use the official chart.",
            )
        elif (name := chart_name(path)) not in {pin.name, None}:
            yield Finding(
                f"{key}.chart.source is {path}, which is the chart '{name}' and not '{pin.name}'.",
                f"Give the path of the chart '{pin.name}', or remove 'source' to use the official one.",
            )


def read_facts(cluster: Cluster, settings: StackSettings, state: DeployedState) -> ClusterFacts:
    """Ask the cluster everything that the checks need.

    Several questions at a time: a first preview has some thirty, and each takes as long as the way to the cluster.
    """
    # Alone, and first: a cluster that does not answer is found out by one question.
    version = cluster.version()
    names = [namespace for namespace, _ in _releases(settings)] + [reservation.NAMESPACE, *_remote_namespaces(settings)]
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
        running_pods = threads.submit(read_running_pods, cluster, state)
        answers = dict(zip(names, threads.map(cluster.namespace, names), strict=True))
        namespaces = {name: namespace for name, namespace in answers.items() if namespace is not None}
        return ClusterFacts(
            server=cluster.server,
            context=cluster.context,
            version=version,
            uid=uid.result(),
            nodes=nodes.result(),
            namespaces=namespaces,
            runtime_class=runtime_class.result(),
            mutating_policies=policies.result(),
            revisions=read_revisions(cluster, settings, namespaces),
            installations=installations.result(),
            unknown=read_unknown(cluster, settings, state),
            isolator=isolator.result(),
            system_requests=requests.result(),
            missing_kinds=missing_kinds.result(),
            shard=shard.result(),
            running_pods=running_pods.result(),
        )


def _has_isolator(cluster: Cluster, settings: StackSettings) -> bool:
    return settings.kai.gpu_sharing_mode is GpuSharingMode.HAMI_CORE and cluster.has_mutating_webhook(ISOLATOR_WEBHOOK)


def _has_shard(cluster: Cluster, settings: StackSettings, state: DeployedState) -> bool:
    return not kai_is_ours(settings, state) or cluster.find_object(kai.default_shard()) is not None


def read_revisions(
    cluster: Cluster, settings: StackSettings, namespaces: Collection[str]
) -> dict[tuple[str, str], list[HelmRevision]]:
    """The stored revisions of the stack's Helm releases, by namespace and release.

    Args:
        cluster: where they are.
        settings: the stack's settings.
        namespaces: those that exist; in others nothing is asked for.
    """
    return {
        (namespace, release): cluster.helm_revisions(namespace, release) if namespace in namespaces else []
        for namespace, release in _releases(settings)
    }


def _releases(settings: StackSettings) -> list[tuple[str, str]]:
    """Namespace and name of each Helm release of the stack."""
    releases = [(settings.kai.namespace, kai.RELEASE)]
    if settings.gpu_operator.install:
        releases.append((settings.gpu_operator.namespace, gpu_operator.RELEASE))
    return releases


def _installs(settings: StackSettings, state: DeployedState) -> bool:
    """Whether a release of the stack is yet to be installed."""
    return not state.releases.issuperset(_releases(settings))


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
    yield from judge_missing_kinds(facts.missing_kinds)
    yield from judge_installations(facts.installations)
    yield from contact.findings
    yield from judge_namespaces(facts.namespaces.values(), state)
    yield from judge_moves(settings, state)
    yield from judge_running_pods(facts.running_pods)
    yield from _pod_security(settings, facts, state)
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
        "stack of its own: pulumi stack init. Keep the old state: it knows what is to be given back.",
    )


def judge_runtime_class(settings: StackSettings, *, present: bool) -> Iterator[Finding]:
    """Whether somebody has made the RuntimeClass that the stack does not make."""
    if not settings.gpu_operator.install and not present:
        yield Finding(
            f"RuntimeClass '{reservation.RUNTIME_CLASS}' is missing, and gpu_operator.install is false.",
            "Install the GPU Operator first, or set gpu_operator.install: true.",
        )


def judge_own_releases(settings: StackSettings, state: DeployedState, stack: str) -> Iterator[Finding]:
    """Releases of the stack's own that its settings want elsewhere, or not any more."""
    wanted = {release: namespace for namespace, release in _releases(settings)}
    for namespace, release in sorted(state.releases):
        key = "kai" if release == kai.RELEASE else "gpu_operator"
        if release not in wanted:
            yield Finding(
                f"gpu_operator.install is false, and this stack installed the GPU Operator in namespace '{namespace}': "
                f"`pulumi up` uninstalls it. RuntimeClass '{reservation.RUNTIME_CLASS}' and the GPUs of every node go "
                "with it.",
                "To keep it, set gpu_operator.install: true. Otherwise install another one after that run, and then "
                f"put back the labels of nodes that go with this one: pulumi up --refresh{_option(stack)}",
                fatal=False,
            )
        elif namespace != wanted[release]:
            yield Finding(
                f"{key}.namespace is '{wanted[release]}', but this stack installed Helm release '{release}' in "
                f"namespace '{namespace}', and a release can't move.",
                f"Set {key}.namespace: {namespace}. To have it elsewhere, remove the stack before you change the "
                "setting: pulumi destroy.",
            )


def judge_nodes_that_left(
    settings: StackSettings, nodes: Mapping[str, Node], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Nodes that left both the cluster and the settings, and not the state.

    Symptom without it: an empty Node of that name, for which nobody is there. To let go of its labels the Kubernetes
    provider applies a Node without any, and does not look whether there is one (4.25, ssa.Relinquish; not reported
    upstream that we know of). Adopted ones are let go by us.
    """
    named = {*node_labels(settings), *remote_nodes(settings)}
    for node in sorted(state.patched - nodes.keys() - named):
        if f"Node/{node}" not in state.adopted:
            yield Finding(
                f"node '{node}' left the cluster, and the stack still remembers its labels: taking them off, Pulumi's "
                "Kubernetes provider would make an empty node of that name.",
                f"Let the stack forget it first: pulumi refresh{_option(stack)}",
                fatal=not preview,
            )


def judge_lost_labels(
    settings: StackSettings, nodes: Mapping[str, Node], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Labels that the state has and the cluster has not: no run writes them without a refresh.

    They went with the stack's GPU Operator, or with a node that joined again under its name. Or an `up` that was to
    take a Jetson out failed midway, and the settings were put back: the operator takes its labels off what is no GPU
    node any more. Symptom without it, where the operator is to be installed again, or is to find the node again: it
    rolls its container toolkit out on Jetsons.
    """
    installs = settings.gpu_operator.install and gpu_operator.RELEASE not in {release for _, release in state.releases}
    planned = node_labels(settings)
    for name, labels in state.labels.items():
        lost = [label for label in labels if name in nodes and label not in nodes[name].labels]
        found_again = settings.gpu_operator.install and name in planned and NVIDIA_PCI_DEVICE in lost
        if lost and not installs and not found_again and name in planned:
            yield Finding(
                f"node '{name}' lost labels that the stack gave it: {', '.join(lost)}. It joined again, or somebody "
                "took them off.",
                f"Only a refresh tells the stack, and then they are put back: pulumi up --refresh{_option(stack)}",
                fatal=False,
            )
        elif lost and (installs or found_again):
            yield Finding(
                f"node '{name}' lost labels that the stack gave it, and this run would not write them again: "
                f"{', '.join(lost)}.",
                f"Let the stack see that first: pulumi refresh{_option(stack)}",
                fatal=not preview,
            )


def judge_lost_namespaces(
    settings: StackSettings, namespaces: Mapping[str, Namespace], state: DeployedState, stack: str, *, preview: bool
) -> Iterator[Finding]:
    """Namespaces that are gone, with objects of which the state says that they are there: no run makes these again.

    A run that is to move a part of the stack to another namespace deletes the old one first. Symptom without it, where
    that run failed or was killed and the settings were put back: `pulumi up` succeeds without a word, and nothing of
    the part is there.
    Of a namespace with a release, which never moves, the wait for the release's pods tells it.
    """
    planned = planned_objects(settings)
    with_release = {namespace for namespace, _ in state.releases}
    for name in sorted(
        manifest["metadata"]["name"] for manifest in planned.values() if manifest["kind"] == "Namespace"
    ):
        live = namespaces.get(name)
        inside = [
            known
            for known, manifest in planned.items()
            if known in state.objects
            and (known == f"Namespace/{name}" or manifest["metadata"].get("namespace") == name)
        ]
        if not inside or name in with_release or (live is not None and live.deleted is None):
            continue
        refresh = f"pulumi up --refresh{_option(stack)}"
        yield Finding(
            f"namespace '{name}' {'is gone' if live is None else 'is being deleted'} with what this stack had in it: "
            f"{first_of(inside)}. Somebody deleted it, or a run that failed or was killed while it moved it.",
            f"Only a refresh tells the stack, and then all of that is made again: {refresh}"
            if live is None
            else f"Wait until it is gone, then let the stack see that: {refresh}",
            # Where it is gone, that command itself comes here with what the state said before its refresh.
            fatal=live is not None and not preview,
        )


def judge_shard(settings: StackSettings, facts: ClusterFacts, *, preview: bool) -> Iterator[Finding]:
    """The default shard, of which the stack knows but the name: what is in it is the chart's."""
    namespace = settings.kai.namespace
    newest = max(facts.revisions.get((namespace, kai.RELEASE), []), key=lambda revision: revision.version, default=None)
    # Into a release that failed, the run looks itself.
    if not facts.shard and newest is not None and newest.status == "deployed":
        yield Finding(
            "KAI's SchedulingShard 'default' is gone: KAI schedules nothing, and a refresh would make an empty one, "
            "without kai.scheduler's settings.",
            helm_puts_back(kai.RELEASE, namespace),
            fatal=not preview,
        )


def _pod_security(settings: StackSettings, facts: ClusterFacts, state: DeployedState) -> Iterator[Finding]:
    desired = {reservation.NAMESPACE: reservation.reservation_namespace(settings)}
    if settings.gpu_operator.install:
        desired[settings.gpu_operator.namespace] = gpu_operator.operator_namespace(settings)
    if not state.deployed:
        return
    label = "pod-security.kubernetes.io/enforce"
    for name, namespace in sorted(facts.namespaces.items()):
        if name not in desired:
            continue
        ours, theirs = desired[name]["metadata"]["labels"][label], namespace.labels.get(label)
        if theirs not in {ours, "privileged"} and ours == "privileged":
            yield Finding(
                f"namespace '{name}' enforces the pod-security level '{theirs}', where pods need '{ours}'.",
                "Somebody changed the label; pulumi up --refresh puts it back.",
                fatal=False,
            )


def judge_releases(
    stored: Mapping[tuple[str, str], Sequence[HelmRevision]], state: DeployedState, stack: str
) -> Iterator[Finding]:
    """Helm releases under the stack's names that are half done, or that the stack does not know.

    Args:
        stored: the revisions, by namespace and release.
        state: what the stack remembers.
        stack: the stack, as project/name.
    """
    option = _option(stack)
    for (namespace, release), revisions in sorted(stored.items()):
        if (namespace, release) in state.releases and not revisions:
            yield Finding(
                f"Helm release '{release}', which this stack installed in namespace '{namespace}', is not there any "
                "more: somebody uninstalled it, or deleted the namespace.",
                f"Only a refresh tells the stack, and then it is installed anew: pulumi up --refresh{option}. Without "
                "it the run fails.",
                fatal=False,
            )
        settled = [revision for revision in revisions if not revision.half_done]
        if settled and (namespace, release) not in state.releases:
            yield Finding(
                f"Helm release '{release}' is installed in namespace '{namespace}', but not known to this stack: it is "
                "another stack's or was installed by hand, or a run was killed before it could note it down.",
                "Choose another context, and nothing of it is touched. If a run of this stack was killed, undo what it "
                f"made, and run it again: kai-anywhere rollback{option}",
            )
        for revision in revisions:
            if revision.half_done:
                yield Finding(
                    f"Helm release '{release}' is '{revision.status}': an earlier run was killed inside Helm, or "
                    "another one is at work.",
                    f"Wait for whoever works there, since {revision.created}. If that was a run of this stack which "
                    f"is dead, take back its half-done revision: kai-anywhere rollback --only-heal{option}. Or by "
                    f"hand: kubectl --namespace {namespace} delete secret {revision.secret}",
                )


def _option(stack: str) -> str:
    """The option of a command that names the stack, where it is known."""
    return f" --stack {name}" if (name := stack.rpartition("/")[2]) else ""
