"""The admission server, where something is carried by a webhook."""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import Provider

from cluster import waiting
from components import tokens
from components.admission_authority import KEEPS_ITS_AUTHORITY, trusting, with_new_authority
from components.gates import gate
from components.kubernetes import register
from config.stack import StackSettings
from manifests import admission

_READY_SECONDS = 600
"""What the provider itself waits for a Deployment."""


@dataclass(frozen=True)
class AdmissionServerArgs:
    """What AdmissionServer needs.

    Attributes:
        settings: the stack's settings; some carrier in it is `webhook`.
        provider: the cluster.
    """

    settings: StackSettings
    provider: Provider


class AdmissionServer(pulumi.ComponentResource):
    """The server's Deployment with everything around it, and the webhook configurations that send to it.

    The configurations come after the Deployment, so that `destroy` takes them first: without a server behind them they
    refuse pods. The server is ready once it has published its authority in them, so nobody waits for it before; what
    waits is the disruption budget, the last object, and with it everything that comes after this component.

    Attributes:
        namespace: the server's namespace.
        webhooks: names of the webhook configurations.
    """

    namespace: pulumi.Output[str]
    webhooks: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AdmissionServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.ADMISSION_SERVER, name, None, opts)
        settings = args.settings
        objects = admission.objects(settings)
        webhooks = admission.webhooks(settings)
        last = ("deployment", *webhooks, "disruption-budget")
        made: list[pulumi.CustomResource] = []
        authorities: list[pulumi.CustomResource] = []

        def add(key: str, *after: pulumi.Input[pulumi.Resource]) -> pulumi.CustomResource:
            child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(after))
            manifest = objects[key]
            if key.startswith("authority-"):
                child_opts = pulumi.ResourceOptions.merge(child_opts, KEEPS_ITS_AUTHORITY)
                manifest = with_new_authority(manifest)
            elif key in webhooks and authorities:
                manifest = trusting(manifest, authorities)
            made.append(register(f"{name}-{key}", manifest, child_opts))
            if key.startswith("authority-"):
                authorities.append(made[-1])
            return made[-1]

        for key in objects:
            if key not in last:
                add(key, *made[:1])
        deployment = add("deployment", *made)
        configurations = [add(key, deployment) for key in webhooks]
        opened = gate(
            deployment,
            [
                waiting.deployment_available(
                    settings.admission.namespace,
                    admission.NAME,
                    causes=(
                        "Its pods are ready once they serve a certificate that every webhook configuration trusts. "
                        "Likely causes: the image can't be pulled or is of another version than this program, as its "
                        "log says, or cert-manager has not filled in caBundle."
                    ),
                )
            ],
            settings.cluster,
            timeout_seconds=_READY_SECONDS,
            after=configurations,
        )
        add("disruption-budget", *configurations, opened)
        names = [manifest["metadata"]["name"] for manifest in webhooks.values()]
        self.namespace = pulumi.Output.from_input(settings.admission.namespace)
        self.webhooks = pulumi.Output.from_input(names)
        self.register_outputs({"namespace": self.namespace, "webhooks": self.webhooks})
