"""The reservation pods' namespace, what Tegra nodes add to them, and the guard around both."""

from dataclasses import dataclass

import pulumi

from components import tokens
from components.kubernetes import Registrar
from config.stack import StackSettings
from manifests import reservation, reservation_guard, reservation_index


@dataclass(frozen=True)
class ReservationOverridesArgs:
    """What ReservationOverrides needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource


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
        registrar = Registrar(self, name, args.provider)
        registrar.register_all(reservation_guard.objects(settings))
        registrar.register_all(reservation.objects(settings))
        registrar.register_all(reservation_index.objects(settings))
        changed = settings.platform.jetsons if settings.overrides_apply else {}
        self.namespace = pulumi.Output.from_input(reservation.NAMESPACE)
        self.tegra_nodes = pulumi.Output.from_input(sorted(changed))
        self.register_outputs({"namespace": self.namespace, "tegra_nodes": self.tegra_nodes})
