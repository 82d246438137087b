"""What must hold of the cluster before the first resource is registered; every finding at once."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from typing_extensions import override

from cluster.client import Cluster, HelmRevision, Namespace, Node, Version
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.kubeconfig import ChosenContext
from config.cluster import minor_version
from config.gvirtus import FRONTENDS_NAMESPACE
from config.platform import TegraPlatform, X86Platform
from config.reservation import POLICY_CARRIER_SINCE, Carrier
from config.stack import StackSettings
from manifests import gpu_operator, kai, reservation
from manifests.gvirtus_frontends import GPU_PRESENT
from manifests.node_labels import NVIDIA_PCI_DEVICE, node_labels

OLDEST_KUBERNETES = (1, 30)
"""ValidatingAdmissionPolicy, our guard, is served as v1 from here on."""


_PROVIDER = "pulumi:providers:kubernetes"
_RELEASE = "kubernetes:helm.sh/v3:Release"
_ENGINE_OWN = ("pulumi:pulumi:Stack", "pulumi:providers:")


@dataclass(frozen=True)
class DeployedState:
    """What the stack remembers of its last `up`.

    Attributes:
        deployed: whether it has any resource.
        cluster_uid: the identity of the cluster they are in, or None.
        releases: the Helm releases that it knows, as namespace and name.
    """

    deployed: bool = False
    cluster_uid: str | None = None
    releases: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, resources: Iterable[tuple[str, Mapping[str, object]]]) -> Self:
        """Read it from the state's resources, each a type token and its outputs."""
        known = list(resources)
        identities = {
            str(outputs["clusterIdentifier"])
            for token, outputs in known
            if token == _PROVIDER and outputs.get("clusterIdentifier")
        }
        return cls(
            deployed=any(not token.startswith(_ENGINE_OWN) for token, _ in known),
            cluster_uid=min(identities, default=None),
            releases=frozenset(
                (str(outputs.get("namespace")), str(outputs.get("name")))
                for token, outputs in known
                if token == _RELEASE
            ),
        )


@dataclass(frozen=True)
class ClusterFacts:
    """What was read from the cluster, once.

    Attributes:
        server: the API server's address.
        uid: the cluster's identity.
        version: the API server's version.
        nodes: by name.
        namespaces: those of ours that exist, by name.
        runtime_class: whether RuntimeClass `nvidia` exists.
        mutating_policies: whether MutatingAdmissionPolicy v1 is served.
        revisions: the stored revisions of our Helm releases, by namespace and release.
    """

    server: str
    uid: str
    version: Version
    nodes: dict[str, Node]
    namespaces: dict[str, Namespace]
    runtime_class: bool
    mutating_policies: bool
    revisions: dict[tuple[str, str], list[HelmRevision]]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it must be.

    Attributes:
        what: what was found.
        remedy: what to do.
        fatal: whether it stops the program.
    """

    what: str
    remedy: str
    fatal: bool = True

    @override
    def __str__(self) -> str:
        """Two lines a person reads."""
        return f"  {'error' if self.fatal else 'warning'}: {self.what}\n    -> {self.remedy}"


class PreflightError(ClusterError):
    """At least one finding is fatal."""


@dataclass(frozen=True)
class PreflightResult:
    """A passed preflight.

    Attributes:
        cluster_uid: the cluster's identity, or None where a preview found no cluster.
        warnings: what a person should know.
        context: the context under which the cluster answered, or None likewise.
    """

    cluster_uid: str | None
    warnings: tuple[str, ...]
    context: ChosenContext | None = field(default=None, compare=False)


def run_preflight(settings: StackSettings, state: DeployedState, *, preview: bool) -> PreflightResult:
    """Read the cluster and judge it.

    Args:
        settings: the stack's settings.
        state: what the stack remembers.
        preview: whether nothing will be changed; a stack never deployed can be previewed without a cluster.

    Raises:
        PreflightError: if anything is missing; the text lists every finding.
        ClusterError: if the cluster can't be read.
    """
    _refuse(list(missing_charts(settings)), "The stack's charts are")
    try:
        cluster = Cluster.connect(settings.cluster)
        try:
            facts = read_facts(cluster, settings)
        finally:
            cluster.close()
    except ClusterUnreachableError as error:
        if preview and not state.deployed:
            return PreflightResult(None, (f"Preview without a cluster: {error}",))
        raise
    findings = list(judge(settings, facts, state))
    _refuse(findings, f"The cluster at {facts.server} is")
    return PreflightResult(facts.uid, tuple(f"{finding.what} {finding.remedy}" for finding in findings), cluster.chosen)


def _refuse(findings: list[Finding], subject: str) -> None:
    if any(finding.fatal for finding in findings):
        listed = "\n".join(str(finding) for finding in findings)
        raise PreflightError(f"{subject} not ready for this stack. Nothing was changed.\n{listed}")


def missing_charts(settings: StackSettings) -> Iterator[Finding]:
    """Local charts that are not where the stack says; Helm itself looks for remote ones, in the preview."""
    for key, chart in (("gpu_operator", settings.gpu_operator.chart), ("kai", settings.kai.chart)):
        if not chart.is_local or chart.source is None or (key == "gpu_operator" and not settings.gpu_operator.install):
            continue
        path = Path(chart.source)
        if not path.is_file() and not (path / "Chart.yaml").is_file():
            yield Finding(
                f"{key}.chart.source is {path}, which is neither a chart folder (with Chart.yaml) nor an archive.",
                "Correct the path, or remove 'source' to use the official chart.",
            )


def read_facts(cluster: Cluster, settings: StackSettings) -> ClusterFacts:
    """Ask the cluster everything that the checks need."""
    releases = [(settings.kai.namespace, kai.RELEASE)]
    if settings.gpu_operator.install:
        releases.append((settings.gpu_operator.namespace, gpu_operator.RELEASE))
    names = [namespace for namespace, _ in releases] + [reservation.NAMESPACE, *_remote_namespaces(settings)]
    if settings.webhooks:
        names.append(settings.admission.namespace)
    namespaces = {name: found for name in names if (found := cluster.namespace(name)) is not None}
    return ClusterFacts(
        server=cluster.server,
        version=cluster.version(),
        uid=cluster.uid(),
        nodes=cluster.nodes(),
        namespaces=namespaces,
        runtime_class=cluster.has_runtime_class(reservation.RUNTIME_CLASS),
        mutating_policies=cluster.serves_mutating_admission_policies(),
        revisions={
            (namespace, release): cluster.helm_revisions(namespace, release)
            for namespace, release in releases
            if namespace in namespaces
        },
    )


def _remote_namespaces(settings: StackSettings) -> list[str]:
    remote = settings.gvirtus
    if remote is None:
        return []
    return [remote.namespace] if remote.frontends is None else [remote.namespace, FRONTENDS_NAMESPACE]


def judge(settings: StackSettings, facts: ClusterFacts, state: DeployedState) -> Iterator[Finding]:
    """Every finding, from the most basic on: identity first, since all others speak of that cluster."""
    if state.cluster_uid is not None and state.cluster_uid != facts.uid:
        yield Finding(
            f"this stack was deployed to the cluster {state.cluster_uid}; {facts.server} is another one ({facts.uid}).",
            "Choose the right context. If the old cluster is gone for good, forget its resources: "
            "pulumi state delete --all",
        )
        return
    yield from _version(settings, facts)
    yield from _nodes(settings, facts)
    yield from _frontends(settings, facts)
    yield from _platform(settings, facts)
    yield from _runtime_class(settings, facts)
    yield from _namespaces(settings, facts, state)
    yield from _releases(facts, state)


def _version(settings: StackSettings, facts: ClusterFacts) -> Iterator[Finding]:
    found = facts.version.minor_version
    if found < OLDEST_KUBERNETES:
        yield Finding(
            f"the API server is {facts.version.git}; the guard of the reservation namespace needs 1.30 or later.",
            "Upgrade the cluster.",
        )
    wanted = settings.cluster.kubernetes_version
    if wanted is not None and found < minor_version(wanted):
        yield Finding(
            f"the API server is {facts.version.git}, older than cluster.kubernetes_version {wanted}.",
            "Choose the right context, upgrade the cluster, or correct the setting.",
        )
    if settings.overrides_apply and settings.reservation.carrier is Carrier.POLICY and not facts.mutating_policies:
        why = (
            f"is {facts.version.git}, which is older than 1.36"
            if found < POLICY_CARRIER_SINCE
            else "does not serve MutatingAdmissionPolicy v1, which 1.36 has unless it was switched off"
        )
        yield Finding(
            f"reservation.carrier 'policy' can't work: the API server {why}.",
            "Upgrade the cluster, use reservation.carrier: webhook, or set reservation.overrides: never where the "
            "container toolkit injects the GPU by itself.",
        )
    if settings.gvirtus is not None and settings.gvirtus.carrier is Carrier.POLICY and not facts.mutating_policies:
        yield Finding(
            f"gvirtus.carrier 'policy' can't work: the API server ({facts.version.git}) does not serve "
            "MutatingAdmissionPolicy v1, which 1.36 has unless it was switched off.",
            "Upgrade the cluster, use gvirtus.carrier: webhook, or remove the section gvirtus.",
        )


def _nodes(settings: StackSettings, facts: ClusterFacts) -> Iterator[Finding]:
    known = ", ".join(sorted(facts.nodes)) or "none"
    for name in dict.fromkeys([*node_labels(settings), *_remote_nodes(settings)]):
        if name not in facts.nodes:
            near = difflib.get_close_matches(name, facts.nodes, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            yield Finding(
                f"the stack names the node '{name}', which the cluster does not have.{hint}",
                f"Correct the name or join the node. Nodes: {known}.",
            )
    for name, node in sorted(facts.nodes.items()):
        if node.labels.get("run.ai/fake.gpu") == "true":
            yield Finding(
                f"node '{name}' has the label run.ai/fake.gpu=true: KAI then runs every reservation pod of the cluster "
                "as a sleeping dummy.",
                f"Remove it on a cluster with real GPUs: kubectl label node {name} run.ai/fake.gpu-",
                fatal=False,
            )


def _remote_nodes(settings: StackSettings) -> list[str]:
    remote = settings.gvirtus
    if remote is None:
        return []
    backends = [backend.node for backend in remote.backends.values() if backend.node is not None]
    return sorted({*backends, *(remote.frontends.nodes if remote.frontends is not None else ())})


def _frontends(settings: StackSettings, facts: ClusterFacts) -> Iterator[Finding]:
    if settings.gvirtus is None or settings.gvirtus.frontends is None:
        return
    for name in sorted(settings.gvirtus.frontends.nodes):
        labels = facts.nodes[name].labels if name in facts.nodes else {}
        marks = [label for label in (GPU_PRESENT, NVIDIA_PCI_DEVICE) if labels.get(label) == "true"]
        if marks:
            yield Finding(
                f"gvirtus.frontends.nodes has '{name}', which has a GPU of its own ({marks[0]}=true): two device "
                "plugins would take turns there.",
                "Remove the node from gvirtus.frontends.nodes.",
            )


def _platform(settings: StackSettings, facts: ClusterFacts) -> Iterator[Finding]:
    memory = {n: u.gpu_memory_mib for n, u in settings.platform.unified_memory_nodes.items()}
    match settings.platform:
        case TegraPlatform(tegra_nodes=tegra):
            memory |= {name: node.gpu_memory_mib for name, node in tegra.items()}
            for name in tegra:
                node = facts.nodes.get(name)
                if node is not None and node.architecture not in {"arm64", ""}:
                    yield Finding(
                        f"the stack lists '{name}' as a Tegra node, but its architecture is {node.architecture}.",
                        "A Jetson is arm64. Remove the node from platform.tegra_nodes.",
                    )
        case X86Platform():
            pass
    for name, mib in sorted(memory.items()):
        node = facts.nodes.get(name)
        if node is not None and mib is not None and 0 < node.memory_mib < mib:
            yield Finding(
                f"node '{name}' has gpu_memory_mib {mib}, but shares {node.memory_mib} MiB with its GPU.",
                "KAI would promise memory that is not there: set gpu_memory_mib below MemTotal.",
                fatal=False,
            )


def _runtime_class(settings: StackSettings, facts: ClusterFacts) -> Iterator[Finding]:
    if not settings.gpu_operator.install and not facts.runtime_class:
        yield Finding(
            f"RuntimeClass '{reservation.RUNTIME_CLASS}' is missing, and gpu_operator.install is false.",
            "Install the GPU Operator first, or set gpu_operator.install: true.",
        )


def _namespaces(settings: StackSettings, facts: ClusterFacts, state: DeployedState) -> Iterator[Finding]:
    wanted = {reservation.NAMESPACE: reservation.reservation_namespace(settings)}
    if settings.gpu_operator.install:
        wanted[settings.gpu_operator.namespace] = gpu_operator.operator_namespace(settings)
    for name, found in sorted(facts.namespaces.items()):
        if not state.deployed and found.labels.get("app.kubernetes.io/part-of") != "kai-anywhere":
            yield Finding(
                f"namespace '{name}' exists already and is not ours, so an earlier installation may live in it.",
                f"Remove that installation and the namespace (kubectl delete namespace {name}), or choose another "
                "namespace in the settings.",
            )
        elif name in wanted:
            label = "pod-security.kubernetes.io/enforce"
            ours, theirs = wanted[name]["metadata"]["labels"][label], found.labels.get(label)
            if state.deployed and theirs not in {ours, "privileged"} and ours == "privileged":
                yield Finding(
                    f"namespace '{name}' enforces the pod-security level '{theirs}', where pods need '{ours}'.",
                    "Somebody changed the label; make repair puts it back.",
                    fatal=False,
                )


def _releases(facts: ClusterFacts, state: DeployedState) -> Iterator[Finding]:
    for (namespace, release), revisions in sorted(facts.revisions.items()):
        settled = [revision for revision in revisions if not revision.status.startswith("pending-")]
        if settled and (namespace, release) not in state.releases:
            yield Finding(
                f"Helm release '{release}' is installed in namespace '{namespace}', but not known to this stack: it is "
                "another stack's or was installed by hand, or a run was killed before it could note it down.",
                f"Uninstall it: helm uninstall {release} --namespace {namespace}. To keep it: "
                f"pulumi import kubernetes:helm.sh/v3:Release {release} {namespace}/{release}",
            )
        for revision in revisions:
            if revision.status.startswith("pending-"):
                yield Finding(
                    f"Helm release '{release}' is '{revision.status}': an earlier run was killed inside Helm, or "
                    "another one is at work.",
                    f"If nobody is at work, remove the half-done revision: kubectl --namespace {namespace} delete "
                    f"secret {revision.secret}",
                )
