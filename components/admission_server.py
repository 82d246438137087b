"""The admission server, where something is carried by a webhook."""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.admission_authority import KEEPS_ITS_AUTHORITY, trusting, with_new_authority
from components.kubernetes import register
from config.stack import StackSettings
from manifests import admission


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

    The Deployment comes last: it counts as ready once it has published its authority in the configurations.

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
        made: list[pulumi.Resource] = []
        authorities: list[pulumi.Resource] = []
        for key, manifest in objects.items():
            after = made if key == "deployment" else made[:1]
            child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(after))
            if key.startswith("authority-"):
                child_opts = pulumi.ResourceOptions.merge(child_opts, KEEPS_ITS_AUTHORITY)
                authorities.append(register(f"{name}-{key}", with_new_authority(manifest), child_opts))
                made.append(authorities[-1])
                continue
            trusted = trusting(manifest, authorities) if authorities and "webhooks" in manifest else manifest
            made.append(register(f"{name}-{key}", trusted, child_opts))
        names = [manifest["metadata"]["name"] for manifest in admission.webhooks(settings).values()]
        self.namespace = pulumi.Output.from_input(settings.admission.namespace)
        self.webhooks = pulumi.Output.from_input(names)
        self.register_outputs({"namespace": self.namespace, "webhooks": self.webhooks})
