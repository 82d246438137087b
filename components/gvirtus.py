"""Remote GPUs: backends, the policies that connect pods with them, and frontends' devices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.kubernetes import register, register_node_labels
from config.gvirtus import BackendKind, FrontendSettings, GvirtusSettings
from config.reservation import Carrier
from config.stack import StackSettings
from manifests import admission
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus import frontends as gvirtus_frontends
from manifests.gvirtus import policy as gvirtus_policy
from manifests.objects import deny_binding


@dataclass(frozen=True)
class GvirtusArgs:
    """What Gvirtus needs.

    Attributes:
        settings: the stack's settings.
        gvirtus: their section of remote GPUs.
        provider: the cluster.
        after: what must be there before: GPUs, the runtime class, NFD's kinds.
        server: the admission server, where it is the carrier.
    """

    settings: StackSettings
    gvirtus: GvirtusSettings
    provider: Provider
    after: Sequence[pulumi.Input[pulumi.Resource]] = field(default=())
    server: Sequence[pulumi.Input[pulumi.Resource]] = field(default=())


class Gvirtus(pulumi.ComponentResource):
    """Backends first: the carrier needs their addresses, and a pod that is let in too early would find nobody.

    Attributes:
        backends: address and port by name.
    """

    backends: pulumi.Output[dict[str, str]]

    def __init__(self, name: str, args: GvirtusArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.GVIRTUS, name, None, opts)
        self._name, self._args = name, args
        self._roles()
        namespace, addresses = self._backends()
        self.backends = addresses.apply(lambda known: gvirtus.endpoints(args.gvirtus, known))
        match args.gvirtus.carrier:
            case Carrier.POLICY:
                config = gvirtus_policy.endpoints_config(args.gvirtus, {}) | {"data": self.backends}
                endpoints = register(f"{name}-endpoints", config, self._opts(namespace))
                self._injection(self._refusals(endpoints))
            case Carrier.WEBHOOK:
                self._tell_the_server(self._refusals())
        if args.gvirtus.frontends is not None:
            self._frontends(args.gvirtus.frontends)
        self.register_outputs({"backends": self.backends})

    def _roles(self) -> None:
        """Detected by NFD, which the GPU Operator brings; without it, frontends are the nodes that the stack names."""
        settings, frontends = self._args.settings, self._args.gvirtus.frontends
        if settings.gpu_operator.install:
            rule = gvirtus_frontends.roles_rule(self._args.gvirtus)
            register(f"{self._name}-roles", rule, self._opts(*self._args.after))
        elif frontends is not None:
            labels = {gvirtus_frontends.FRONTEND_ALLOWED: "true"}
            for node in sorted(frontends.nodes):
                register_node_labels(f"{self._name}-frontend-{node}", node, labels, self._opts())

    def _backends(self) -> tuple[pulumi.CustomResource, pulumi.Output[dict[str, str]]]:
        """Their namespace, and their Services' addresses by name."""
        settings, remote = self._args.settings, self._args.gvirtus
        namespace = register(f"{self._name}-namespace", gvirtus.backends_namespace(remote), self._opts())
        fence = register(f"{self._name}-clients", gvirtus.network_policy(remote), self._opts(namespace))
        addresses: dict[str, pulumi.Output[str]] = {}
        for name in sorted(remote.backends):
            service = register(f"{self._name}-service-{name}", gvirtus.service(remote, name), self._opts(namespace))
            addresses[name] = _address(service)
            register(
                f"{self._name}-backend-{name}",
                gvirtus.deployment(settings, remote, name),
                # Behind the fence before anybody can reach it.
                self._opts(fence, *self._args.after),
            )
        return namespace, pulumi.Output.all(**addresses)

    def _refusals(self, *after: pulumi.Resource) -> pulumi.CustomResource:
        """In force before anything is added to pods, whoever adds it."""
        settings, remote = self._args.settings, self._args.gvirtus
        policy = register(
            f"{self._name}-requests", gvirtus_policy.requests_policy(settings, remote), self._opts(*after)
        )
        return register(f"{self._name}-requests-binding", deny_binding(gvirtus_policy.REQUESTS), self._opts(policy))

    def _injection(self, refusals: pulumi.CustomResource) -> None:
        settings, remote = self._args.settings, self._args.gvirtus
        for kind in BackendKind:
            if not any(backend.kind is kind for backend in remote.backends.values()):
                continue
            policy = register(
                f"{self._name}-{kind.value}-injection",
                gvirtus_policy.injection_policy(settings, remote, kind),
                self._opts(refusals),
            )
            register(
                f"{self._name}-{kind.value}-injection-binding",
                gvirtus_policy.injection_binding(remote, kind),
                self._opts(policy),
            )

    def _tell_the_server(self, refusals: pulumi.CustomResource) -> None:
        """The server runs since before KAI and refuses these pods until the kubelet has shown it this ConfigMap."""
        data = self.backends.apply(admission.gvirtus_backends_data)
        config = admission.gvirtus_backends(self._args.settings) | {"data": data}
        register(f"{self._name}-webhook-backends", config, self._opts(refusals, *self._args.server))

    def _frontends(self, frontends: FrontendSettings) -> None:
        """Pods are kept away before the first device is there: by the guard, and by selectors that a policy adds.

        The webhook adds none, so that pods without the label don't depend on its server: they say it themselves.
        """
        settings = self._args.settings
        placed: list[pulumi.Resource] = []
        if self._args.gvirtus.carrier is Carrier.POLICY:
            placement = register(f"{self._name}-placement", gvirtus_frontends.placement_policy(settings), self._opts())
            binding = gvirtus_frontends.placement_binding()
            placed.append(register(f"{self._name}-placement-binding", binding, self._opts(placement)))
        guard = register(
            f"{self._name}-guard", gvirtus_frontends.guard_policy(settings, frontends), self._opts(*placed)
        )
        guarded = register(f"{self._name}-guard-binding", deny_binding(gvirtus_frontends.GUARD), self._opts(guard))
        namespace = register(f"{self._name}-frontends-namespace", gvirtus_frontends.frontends_namespace(), self._opts())
        register(
            f"{self._name}-device-plugin",
            gvirtus_frontends.device_plugin(settings, frontends),
            self._opts(namespace, guarded),
        )

    def _opts(self, *after: pulumi.Input[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.provider, depends_on=list(after))


def _address(service: pulumi.CustomResource) -> pulumi.Output[str]:
    """A Service's address, unknown to the preview that is to make it.

    Symptom of asking without more: `KeyError: 'clusterIP'`. Where the API server can't try the Service, since its
    namespace is yet to come, the preview has the spec as we wrote it (Kubernetes provider 4.25, by design).
    """
    spec: pulumi.Output[dict[str, Any]] = vars(service)["spec"]
    return spec.apply(lambda made: pulumi.Output.from_input(made.get("clusterIP", pulumi.output.UNKNOWN)))
