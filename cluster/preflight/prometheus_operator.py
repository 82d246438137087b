"""Whether the cluster has the Prometheus Operator's kinds, where a stack makes objects of them."""

from collections.abc import Iterator

from cluster.access.client import Cluster
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests.monitoring.objects import OPERATOR_GROUP

_KINDS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


def read_missing_kinds(cluster: Cluster, settings: StackSettings) -> tuple[str, ...]:
    """Those that the stack needs and the cluster does not have; nothing is asked where it needs none."""
    if not (settings.monitoring.enabled and settings.monitoring.service_monitor):
        return ()
    return tuple(kind for plural, kind in _KINDS.items() if not cluster.has_kind(OPERATOR_GROUP, plural))


def judge_missing_kinds(missing: tuple[str, ...]) -> Iterator[Finding]:
    """What is wrong with that."""
    if missing:
        yield Finding(
            f"monitoring.service_monitor is true, and the cluster does not know {' and '.join(missing)}.",
            "Install the Prometheus Operator first, which brings them, or set monitoring.service_monitor: false.",
        )
