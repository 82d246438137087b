"""What can be verified before the stack is installed: preflight's findings, as steps. Changes nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cluster.access.answers.nodes import Node
from cluster.access.client import Cluster
from cluster.access.kubeconfig import for_its_cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.api_server import can_have, judge_server
from cluster.preflight.definitions import judge_unserved, read_unserved
from cluster.preflight.findings import Finding
from cluster.preflight.first_contact import meet, planned_labels, planned_objects, read_unknown
from cluster.preflight.installations import judge_installations, read_installations
from cluster.preflight.local_charts import wrong_charts
from cluster.preflight.nodes import judge_nodes
from cluster.preflight.priority_classes import judge_taken_priority_classes, read_taken_priority_classes
from cluster.preflight.profiles import judge_others_profiles, read_others_profiles
from cluster.preflight.prometheus_operator import judge_missing_kinds, read_missing_kinds
from cluster.preflight.pull_secrets import judge_missing_secrets, read_missing_secrets
from cluster.preflight.releases import judge_releases, read_revisions
from cluster.preflight.run import judge_runtime_class, others_operator
from cluster.preflight.running_pods import judge_running_pods, read_running_pods
from cluster.preflight.sharing import ISOLATOR_WEBHOOK, judge_sharing
from cluster.preflight.unified_memory import gpu_memory, judge_unified_memory, read_system_requests
from config.kai import GpuSharingMode
from config.stack import StackSettings
from manifests import gpu_operator, reservation
from manifests.node_labels import GPU_MEMORY, GPU_PRESENT, NVIDIA_PCI_DEVICE
from manifests.ownership import key, owner
from operations.doctor.check import Severity
from operations.doctor.checks import CHECKS
from operations.doctor.diagnosis import diagnose
from operations.doctor.facts import Facts
from operations.verify import rights
from operations.verify.steps import Outcome, Step

_NODE_CHECKS = frozenset({"KA0401", "KA0402"})
_ROOM_CHECKS = frozenset({"KA0103"})
"""Of doctor's checks those that ask nothing of the stack, and that preflight does not do itself."""
_NOTHING_REMEMBERED = DeployedState()


def verify(cluster: Cluster, settings: StackSettings, stack: str, facts: Facts, folder: Path) -> Iterator[Step]:
    """Each step; one that the user may not read is skipped.

    Args:
        cluster: where the stack is to be installed.
        settings: what it says.
        stack: the stack, as project/name.
        facts: what doctor has read.
        folder: where the stack's program runs, in which its relative paths begin.

    Raises:
        ClusterUnreachableError: the API server does not answer.
    """
    for step in _steps(cluster, settings, stack, facts, folder):
        evidence = tuple(for_its_cluster(line, cluster.chosen) for line in step.evidence)
        yield step.model_copy(update={"evidence": evidence})


def _steps(cluster: Cluster, settings: StackSettings, stack: str, facts: Facts, folder: Path) -> Iterator[Step]:
    yield _server(cluster, settings)
    yield _seen("nodes", lambda: _nodes(cluster, settings, facts))
    yield _seen("room", lambda: _room(cluster, settings, stack, facts))
    yield rights.verify(cluster, settings)
    yield _charts(settings, folder)


def _seen(name: str, look: Callable[[], Step]) -> Step:
    try:
        return look()
    except ClusterUnreachableError:
        raise
    except ClusterError as error:
        says = "not seen: this user may not read what it takes."
        return Step(name=name, outcome=Outcome.SKIPPED, says=says, evidence=(str(error).splitlines()[0],))


def _step(name: str, findings: Iterable[Finding], held: str, evidence: Iterable[str] = ()) -> Step:
    """Failed where a finding would stop `pulumi up`."""
    listed = list(findings)
    lines = [f"{'error' if finding.fatal else 'warning'}: {finding.what} {finding.remedy}" for finding in listed]
    errors = sum(finding.fatal for finding in listed)
    outcome = Outcome.FAILED if errors else Outcome.HELD
    says = f"{errors} {'error stops' if errors == 1 else 'errors stop'} the install." if errors else held
    return Step(name=name, outcome=outcome, says=says, evidence=(*lines, *evidence))


def _doctor(facts: Facts, codes: frozenset[str]) -> tuple[list[Finding], list[str]]:
    """What some of doctor's checks find, and what they could not see."""
    diagnosis = diagnose(facts, checks=[check for check in CHECKS if check.code in codes])
    judged = [problem.cause for problem in diagnosis.problems]
    findings = [
        Finding(cause.finding.what, cause.remedy, fatal=cause.check.severity is Severity.ERROR) for cause in judged
    ]
    return findings, [f"not seen: {gap.what}. {gap.why}" for gap in diagnosis.unseen]


def _server(cluster: Cluster, settings: StackSettings) -> Step:
    version, served = cluster.version(), cluster.mutating_policy_versions()
    held = f"{version.git} is what this stack needs."
    return _step("API server", judge_server(settings, version, served), held, [can_have(settings, version, served)])


def _nodes(cluster: Cluster, settings: StackSettings, facts: Facts) -> Step:
    nodes = cluster.nodes()
    isolator = settings.kai.gpu_sharing_mode is GpuSharingMode.HAMI_CORE and cluster.has_mutating_webhook(
        ISOLATOR_WEBHOOK
    )
    of_doctor, unseen = _doctor(facts, _NODE_CHECKS)
    findings = [
        *judge_nodes(settings, nodes),
        *judge_unified_memory(settings, nodes, read_system_requests(cluster, settings)),
        *judge_sharing(settings, nodes, isolator=isolator),
        *of_doctor,
    ]
    named = planned_labels(settings)
    with_gpu = [name for name, node in sorted(nodes.items()) if name in named or _shows_a_gpu(node)]
    evidence = [*(_facts(nodes[name], settings, named) for name in with_gpu), *unseen]
    if not with_gpu:
        evidence.append(f"not seen: which nodes have a GPU. Node Feature Discovery says it, which {_comes(settings)}.")
    listed = ", and `up` looks at those that `hosts` lists" if settings.hosts else ""
    evidence.append(f"not seen: drivers, and the files of container runtimes: they are on the hosts{listed}.")
    held = "those that the stack names are there." if named else "the stack names none: GPUs are detected."
    return _step("nodes", findings, held, evidence)


def _shows_a_gpu(node: Node) -> bool:
    marked = any(node.labels.get(label) == "true" for label in (GPU_PRESENT, NVIDIA_PCI_DEVICE))
    return bool(node.gpus) or marked or node.kernel.endswith("-tegra")


def _facts(node: Node, settings: StackSettings, named: Mapping[str, Mapping[str, str | None]]) -> str:
    seen = {
        "architecture": node.architecture,
        "kernel": node.kernel,
        "container runtime": node.container_runtime,
        "memory": f"{node.memory_mib} MiB" if node.memory_mib else "",
    }
    facts = ", ".join(f"{what} {value or 'not seen'}" for what, value in seen.items())
    return f"{node.name}: {facts}; GPU memory {_gpu_memory(node, settings, named)}"


def _gpu_memory(node: Node, settings: StackSettings, named: Mapping[str, Mapping[str, str | None]]) -> str:
    if (declared := gpu_memory(settings).get(node.name)) is not None:
        return f"{declared} MiB, as the settings say"
    if GPU_MEMORY in node.labels:
        return f"{node.labels[GPU_MEMORY]} MiB, as its label says"
    if GPU_MEMORY in named.get(node.name, {}):
        return "is asked of its host by `up`"
    return f"not seen: GPU Feature Discovery says it, which {_comes(settings)}"


def _comes(settings: StackSettings) -> str:
    """Where the GPU Operator's discoveries come from."""
    return "comes with `up`" if settings.gpu_operator.install else "this stack does not install"


def _room(cluster: Cluster, settings: StackSettings, stack: str, facts: Facts) -> Step:
    planned = planned_objects(settings)
    unknown = read_unknown(cluster, settings, _NOTHING_REMEMBERED)
    own = [name for name, live in unknown.items() if any(manager.startswith(owner(stack)) for manager in live.managers)]
    if own:
        says = (
            f"this stack is installed here already, or in part: {len(own)} of its {len(planned)} objects are its own. "
            "Whether it works: kai-anywhere verify. What is in its way: make preflight, which knows its state."
        )
        return Step(name="room", outcome=Outcome.SKIPPED, says=says)
    namespaces = {name for name in (settings.kai.namespace, settings.gpu_operator.namespace) if cluster.namespace(name)}
    installations = read_installations(cluster, settings, _NOTHING_REMEMBERED)
    revisions = read_revisions(cluster, settings, namespaces)
    if others_operator(settings, installations, revisions, _NOTHING_REMEMBERED):
        unknown.pop(key(gpu_operator.operator_namespace(settings)), None)
    contact = meet(settings, unknown, cluster.nodes(), _NOTHING_REMEMBERED, stack)
    of_doctor, unseen = _doctor(facts, _ROOM_CHECKS)
    # Those of another KAI are explained by it.
    taken = () if installations.kais else read_taken_priority_classes(cluster, settings, _NOTHING_REMEMBERED)
    findings = [
        *judge_runtime_class(settings, present=cluster.has_runtime_class(reservation.RUNTIME_CLASS)),
        *judge_others_profiles(settings, read_others_profiles(cluster, settings, _NOTHING_REMEMBERED)),
        *judge_missing_kinds(read_missing_kinds(cluster, settings)),
        *judge_installations(installations),
        *judge_taken_priority_classes(settings, taken),
        *contact.findings,
        *judge_running_pods(read_running_pods(cluster, settings, _NOTHING_REMEMBERED)),
        *judge_missing_secrets(read_missing_secrets(cluster, settings)),
        *judge_releases(revisions, _NOTHING_REMEMBERED, stack),
        *judge_unserved(read_unserved(cluster)),
        *of_doctor,
    ]
    adopted = [f"adopted: {name}, whose values are kept and given back" for name in sorted(contact.adopted)]
    held = f"nothing is in the way of its {len(planned)} objects, and there is no KAI or GPU Operator to double."
    return _step("room", findings, held, [*adopted, *unseen])


def _charts(settings: StackSettings, folder: Path) -> Step:
    charts = {"kai": settings.kai.chart}
    if settings.gpu_operator.install:
        charts["gpu_operator"] = settings.gpu_operator.chart
    local = [f"{key}.chart.source {Path(str(chart.source)).name}" for key, chart in charts.items() if chart.is_local]
    evidence = ["not seen: what the charts bring, and whether nodes can pull the images (make images lists them)"]
    if len(local) < len(charts):
        evidence.append("not seen: charts that are not local. Helm fetches them in the preview of `up`")
    held = f"they are where the stack says: {', '.join(local)}." if local else "none is local."
    return _step("charts", wrong_charts(settings, folder), held, evidence)
