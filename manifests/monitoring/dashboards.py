"""What Grafana shows: dashboards as Grafana reads them. Pure.

KAI's metrics are those of pkg/scheduler/metrics and pkg/queuecontroller/metrics with the prefix `kai_`, its default:
the same in v0.17.0 and in the sources of August 2026, between which the pinned version lies. DCGM Exporter's are in
etc/default-counters.csv of 4.5.3-4.8.2; the GPU Operator v26.7 brings 4.8.4.
"""

import re
from dataclasses import dataclass
from typing import Any

from config.platform import TegraPlatform
from config.stack import StackSettings

_WIDTH, _HEIGHT = 24, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_METRIC = re.compile(r"\b(?:kai_|DCGM_)\w+")
_OF_CLUSTER = '{cluster=~"$cluster"}'
"""Where several clusters write to one Prometheus, each with a label of its own. `.*` takes series without it too."""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: above it.
        queries: PromQL, with the legend of each.
        unit: Grafana's name of it.
        kind: Grafana's name of the kind.
        width: of 24.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12


_SHARES = (
    Panel("GPU memory that KAI can share", (("sum(kai_anywhere_node_gpu_memory_bytes)", "all"),), "bytes", "stat", 6),
    Panel("Allocated", (("sum(kai_anywhere_node_gpu_memory_allocated_bytes)", "all"),), "bytes", "stat", 6),
    Panel(
        "The most that one more pod gets",
        (("max(kai_anywhere_node_gpu_memory_largest_free_bytes)", "all"),),
        "bytes",
        "stat",
        6,
    ),
    # The second is there where pods could be read.
    Panel(
        "Pods that wait",
        (("sum(kai_anywhere_pods_pending) or 0 * sum(kai_anywhere_pods_left_out)", "all"),),
        "short",
        "stat",
        6,
    ),
    Panel(
        "Allocated part of each node",
        (
            (
                "kai_anywhere_node_gpu_memory_allocated_bytes / (kai_anywhere_node_gpu_memory_bytes > 0)",
                "{{node}}",
            ),
        ),
        "percentunit",
        "bargauge",
    ),
    Panel("Free in each GPU group", (("kai_anywhere_gpu_group_memory_free_bytes", "{{node}} {{gpu_group}}"),), "bytes"),
    Panel(
        "Pods by GPU memory",
        (("topk(20, kai_anywhere_pod_gpu_memory_bytes)", "{{namespace}}/{{pod}} on {{node}}"),),
        "bytes",
        "bargauge",
    ),
    Panel("GPUs of each queue", (("kai_anywhere_queue_allocated_gpus", "{{queue}}"),)),
    Panel("Quota of each queue", (("kai_anywhere_queue_quota_gpus < +Inf", "{{queue}}"),)),
    Panel("Pods that wait, and for whom", (("kai_anywhere_pods_pending", "{{queue}}: {{reason}}"),)),
    Panel(
        "Longest wait",
        (
            (
                "max without (namespace, pod, reason) (time() - kai_anywhere_pod_pending_since_timestamp_seconds)",
                "{{queue}}",
            ),
        ),
        "s",
    ),
    Panel("What does not fit together", (("kai_anywhere_node_remarks > 0", "{{node}}"),), "short", "bargauge"),
    Panel(
        "Age of what the exporter read",
        # It is 0 until the first read.
        (("time() - (kai_anywhere_exporter_last_read_timestamp_seconds > 0)", "age"),),
        "s",
    ),
)
# Each pod group has a series of its own that begins with its first eviction, which `rate` does not see.
_EVICTIONS = "sum by (action) (kai_pod_group_evicted_pods_total{})"
_NOW = _EVICTIONS.format("")
_EVICTED = f"clamp_min({_NOW} - ({_EVICTIONS.format(' offset 5m')} or {_NOW} * 0), 0)"
_KAI = (
    Panel("Time of a scheduling cycle", (("kai_e2e_scheduling_latency_milliseconds", "{{pod}}"),), "ms"),
    Panel("Time of each action", (("kai_action_scheduling_latency_milliseconds", "{{action}}"),), "ms"),
    Panel(
        "Time until a pod is bound, 95th percentile",
        (
            (
                "histogram_quantile(0.95, sum by (le) (rate(kai_task_scheduling_latency_milliseconds_bucket[5m])))",
                "decided",
            ),
            ("histogram_quantile(0.95, sum by (le) (rate(kai_task_bind_latency_milliseconds_bucket[5m])))", "bound"),
        ),
        "ms",
    ),
    Panel(
        "Pod groups scheduled",
        (("sum by (action) (rate(kai_podgroups_scheduled_by_action[5m]))", "{{action}}"),),
        "ops",
    ),
    Panel("GPUs of each queue", (("kai_queue_allocated_gpus", "{{queue_name}}"),)),
    Panel("Fair share of each queue", (("kai_queue_fair_share_gpu", "{{queue_name}}"),)),
    Panel("Deserved GPUs of each queue", (("kai_queue_deserved_gpus >= 0", "{{queue_name}}"),)),
    Panel("Pods evicted in 5 minutes", ((_EVICTED, "{{action}}"),)),
)
_DCGM_GPU = "{{Hostname}} {{gpu}}"
_DCGM = (
    Panel("GPU utilization", (("DCGM_FI_DEV_GPU_UTIL", _DCGM_GPU),), "percent"),
    Panel("GPU memory used", (("DCGM_FI_DEV_FB_USED * 1024 * 1024", _DCGM_GPU),), "bytes"),
    Panel("GPU memory free", (("DCGM_FI_DEV_FB_FREE * 1024 * 1024", _DCGM_GPU),), "bytes"),
    Panel("Copy utilization of memory", (("DCGM_FI_DEV_MEM_COPY_UTIL", _DCGM_GPU),), "percent"),
    Panel("Power", (("DCGM_FI_DEV_POWER_USAGE", _DCGM_GPU),), "watt"),
    Panel("Temperature", (("DCGM_FI_DEV_GPU_TEMP", _DCGM_GPU),), "celsius"),
    Panel("SM clock", (("DCGM_FI_DEV_SM_CLOCK * 1000000", _DCGM_GPU),), "hertz"),
    Panel("Last XID error", (("DCGM_FI_DEV_XID_ERRORS", _DCGM_GPU),)),
)


def of(settings: StackSettings) -> dict[str, dict[str, Any]]:
    """The dashboards of a stack, by a short name; DCGM's where the stack lets DCGM Exporter run on some node."""
    by_name = {
        "sharing": dashboard("sharing", "kai-anywhere: who has which share", _SHARES),
        "kai": dashboard("kai", "kai-anywhere: KAI scheduler", _KAI),
    }
    if settings.gpu_operator.install and settings.gpu_operator.dcgm_exporter.enabled and not _tegra(settings):
        by_name["dcgm"] = dashboard("dcgm", "kai-anywhere: GPUs, by DCGM", _DCGM)
    return by_name


def _tegra(settings: StackSettings) -> bool:
    return isinstance(settings.platform, TegraPlatform)


def dashboard(name: str, title: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    """A dashboard, of a Prometheus and of clusters that its reader chooses."""
    first = next(iter(_METRIC.findall(panels[0].queries[0][0])))
    return {
        "uid": f"kai-anywhere-{name}",
        "title": title,
        "tags": ["kai-anywhere"],
        "timezone": "",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                _cluster(f"label_values({first}, cluster)"),
            ]
        },
        "panels": _laid_out(panels),
    }


def _cluster(query: str) -> dict[str, Any]:
    return {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": dict(_SOURCE),
        "query": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _laid_out(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    laid, x, y = [], 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _WIDTH:
            x, y = 0, y + _HEIGHT
        place = {"x": x, "y": y, "w": panel.width, "h": _HEIGHT}
        x += panel.width
        instant = panel.kind != "timeseries"
        laid.append(
            {
                "id": number,
                "title": panel.title,
                "type": panel.kind,
                "gridPos": place,
                "datasource": dict(_SOURCE),
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {
                        "refId": chr(ord("A") + index),
                        "expr": _METRIC.sub(lambda name: name[0] + _OF_CLUSTER, expression),
                        "legendFormat": legend,
                        "datasource": dict(_SOURCE),
                        "instant": instant,
                        "range": not instant,
                    }
                    for index, (expression, legend) in enumerate(panel.queries)
                ],
            }
        )
    return laid
