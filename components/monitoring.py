"""The exporter of metrics with its alerts and dashboards, where the settings ask for it."""

from dataclasses import dataclass

import pulumi

from components import tokens
from components.kubernetes import Registrar
from config.stack import StackSettings
from manifests.monitoring import objects as monitoring


@dataclass(frozen=True)
class MonitoringArgs:
    """What Monitoring needs.

    Attributes:
        settings: the stack's settings; `monitoring.enabled` is true in it.
        provider: the cluster.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource


class Monitoring(pulumi.ComponentResource):
    """The exporter's Deployment, and what Prometheus and Grafana read of it.

    Attributes:
        namespace: the exporter's namespace.
    """

    namespace: pulumi.Output[str]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.MONITORING, name, None, opts)
        Registrar(self, name, args.provider).register_all(monitoring.objects(args.settings))
        self.namespace = pulumi.Output.from_input(args.settings.monitoring.namespace)
        self.register_outputs({"namespace": self.namespace})
