"""The NVIDIA GPU Operator and the objects that steer it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi

from cluster import waiting
from components import tokens
from components.gates import gate, tell_of_hooks
from components.kubernetes import Dependencies, Registrar, chart_version
from config.stack import StackSettings
from manifests import gpu_operator
from manifests.node_labels import node_labels
from manifests.reservation import RUNTIME_CLASS
from manifests.tolerations import operand_tolerations


@dataclass(frozen=True)
class GpuOperatorArgs:
    """What GpuOperator needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
        depends_on: what must be there before the release: the nodes' labels, which switch operands off.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource
    depends_on: Dependencies = field(default=())


class GpuOperator(pulumi.ComponentResource):
    """The GPU Operator's release, Tegra's NodeFeatureRule, sharing profiles and service discovery.

    Attributes:
        namespace: the operator's namespace.
        chart_version: version of the installed chart, or None where the stack does not install it.
        ready: dependencies that open when the release's pods, RuntimeClass and GPUs are there; not an output.
    """

    namespace: pulumi.Output[str]
    chart_version: pulumi.Output[str | None]
    ready: Sequence[pulumi.Input[pulumi.Resource]]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.GPU_OPERATOR, name, None, opts)
        operator = args.settings.gpu_operator
        self.namespace = pulumi.Output.from_input(operator.namespace)
        self.chart_version = pulumi.Output.from_input(None)
        self.ready = []
        if operator.install:
            self._install(name, args)
        self.register_outputs({"namespace": self.namespace, "chart_version": self.chart_version})

    def _install(self, name: str, args: GpuOperatorArgs) -> None:
        settings = args.settings
        operator = settings.gpu_operator
        registrar = Registrar(self, name, args.provider, {gpu_operator.LABELS: lambda: args.depends_on})
        registrar.register_all(gpu_operator.objects(settings))
        after = [registrar.made[key] for key in ("release", "tegra") if key in registrar.made]
        tell_of_hooks(after[0], self, operator.namespace, settings.cluster)
        named_nodes = frozenset(node_labels(settings))
        opened = gate(
            after[-1],
            [
                waiting.release_rolled_out(operator.namespace, gpu_operator.RELEASE),
                waiting.runtime_class(RUNTIME_CLASS, operator_namespace=operator.namespace),
                waiting.gpus_advertised(
                    named_nodes,
                    operator_namespace=operator.namespace,
                    tolerations=operand_tolerations(settings.cluster),
                ),
            ],
            settings.cluster,
            timeout_seconds=operator.timeout_seconds,
        )
        self.chart_version = chart_version(after[0])
        self.ready = [*after, opened]
