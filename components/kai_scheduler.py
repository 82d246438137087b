"""The KAI scheduler and its queues."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes import Provider

from cluster import waiting
from components import tokens
from components.gates import gate
from components.kubernetes import register, register_release
from config.stack import StackSettings
from manifests import kai


@dataclass(frozen=True)
class KaiSchedulerArgs:
    """What KaiScheduler needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
        after: what must be there before the release: RuntimeClass, GPUs, the reservation namespace.
    """

    settings: StackSettings
    provider: Provider
    after: Sequence[pulumi.Input[pulumi.Resource]] = field(default=())


class KaiScheduler(pulumi.ComponentResource):
    """KAI's release, and the stack's queues once the queue controller's webhook answers.

    Attributes:
        namespace: the control plane's namespace.
        chart_version: version of the installed chart.
        queues: names of the queues, parents first.
    """

    namespace: pulumi.Output[str]
    chart_version: pulumi.Output[str | None]
    queues: pulumi.Output[list[str]]

    def __init__(self, name: str, args: KaiSchedulerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.KAI_SCHEDULER, name, None, opts)
        settings = args.settings
        child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        namespace = register(f"{name}-namespace", kai.kai_namespace(settings), child_opts)
        release = register_release(
            name,
            kai.release(settings),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[namespace, *args.after]),
        )
        register(
            f"{name}-shard",
            kai.default_shard(),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[release]),
        )
        queues = kai.queues(settings)
        opened = gate(
            release,
            [
                waiting.deployment_available(
                    settings.kai.namespace,
                    kai.QUEUE_CONTROLLER,
                    causes=(
                        "KAI's operator makes it from Config 'kai-config', which a hook of the chart creates. Likely "
                        "causes: an image can't be pulled, or the operator does not run."
                    ),
                )
            ],
            settings.cluster,
            timeout_seconds=settings.kai.timeout_seconds,
        )
        made: dict[str, pulumi.Resource] = {}
        for queue, manifest in queues.items():
            parent = manifest["spec"].get("parentQueue")
            above = [made[parent]] if parent in made else []
            made[queue] = register(
                f"{name}-queue-{queue}",
                manifest,
                pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[release, opened, *above]),
            )
        self.namespace = pulumi.Output.from_input(settings.kai.namespace)
        self.chart_version = release.status.apply(lambda status: status.version)
        self.queues = pulumi.Output.from_input(list(queues))
        self.register_outputs({"namespace": self.namespace, "chart_version": self.chart_version, "queues": self.queues})
