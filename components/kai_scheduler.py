"""The KAI scheduler and its queues."""

from dataclasses import dataclass, field

import pulumi

from cluster import waiting
from components import tokens
from components.gates import gate, tell_of_hooks
from components.kubernetes import Dependencies, Registrar, chart_version
from config.stack import StackSettings
from manifests import kai


@dataclass(frozen=True)
class KaiSchedulerArgs:
    """What KaiScheduler needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
        depends_on: what must be there before the release: labels, RuntimeClass, GPUs, the reservation namespace.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource
    depends_on: Dependencies = field(default=())


class KaiScheduler(pulumi.ComponentResource):
    """KAI's release, and the stack's queues once its pods are there and the queue controller's webhook answers.

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
        registrar = Registrar(
            self,
            name,
            args.provider,
            {kai.GPUS: lambda: args.depends_on, kai.READY: lambda: [self._ready(registrar, settings)]},
        )
        registrar.register_all(kai.objects(settings))
        tell_of_hooks(registrar.made["release"], self, settings.kai.namespace, settings.cluster)
        registrar.dependencies(kai.READY)  # a stack without queues waits too
        self.namespace = pulumi.Output.from_input(settings.kai.namespace)
        self.chart_version = chart_version(registrar.made["release"])
        self.queues = pulumi.Output.from_input(list(kai.queues(settings)))
        self.register_outputs({"namespace": self.namespace, "chart_version": self.chart_version, "queues": self.queues})

    @staticmethod
    def _ready(registrar: Registrar, settings: StackSettings) -> pulumi.Output[pulumi.Resource]:
        causes = (
            "KAI's operator makes it from Config 'kai-config', which a hook of the chart creates. Likely causes: an "
            "image can't be pulled, or the operator does not run."
        )
        silent = (
            "KAI's queue controller serves it. Likely causes: its pod has only just started or restarts, or the API "
            "server does not reach pods: a NetworkPolicy or a firewall between nodes (docs/faq.md, Installing), or a "
            "broken network of pods.\n"
            f"Look at: kubectl --namespace {settings.kai.namespace} get pods,endpointslices"
        )
        first = next(iter(kai.queues(settings).values()), None)
        return gate(
            registrar.made["release"],
            [
                waiting.release_rolled_out(settings.kai.namespace, kai.RELEASE),
                waiting.deployment_available(settings.kai.namespace, kai.QUEUE_CONTROLLER, causes=causes),
                waiting.operands_rolled_out(settings.kai.namespace, kai.DEPLOYMENTS),
                *([] if first is None else [waiting.webhook_answers(first, causes=silent)]),
            ],
            settings.cluster,
            timeout_seconds=settings.kai.timeout_seconds,
        )
