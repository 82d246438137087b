"""What Prometheus raises an alarm for. Pure.

Each alert says where its causes and remedies stand: a code of `kai-anywhere doctor` where there is one.
"""

from dataclasses import dataclass
from typing import Any

_GROUP = "kai-anywhere"


@dataclass(frozen=True)
class Alert:
    """An alert.

    Attributes:
        name: in CamelCase, as Prometheus' own.
        expression: PromQL; it fires for each series that is there.
        minutes: how long the expression holds before it fires.
        severity: `critical` where pods are harmed, `warning` otherwise.
        summary: one line with its labels.
        runbook: the page and the place there, below `docs/`.
    """

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    runbook: str


ALERTS = (
    Alert(
        "KaiAnywhereGpuMemoryOversubscribed",
        "kai_anywhere_gpu_group_memory_free_bytes < 0",
        5,
        "critical",
        "GPU group {{ $labels.gpu_group }} on {{ $labels.node }} is promised {{ $value | humanize1024 }}B: below 0 is "
        "more than there is.",
        "troubleshooting.md#ka0407",
    ),
    Alert(
        "KaiAnywhereGpuPromisedTwice",
        # Of a node that is gone, or tells of no GPU at all, nothing says how many there are.
        "kai_anywhere_node_gpus_in_use > (kai_anywhere_node_gpus > 0)",
        5,
        "critical",
        "KAI counts {{ $value }} GPUs in use on {{ $labels.node }}, more than it has.",
        "troubleshooting.md#ka0407",
    ),
    Alert(
        "KaiAnywhereReservationPodSilent",
        # KAI deletes a reservation pod that does not answer after 40 seconds, and tries again with another group.
        "count without (gpu_group) (max_over_time(kai_anywhere_gpu_group_reservation_answered[3m]) == 0)",
        5,
        "critical",
        "Reservation pods on {{ $labels.node }} are missing, have ended, or do not say their GPU.",
        "troubleshooting.md#ka0508",
    ),
    Alert(
        "KaiAnywherePodPending",
        # Who gave a pod scheduling gates wants it to wait.
        "max without (namespace, pod) "
        '(time() - kai_anywhere_pod_pending_since_timestamp_seconds{reason!="gate"}) > 900',
        1,
        "warning",
        # Of another scheduler's pods the queue is empty.
        "A pod {{ if $labels.queue }}of queue {{ $labels.queue }}{{ else }}in no queue of KAI's{{ end }} waits for "
        "{{ $value | humanizeDuration }}, for: {{ $labels.reason }}.",
        "troubleshooting.md#ka0705",
    ),
    Alert(
        "KaiAnywhereNoGpuAdvertised",
        # Of nodes without GPUs there is nothing. How many there are is often not known before the first is advertised.
        "kai_anywhere_node_gpus_advertised == 0",
        10,
        "warning",
        "{{ $labels.node }} has GPUs and advertises none: KAI places nothing there.",
        "troubleshooting.md#ka0403",
    ),
    Alert(
        "KaiAnywhereGpuMemoryUnknown",
        'kai_anywhere_node_info{sharing="kai"} unless ignoring (platform, architecture, sharing) '
        "kai_anywhere_node_gpu_memory_bytes",
        10,
        "warning",
        "{{ $labels.node }} does not say its GPU's memory: KAI places no pod with gpu-memory there.",
        "troubleshooting.md#ka0404",
    ),
    Alert(
        "KaiAnywhereGpuNodeNotReady",
        "kai_anywhere_node_ready == 0",
        10,
        "warning",
        "{{ $labels.node }} has GPUs and is not ready.",
        "troubleshooting.md#ka0401",
    ),
    Alert(
        "KaiAnywhereQueueControllerBehind",
        "abs(kai_anywhere_queue_unexplained_gpus) > 0.5",
        15,
        "warning",
        "KAI's queue controller counts {{ $value }} GPUs more or fewer for queue {{ $labels.queue }} than its pods "
        "come to.",
        "troubleshooting.md#ka0208",
    ),
    Alert(
        "KaiAnywhereMetricsRefused",
        "kai_anywhere_unreadable == 1",
        5,
        "warning",
        "The API server refuses {{ $labels.what }} to the exporter: facts about it are missing.",
        "monitoring.md#metrics-are-missing",
    ),
    Alert(
        "KaiAnywhereMetricsStale",
        "time() - kai_anywhere_exporter_last_read_timestamp_seconds > 600",
        1,
        "warning",
        # Its time is 0 until the first read.
        "The exporter has not read the cluster{{ if lt $value 1e9 }} for {{ $value | humanizeDuration }}{{ end }}.",
        "monitoring.md#metrics-are-missing",
    ),
    Alert(
        "KaiAnywhereMetricsAbsent",
        "absent(kai_anywhere_exporter_last_read_timestamp_seconds)",
        10,
        "warning",
        "Prometheus has no metrics of kai-anywhere: the exporter does not run, or is not scraped.",
        "monitoring.md#metrics-are-missing",
    ),
)
"""In the order of their weight."""


def groups() -> list[dict[str, Any]]:
    """The groups of a rule file, and of a PrometheusRule."""
    return [{"name": _GROUP, "rules": [_rule(alert) for alert in ALERTS]}]


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": f"docs/{alert.runbook}"},
    }
