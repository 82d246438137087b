"""Checks of the exporter of metrics: it runs, may read what it counts, and somebody asks it."""

from collections.abc import Iterator, Mapping
from functools import partial

from config.stack import StackSettings
from manifests.monitoring.objects import NAME, OPERATOR_GROUP, objects
from operations.doctor.check import Check, Finding, Severity, Subject
from operations.doctor.checks.workloads import judge_deployment, remedy_of_deployment
from operations.doctor.facts import Facts, Source
from operations.doctor.monitoring import Prometheus, Role, RoleBinding

_ROLE = "cluster-role"
_BINDING = "cluster-role-binding"


def _enabled(facts: Facts) -> StackSettings | None:
    return facts.settings if facts.settings is not None and facts.settings.monitoring.enabled else None


def _exporter(facts: Facts) -> Iterator[Finding]:
    settings = _enabled(facts)
    if settings is not None:
        yield from judge_deployment(facts, settings.monitoring.namespace, NAME, role="The exporter of metrics")


def _rights(facts: Facts) -> Iterator[Finding]:
    settings = _enabled(facts)
    role = next((role for role in facts.monitoring.roles if role.name == NAME), None)
    binding = next((binding for binding in facts.monitoring.bindings if binding.name == NAME), None)
    # What is not there at all is a missing object of the stack.
    if settings is None or role is None or binding is None:
        return
    lacking = list(_lacking(settings, role))
    if lacking:
        yield Finding(
            Subject("ClusterRole", NAME, annotations=role.annotations),
            f"the exporter may not list {', '.join(lacking)}.",
            (f"ClusterRole {NAME}: no rule for them",),
        )
    if not _binds(settings, binding):
        yield Finding(
            Subject("ClusterRoleBinding", NAME, annotations=binding.annotations),
            f"the exporter's ServiceAccount {settings.monitoring.namespace}/{NAME} is not bound to its rights.",
            (f"ClusterRoleBinding {NAME}: {binding.in_words}",),
        )


def _lacking(settings: StackSettings, role: Role) -> Iterator[str]:
    for rule in objects(settings)[_ROLE].manifest["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                if not role.allows("list", group, resource):
                    yield resource


def _binds(settings: StackSettings, binding: RoleBinding) -> bool:
    manifest = objects(settings)[_BINDING].manifest
    return binding.role == manifest["roleRef"]["name"] and all(
        (subject["kind"], subject.get("namespace", ""), subject["name"]) in binding.accounts
        for subject in manifest["subjects"]
    )


def _no_kinds(facts: Facts) -> Iterator[Finding]:
    if facts.monitoring.missing_kinds:
        kinds = " and ".join(facts.monitoring.missing_kinds)
        yield Finding(
            Subject("Cluster", OPERATOR_GROUP),
            f"monitoring.service_monitor is true, and the cluster does not know {kinds}.",
            (f"{OPERATOR_GROUP}: no {kinds}",),
        )


def _nobody_asks(facts: Facts) -> Iterator[Finding]:
    settings = _enabled(facts)
    if settings is None or not settings.monitoring.service_monitor or facts.monitoring.missing_kinds:
        return
    namespace = settings.monitoring.namespace
    labels: dict[str, str] = next(
        (candidate.labels for candidate in facts.namespaces if candidate.name == namespace), {}
    )
    monitor = _monitor(settings)
    if any(prometheus.selects(monitor, namespace, labels) for prometheus in facts.monitoring.prometheuses):
        return
    yield Finding(
        Subject("ServiceMonitor", NAME, namespace),
        "no Prometheus of this cluster selects the exporter's ServiceMonitor.",
        tuple(map(_selection, facts.monitoring.prometheuses)) or ("there is no object Prometheus in the cluster",),
    )


def _monitor(settings: StackSettings) -> Mapping[str, str]:
    """The labels of the exporter's ServiceMonitor."""
    planned = (stack_object.manifest for stack_object in objects(settings).values())
    monitor = next(
        manifest for manifest in planned if (manifest["kind"], manifest["metadata"]["name"]) == ("ServiceMonitor", NAME)
    )
    labels: dict[str, str] = monitor["metadata"]["labels"]
    return labels


def _selection(prometheus: Prometheus) -> str:
    return f"Prometheus {prometheus.namespace}/{prometheus.name}: {prometheus.in_words}"


_check = partial(Check, severity=Severity.WARNING)

CHECKS = (
    _check(
        "KA1102",
        "The Prometheus Operator's kinds are missing",
        _no_kinds,
        needs={Source.MONITORING},
        symptom="`pulumi up` is refused, or the exporter is not asked any more and no alert fires.",
        cause="monitoring.service_monitor is true, and the Prometheus Operator was not installed, or was removed.",
        remedy="Install the Prometheus Operator, or set monitoring.service_monitor: false.",
        source="Prometheus Operator: monitoring.coreos.com/v1; docs/monitoring.md",
        explains=("KA0105",),
    ),
    _check(
        "KA1101",
        "The exporter of metrics does not run",
        _exporter,
        needs={Source.DEPLOYMENTS},
        symptom="Dashboards are empty, and KaiAnywhereMetricsAbsent fires.",
        cause=f"Deployment `{NAME}` is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(),
        source="this program: manifests/monitoring/objects.py",
        explains=("KA0105",),
    ),
    _check(
        "KA1103",
        "The exporter of metrics lacks rights",
        _rights,
        needs={Source.MONITORING},
        symptom="Metrics of queues, pods or nodes are missing, and KaiAnywhereMetricsRefused fires.",
        cause="Somebody changed its ClusterRole or the binding.",
        remedy="Put it back: `kai-anywhere repair --stack {stack}`.",
        source="this program: manifests/monitoring/objects.py",
    ),
    _check(
        "KA1104",
        "No Prometheus asks the exporter of metrics",
        _nobody_asks,
        needs={Source.MONITORING, Source.NAMESPACES},
        symptom="The exporter runs, and Prometheus has no metric of it.",
        cause="The labels of the ServiceMonitor are not those that your Prometheus selects, or its namespace is not.",
        remedy="Set monitoring.service_monitor_labels to what the evidence says, such as release: "
        "kube-prometheus-stack. A namespace is selected by the Prometheus' serviceMonitorNamespaceSelector.",
        source="Prometheus Operator: Prometheus.spec.serviceMonitorSelector and serviceMonitorNamespaceSelector",
    ),
)
