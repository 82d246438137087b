"""The NVIDIA GPU Operator and the objects that steer it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import Provider

from cluster import waiting
from components import tokens
from components.gates import gate
from components.kubernetes import register, register_release
from config.stack import StackSettings
from manifests import gpu_operator
from manifests.node_labels import node_labels
from manifests.reservation import RUNTIME_CLASS


@dataclass(frozen=True)
class GpuOperatorArgs:
    """What GpuOperator needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
    """

    settings: StackSettings
    provider: Provider


class GpuOperator(pulumi.ComponentResource):
    """The GPU Operator's release, Tegra's NodeFeatureRule, sharing profiles and service discovery.

    Attributes:
        namespace: the operator's namespace.
        chart_version: version of the installed chart, or None where the stack does not install it.
        ready: dependencies that open when RuntimeClass and GPUs are there; not an output.
    """

    namespace: pulumi.Output[str]
    chart_version: pulumi.Output[str | None]
    ready: Sequence[pulumi.Input[pulumi.Resource]]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.GPU_OPERATOR, name, None, opts)
        settings = args.settings
        operator = settings.gpu_operator
        self.namespace = pulumi.Output.from_input(operator.namespace)
        self.chart_version = pulumi.Output.from_input(None)
        self.ready = []
        if operator.install:
            self._install(name, args)
        self.register_outputs({"namespace": self.namespace, "chart_version": self.chart_version})

    def _install(self, name: str, args: GpuOperatorArgs) -> None:
        settings = args.settings
        operator = settings.gpu_operator
        child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        namespace = register(f"{name}-namespace", gpu_operator.operator_namespace(settings), child_opts)
        in_namespace = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[namespace])
        before = [namespace]
        profiles = gpu_operator.time_slicing_config(settings)
        if profiles is not None:
            before.append(register(f"{name}-profiles", profiles, in_namespace))
        discovery = gpu_operator.service_discovery(settings)
        if discovery is not None:
            register(f"{name}-endpoints", discovery, in_namespace)
        release = register_release(
            name,
            gpu_operator.release(settings),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=before),
        )
        self.chart_version = release.status.apply(lambda status: status.version)
        after: list[pulumi.CustomResource] = [release]
        rule = gpu_operator.tegra_feature_rule(settings)
        if rule is not None:
            # Its kind comes with the release.
            after.append(
                register(
                    f"{name}-tegra",
                    rule,
                    pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[release]),
                )
            )
        named = frozenset(node_labels(settings))
        opened = gate(
            after[-1],
            [
                waiting.runtime_class(RUNTIME_CLASS, operator_namespace=operator.namespace),
                waiting.gpus_advertised(named, operator_namespace=operator.namespace),
            ],
            settings.cluster,
            timeout_seconds=operator.timeout_seconds,
        )
        self.ready = [*after, opened]
