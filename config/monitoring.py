"""Settings of the exporter that tells Prometheus who has which share of which GPU, and what Grafana shows of it."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from config.charts import PullPolicy
from config.images import PinnedImage, PullSecrets
from config.model import Labels, Name, Settings


class DashboardSettings(Settings):
    """Grafana's dashboards, each in a ConfigMap that Grafana's sidecar finds by its labels."""

    enabled: bool = True
    """Whether they are installed; Grafana itself is not."""
    labels: Annotated[Labels, Field(min_length=1)] = {"grafana_dashboard": "1"}
    """What the sidecar looks for: `sidecar.dashboards.label` and `labelValue` of Grafana's chart."""


class MonitoringSettings(Settings):
    """Metrics of shares, free memory and waiting pods (docs/monitoring.md). Nothing of it is installed by default."""

    enabled: bool = False
    """Whether the exporter, the alerts and the dashboards are installed."""
    image: PinnedImage | None = None
    """The image of agents/metrics/Containerfile as you built and pushed it; required where `enabled` is true."""
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    pull_secrets: PullSecrets = ()
    """Names of existing docker-registry Secrets in the exporter's namespace."""
    namespace: Name = "kai-anywhere-monitoring"
    """Its namespace, which no other part of the stack uses."""
    interval_seconds: Annotated[int, Field(ge=5, le=120)] = 30
    """How often the cluster is read, and how often Prometheus is asked to scrape."""
    service_monitor: bool = False
    """Whether a ServiceMonitor and a PrometheusRule are made; they need the Prometheus Operator's CRDs. Otherwise the
    Service has the annotations `prometheus.io/scrape`, and the alerts lie in a ConfigMap."""
    service_monitor_labels: Annotated[Labels, Field(examples=[{"release": "kube-prometheus-stack"}])] = {}
    """Labels by which your Prometheus selects ServiceMonitors and PrometheusRules."""
    dashboards: DashboardSettings = DashboardSettings()

    @model_validator(mode="after")
    def _there_is_an_image(self) -> Self:
        if self.enabled and self.image is None:
            raise PydanticCustomError(
                "monitoring_image",
                "enabled is true, but image is not set. Build it with agents/metrics/Containerfile, push it, and write "
                "its reference there, or set enabled: false.",
            )
        return self

    @model_validator(mode="after")
    def _labels_are_of_something(self) -> Self:
        if self.service_monitor_labels and not self.service_monitor:
            raise PydanticCustomError(
                "labels_without_service_monitor",
                "service_monitor_labels is set, and service_monitor is false: remove service_monitor_labels, or set "
                "service_monitor: true.",
            )
        return self
