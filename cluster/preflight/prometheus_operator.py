"""Whether the cluster has the Prometheus Operator's kinds, where a stack or its GPU Operator makes objects of them."""

from collections.abc import Iterator, Mapping

from cluster.access.client import Cluster
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests.monitoring.objects import OPERATOR_GROUP

OURS = "monitoring.service_monitor"
_DCGMS = "gpu_operator.dcgm_exporter.service_monitor"
_KINDS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


def read_missing_kinds(cluster: Cluster, settings: StackSettings) -> dict[str, tuple[str, ...]]:
    """Those that a setting needs and the cluster does not have, by setting; nothing is asked where none is needed."""
    needed = {
        setting: tuple(_KINDS[plural] for plural in plurals if not cluster.has_kind(OPERATOR_GROUP, plural))
        for setting, plurals in _needed(settings)
    }
    return {setting: kinds for setting, kinds in needed.items() if kinds}


def _needed(settings: StackSettings) -> Iterator[tuple[str, tuple[str, ...]]]:
    operator = settings.gpu_operator
    if settings.monitoring.enabled and settings.monitoring.service_monitor:
        yield OURS, tuple(_KINDS)
    if operator.install and operator.dcgm_exporter.enabled and operator.dcgm_exporter.service_monitor:
        yield _DCGMS, ("servicemonitors",)


def judge_missing_kinds(missing: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """What is wrong with that: of its own, the stack can make none; the GPU Operator waits for its one."""
    for setting, kinds in missing.items():
        waits = setting == _DCGMS
        # GPU Operator v26.7 controllers/object_controls.go, ServiceMonitor.
        consequence = ": nobody asks DCGM Exporter, and the ClusterPolicy stays notReady until it does" if waits else ""
        yield Finding(
            f"{setting} is true, and the cluster does not know {' and '.join(kinds)}{consequence}.",
            f"Install the Prometheus Operator first, which brings its kinds, or set {setting}: false.",
            fatal=not waits,
        )
