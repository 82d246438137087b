"""The admission server, where something is carried by a webhook."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi

from cluster import waiting
from components import tokens
from components.admission_authority import KEEPS_ITS_AUTHORITY, trusting, with_new_authority
from components.gates import gate
from components.kubernetes import Registrar
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
    provider: pulumi.ProviderResource


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
        registrar = Registrar(
            self, name, args.provider, {admission.READY: lambda: [self._ready(registrar, webhooks, settings)]}
        )
        for key, stack_object in objects.items():
            manifest, opts = stack_object.manifest, None
            if key.startswith(admission.AUTHORITY):
                manifest, opts = with_new_authority(manifest), KEEPS_ITS_AUTHORITY
            elif key in webhooks:
                authorities = [
                    resource
                    for other_key, resource in registrar.made.items()
                    if other_key.startswith(admission.AUTHORITY)
                ]
                manifest = trusting(manifest, authorities)
            registrar.register(key, manifest, stack_object.depends_on, opts, versioned=stack_object.versioned)
        names = [manifest["metadata"]["name"] for manifest in webhooks.values()]
        self.namespace = pulumi.Output.from_input(settings.admission.namespace)
        self.webhooks = pulumi.Output.from_input(names)
        self.register_outputs({"namespace": self.namespace, "webhooks": self.webhooks})

    @staticmethod
    def _ready(
        registrar: Registrar, webhooks: Iterable[str], settings: StackSettings
    ) -> pulumi.Output[pulumi.Resource]:
        causes = (
            "Its pods are ready once they serve a certificate that every webhook configuration trusts. Likely causes: "
            "the image can't be pulled or is of another version than this program, as its log says; cert-manager has "
            "not filled in caBundle."
        )
        return gate(
            registrar.made["deployment"],
            [waiting.deployment_available(settings.admission.namespace, admission.NAME, causes=causes)],
            settings.cluster,
            timeout_seconds=_READY_SECONDS,
            depends_on=[registrar.made[key] for key in webhooks],
        )
