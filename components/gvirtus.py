"""Remote GPUs: backends, the policies that connect pods with them, and frontends' devices."""

from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster import waiting
from components import tokens
from components.gates import gate
from components.kubernetes import Dependencies, Labeller, Registrar
from config.gvirtus import FRONTEND_ALLOWED, GvirtusSettings
from config.stack import StackSettings
from manifests.gvirtus import backends
from manifests.gvirtus import objects as manifests


@dataclass(frozen=True)
class GvirtusArgs:
    """What Gvirtus needs.

    Attributes:
        settings: the stack's settings; without a section of remote GPUs nothing is registered.
        provider: the cluster.
        labeller: who labels the frontends' nodes.
        depends_on: what must be there before: GPUs, the runtime class, NFD's kinds.
        server: the admission server, where it is the carrier.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource
    labeller: Labeller
    depends_on: Dependencies = field(default=())
    server: Dependencies = field(default=())


class Gvirtus(pulumi.ComponentResource):
    """Backends, the carrier that connects pods with them, and frontends.

    Attributes:
        backends: address and port by name.
    """

    backends: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, args: GvirtusArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.GVIRTUS, name, None, opts)
        self.backends = pulumi.Output.from_input({})
        if args.settings.gvirtus is not None:
            self._install(name, args, args.settings.gvirtus)
        self.register_outputs({"backends": self.backends})

    def _install(self, name: str, args: GvirtusArgs, remote: GvirtusSettings) -> None:
        registrar = Registrar(
            self,
            name,
            args.provider,
            {
                manifests.GPUS: lambda: args.depends_on,
                manifests.SERVER: lambda: args.server,
                manifests.ADMITTED: lambda: [self._admitted(registrar, args.settings, remote)],
            },
        )
        addresses: dict[str, pulumi.Output[str]] = {}
        for key, stack_object in manifests.objects(args.settings).items():
            content = stack_object.content
            if key == manifests.ADDRESSES:
                known_addresses = pulumi.Output.all(**addresses)
                data = known_addresses.apply(lambda values: manifests.addresses_data(remote, values))
                content = stack_object.manifest | {"data": data}
            resource = registrar.register(key, content, stack_object.depends_on)
            if key.startswith(manifests.SERVICE):
                addresses[key.removeprefix(manifests.SERVICE)] = _address(resource)
            if key.startswith(manifests.BACKEND):
                ready = waiting.backend_ready(remote, key.removeprefix(manifests.BACKEND))
                gate(resource, [ready], args.settings.cluster, timeout_seconds=remote.timeout_seconds)
        self.backends = pulumi.Output.all(**addresses).apply(lambda values: backends.endpoints(remote, values))
        if remote.frontends is not None and not args.settings.gpu_operator.install:
            # Without the operator's NFD, frontends are the nodes that the stack names.
            labels = {node: {FRONTEND_ALLOWED: "true"} for node in sorted(remote.frontends.nodes)}
            args.labeller.register(f"{name}-frontend", labels, pulumi.ResourceOptions(parent=self))

    @staticmethod
    def _admitted(
        registrar: Registrar, settings: StackSettings, remote: GvirtusSettings
    ) -> pulumi.Output[pulumi.Resource]:
        device_plugin = manifests.objects(settings)["device-plugin"].manifest
        return gate(
            registrar.made["frontends-namespace"],
            [waiting.guard_admits(device_plugin)],
            settings.cluster,
            timeout_seconds=remote.timeout_seconds,
        )


def _address(service: pulumi.CustomResource) -> pulumi.Output[str]:
    """A Service's address, unknown to the preview that is to make it.

    Symptom of asking without more: `KeyError: 'clusterIP'`. Where the API server can't try the Service, since its
    namespace is yet to come, the preview has the spec as we wrote it (Kubernetes provider 4.25, by design).
    """
    spec: pulumi.Output[dict[str, Any]] = vars(service)["spec"]
    return spec.apply(lambda fields: pulumi.Output.from_input(fields.get("clusterIP", pulumi.output.UNKNOWN)))
