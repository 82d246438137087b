"""For each check of metrics: what makes it fire, and what almost does."""

from typing import Any, Final

from manifests.monitoring.objects import NAME, objects
from testbed.stacks import Json, changed, monitoring, parse
from tests.support.doctor import World, deployment, named
from tests.unit.operations.doctor import changes as do
from tests.unit.operations.doctor.case import Case
from tests.unit.operations.doctor.changes import Break

_LABELS: Final = {"release": "kube-prometheus-stack"}


def metrics() -> Json:
    """A Jetson stack with metrics for the Prometheus Operator."""
    stack = changed(monitoring(), "monitoring.service_monitor", True)
    return changed(stack, "monitoring.service_monitor_labels", _LABELS)


def with_metrics(world: World) -> None:
    """What is on a cluster where the exporter is well, and asked."""
    settings = parse(metrics())
    made = {name: stack_object.manifest for name, stack_object in objects(settings).items()}
    world.lists["deployments"].append(deployment(NAME, settings.monitoring.namespace))
    world.lists["clusterroles"] = [made["cluster-role"]]
    world.lists["clusterrolebindings"] = [made["cluster-role-binding"]]
    world.lists["prometheuses"] = [_prometheus({"matchLabels": _LABELS}, {})]


def _prometheus(monitors: object, namespaces: object) -> dict[str, Any]:
    spec = {"serviceMonitorSelector": monitors, "serviceMonitorNamespaceSelector": namespaces}
    return {**named("k8s", "observability"), "spec": spec}


def _asks(monitors: object, namespaces: object) -> Break:
    return lambda world: world.lists.update(prometheuses=[_prometheus(monitors, namespaces)])


def _no_operator(world: World) -> None:
    world.prometheus_operator = False


def _verbs(*verbs: str) -> Break:
    def change(world: World) -> None:
        role = world.one("clusterroles", NAME)
        role["rules"] = [{**rule, "verbs": list(verbs)} for rule in role["rules"]]

    return change


MONITORING_CASES: Final = {
    "KA1101": Case(do.scale(NAME), do.half(NAME), stack=metrics),
    "KA1102": Case(_no_operator, _no_operator, stack=metrics, almost_on=monitoring),
    "KA1103": Case(_verbs("watch"), _verbs("*"), stack=metrics),
    "KA1104": Case(_asks({"matchLabels": {"release": "other"}}, {}), _asks({}, {}), stack=metrics),
}
