"""The reservation pods' namespace, what Tegra nodes add to them, and the guard around both."""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.kubernetes import register
from config.platform import TegraPlatform
from config.reservation import Carrier
from config.stack import StackSettings
from manifests import reservation, reservation_guard
from manifests.objects import deny_binding


@dataclass(frozen=True)
class ReservationOverridesArgs:
    """What ReservationOverrides needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
    """

    settings: StackSettings
    provider: Provider


class ReservationOverrides(pulumi.ComponentResource):
    """A namespace, a guard everywhere, and on Tegra stacks the mutation of reservation pods where a policy carries it.

    Attributes:
        namespace: the reservation pods' namespace.
        tegra_nodes: nodes whose reservation pods are changed; empty without overrides.
    """

    namespace: pulumi.Output[str]
    tegra_nodes: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ReservationOverridesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.RESERVATION_OVERRIDES, name, None, opts)
        settings = args.settings
        child_opts = pulumi.ResourceOptions(parent=self, provider=args.provider)
        register(f"{name}-namespace", reservation.reservation_namespace(settings), child_opts)
        guard = register(f"{name}-guard", reservation_guard.guard_policy(settings), child_opts)
        register(f"{name}-guard-binding", deny_binding(reservation_guard.GUARD), self._after(guard, args))
        nodes: list[str] = []
        match settings.platform:
            case TegraPlatform() as platform if settings.overrides_apply:
                nodes = sorted(platform.tegra_nodes)
                match settings.reservation.carrier:
                    case Carrier.POLICY:
                        policy = register(
                            f"{name}-policy",
                            reservation.overrides_policy(reservation.tegra_fragment(platform)),
                            child_opts,
                        )
                        register(f"{name}-binding", reservation.overrides_binding(), self._after(policy, args))
                    case Carrier.WEBHOOK:
                        pass  # the admission server's
            case _:
                pass
        self.namespace = pulumi.Output.from_input(reservation.NAMESPACE)
        self.tegra_nodes = pulumi.Output.from_input(nodes)
        self.register_outputs({"namespace": self.namespace, "tegra_nodes": self.tegra_nodes})

    def _after(self, resource: pulumi.Resource, args: ReservationOverridesArgs) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[resource])
