"""The top of the program: everything that a stack installs, in its order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulumi

from components import tokens
from components.admission_server import AdmissionServer, AdmissionServerArgs
from components.gpu_operator import GpuOperator, GpuOperatorArgs
from components.gvirtus import Gvirtus, GvirtusArgs
from components.kai_scheduler import KaiScheduler, KaiSchedulerArgs
from components.kubernetes import Labeller, cluster_provider
from components.monitoring import Monitoring, MonitoringArgs
from components.node_labels import NodeLabels, NodeLabelsArgs
from components.pod_guard import PodGuard, PodGuardArgs
from components.reservation_overrides import ReservationOverrides, ReservationOverridesArgs
from components.verification import Verification, VerificationArgs
from config.stack import StackSettings
from config.validation import Validation
from manifests.ownership import BEFORE, kept_text

if TYPE_CHECKING:
    from components.hosts.hosts import Hosts


@dataclass(frozen=True)
class KaiAnywhereArgs:
    """What KaiAnywhere needs.

    Attributes:
        settings: the stack's settings.
        cluster_uid: the cluster's identity from preflight, or None in a preview without a cluster.
        kubeconfig: the connection that is bound to that identity, as the provider reads it.
        host_secrets: what the stack's hosts need to be reached and changed, by name.
        few_resources: whether the engine finds this program's own provider, which labels many nodes as one resource.
        adopted: what objects that the stack adopts held before, by object.
    """

    settings: StackSettings
    cluster_uid: str | None
    kubeconfig: str
    host_secrets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
    few_resources: bool = False
    adopted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class KaiAnywhere(pulumi.ComponentResource):
    """Hosts, and where the stack is not of hosts alone, what follows them in the cluster.

    Hosts -> labels -> GPU Operator -> overrides -> admission server -> KAI -> pod guard, remote GPUs -> a look.

    Metrics come beside them, where the settings ask for them.

    Hosts come first: everything that runs in pods needs their driver and container runtime. Labels come before the
    operator: it obeys the operand switches that it finds on a node when it first sees it, and would otherwise install
    its own container toolkit on a Jetson only to take it back. KAI comes after the operator: where `kai.cdi_enabled` is
    not set, KAI's own operator reads from the ClusterPolicy whether pods get GPUs by CDI.

    Attributes:
        platform: the stack's platform.
        tegra_nodes: nodes whose reservation pods are changed at admission.
        gpu_operator_version: chart version, or None where the stack does not install it.
        kai_version: chart version.
        queues: the stack's queues.
        gvirtus_backends: remote GPUs by name, each with its address and port; empty where there are none.
        gpu_memory_mib: what KAI may share of one GPU, by host that shares its memory with it; empty without such hosts.
    """

    platform: pulumi.Output[str]
    tegra_nodes: pulumi.Output[list[str]]
    gpu_operator_version: pulumi.Output[str | None]
    kai_version: pulumi.Output[str | None]
    queues: pulumi.Output[list[str]]
    gvirtus_backends: pulumi.Output[dict[str, str]]
    gpu_memory_mib: pulumi.Output[dict[str, int]]

    def __init__(self, name: str, args: KaiAnywhereArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.KAI_ANYWHERE, name, None, opts)
        self.platform = pulumi.Output.from_input(args.settings.platform.kind)
        self.tegra_nodes = pulumi.Output.from_input([])
        self.gpu_operator_version = pulumi.Output.from_input(None)
        self.kai_version = pulumi.Output.from_input(None)
        self.queues = pulumi.Output.from_input([])
        self.gvirtus_backends = pulumi.Output.from_input({})
        hosts = self._prepare_hosts(args) if args.settings.hosts_alone else self._install(name, args)
        memory = hosts.gpu_memory_mib if hosts else {}
        # A host that is gone may say nothing. Of nothing at all, the SDK makes a list.
        self.gpu_memory_mib = pulumi.Output.all(**memory).apply(
            lambda answers: {node: mib for node, mib in dict(answers).items() if mib is not None}
        )
        self.register_outputs(self.outputs)

    def _prepare_hosts(self, args: KaiAnywhereArgs) -> "Hosts | None":
        if not args.settings.hosts:
            return None
        # With its provider's SDK it costs every preview a tenth of the program's imports; few stacks have hosts.
        from components.hosts.hosts import Hosts, HostsArgs  # noqa: PLC0415

        return Hosts("hosts", HostsArgs(args.settings, args.host_secrets), pulumi.ResourceOptions(parent=self))

    def _install(self, name: str, args: KaiAnywhereArgs) -> "Hosts | None":
        settings = args.settings
        provider = cluster_provider(
            f"{name}-cluster",
            kubeconfig=args.kubeconfig,
            cluster_uid=args.cluster_uid,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self._remember(name, args.adopted)),
        )
        labeller = Labeller(provider, args.kubeconfig, together=args.few_resources)
        child_opts = pulumi.ResourceOptions(parent=self)
        hosts = self._prepare_hosts(args)
        hosts_ready = hosts.ready if hosts else []
        labels = NodeLabels(
            "node-labels",
            NodeLabelsArgs(settings, labeller, hosts.gpu_memory_mib if hosts else {}, depends_on=hosts_ready),
            child_opts,
        )
        operator = GpuOperator(
            "gpu-operator",
            GpuOperatorArgs(settings, provider, depends_on=[labels]),
            pulumi.ResourceOptions(parent=self, depends_on=hosts_ready),
        )
        overrides = ReservationOverrides(
            "reservation",
            ReservationOverridesArgs(settings, provider),
            pulumi.ResourceOptions(parent=self, depends_on=hosts_ready),
        )
        server: list[pulumi.Resource] = []
        if settings.webhooks:
            server.append(
                AdmissionServer(
                    "admission",
                    AdmissionServerArgs(settings, provider),
                    pulumi.ResourceOptions(parent=self, depends_on=hosts_ready),
                )
            )
        admitted: list[pulumi.Resource] = [overrides, *server]
        kai = KaiScheduler(
            "kai-scheduler",
            KaiSchedulerArgs(settings, provider, depends_on=[labels, *admitted, *operator.ready]),
            pulumi.ResourceOptions(parent=self, depends_on=hosts_ready),
        )
        installed: list[pulumi.Resource] = [*admitted, operator, kai]
        # After the releases: one that is refused midway would be left half-done. Their pods fit under the guard all the
        # same. Before the frontends' device plugin, which a guard of the whole cluster refuses until it is exempt.
        guard = PodGuard("pod-guard", PodGuardArgs(settings, provider, depends_on=[*installed]), child_opts)
        if settings.gvirtus is not None:
            remote = Gvirtus(
                "gvirtus",
                GvirtusArgs(settings, provider, labeller, depends_on=operator.ready, server=server),
                pulumi.ResourceOptions(parent=self, depends_on=[kai]),
            )
            self.gvirtus_backends = remote.backends
            installed.append(remote)
        if settings.monitoring.enabled:
            # Beside all others: what is not there yet, it reads once it is.
            installed.append(Monitoring("monitoring", MonitoringArgs(settings, provider), child_opts))
        if settings.validation is Validation.AFTER_UP:
            Verification(
                "verification",
                VerificationArgs(settings),
                pulumi.ResourceOptions(parent=self, depends_on=[*hosts_ready, labels, *installed, guard]),
            )
        self.tegra_nodes = overrides.tegra_nodes
        self.gpu_operator_version = operator.chart_version
        self.kai_version = kai.chart_version
        self.queues = kai.queues
        return hosts

    def _remember(self, name: str, adopted: Mapping[str, Mapping[str, Any]]) -> list[pulumi.Resource]:
        """What adopted objects held, in the state before any of them is written: the run may be killed right after."""
        if not adopted:
            return []
        kept = {key: kept_text(values) for key, values in adopted.items()}
        return [pulumi.Stash(f"{name}-adopted", input={BEFORE: kept}, opts=pulumi.ResourceOptions(parent=self))]

    @property
    def outputs(self) -> dict[str, pulumi.Output[Any]]:
        """What a stack tells of itself, by name."""
        return {
            "platform": self.platform,
            "tegra_nodes": self.tegra_nodes,
            "gpu_operator_version": self.gpu_operator_version,
            "kai_version": self.kai_version,
            "queues": self.queues,
            "gvirtus_backends": self.gvirtus_backends,
            "gpu_memory_mib": self.gpu_memory_mib,
        }
