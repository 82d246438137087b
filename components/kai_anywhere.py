"""The top of the program: everything that a stack installs, in its order."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.admission import AdmissionServer, AdmissionServerArgs
from components.gpu_operator import GpuOperator, GpuOperatorArgs
from components.kai_scheduler import KaiScheduler, KaiSchedulerArgs
from components.node_labels import NodeLabels, NodeLabelsArgs
from components.reservation_overrides import ReservationOverrides, ReservationOverridesArgs
from config.stack import StackSettings


@dataclass(frozen=True)
class KaiAnywhereArgs:
    """What KaiAnywhere needs.

    Attributes:
        settings: the stack's settings.
        cluster_uid: the cluster's identity from preflight, or None in a preview without a cluster.
    """

    settings: StackSettings
    cluster_uid: str | None


class KaiAnywhere(pulumi.ComponentResource):
    """Node labels -> GPU Operator -> reservation overrides -> admission server -> KAI scheduler and queues.

    Labels come first: the operator obeys the operand switches that it finds on a node when it first sees it, and would
    otherwise install its own container toolkit on a Jetson only to take it back.

    Attributes:
        platform: the stack's platform.
        tegra_nodes: nodes whose reservation pods are changed at admission.
        gpu_operator_version: chart version, or None where the stack does not install it.
        kai_version: chart version.
        queues: the stack's queues.
    """

    platform: pulumi.Output[str]
    tegra_nodes: pulumi.Output[list[str]]
    gpu_operator_version: pulumi.Output[str | None]
    kai_version: pulumi.Output[str | None]
    queues: pulumi.Output[list[str]]

    def __init__(self, name: str, args: KaiAnywhereArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.KAI_ANYWHERE, name, None, opts)
        settings = args.settings
        kubeconfig = settings.cluster.kubeconfig
        provider = Provider(
            f"{name}-cluster",
            kubeconfig=None if kubeconfig is None else str(Path(kubeconfig).expanduser()),
            context=settings.cluster.context,
            # Preflight compares it with the cluster behind the context on the next run. With it, a moved kubeconfig
            # updates the provider instead of replacing everything.
            cluster_identifier=args.cluster_uid,
            opts=pulumi.ResourceOptions(parent=self),
        )
        child_opts = pulumi.ResourceOptions(parent=self)
        labels = NodeLabels("node-labels", NodeLabelsArgs(settings, provider), child_opts)
        operator = GpuOperator(
            "gpu-operator",
            GpuOperatorArgs(settings, provider),
            pulumi.ResourceOptions(parent=self, depends_on=[labels]),
        )
        overrides = ReservationOverrides("reservation", ReservationOverridesArgs(settings, provider), child_opts)
        admitted: list[pulumi.Resource] = [overrides]
        if settings.webhooks:
            admitted.append(AdmissionServer("admission", AdmissionServerArgs(settings, provider), child_opts))
        kai = KaiScheduler(
            "kai-scheduler",
            KaiSchedulerArgs(settings, provider, after=[*admitted, *operator.ready]),
            pulumi.ResourceOptions(parent=self, depends_on=[labels]),
        )
        self.platform = pulumi.Output.from_input(settings.platform.kind)
        self.tegra_nodes = overrides.tegra_nodes
        self.gpu_operator_version = operator.chart_version
        self.kai_version = kai.chart_version
        self.queues = kai.queues
        self.register_outputs(
            {
                "platform": self.platform,
                "tegra_nodes": self.tegra_nodes,
                "gpu_operator_version": self.gpu_operator_version,
                "kai_version": self.kai_version,
                "queues": self.queues,
            }
        )
