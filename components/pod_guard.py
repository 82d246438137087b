"""The guard that refuses pods with power over their node, for what comes into the cluster without this program."""

from dataclasses import dataclass, field

import pulumi

from components import tokens
from components.kubernetes import Dependencies, Registrar
from config.stack import StackSettings
from manifests import pod_guard


@dataclass(frozen=True)
class PodGuardArgs:
    """What PodGuard needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
        depends_on: the stack's own releases, whose pods the guard judges from their next roll-out on.
    """

    settings: StackSettings
    provider: pulumi.ProviderResource
    depends_on: Dependencies = field(default=())


class PodGuard(pulumi.ComponentResource):
    """The policy pack's checks of pods as an admission policy, and what puts it into force.

    Attributes:
        scope: which namespaces are guarded, `labelled` or `cluster`.
        exempt_namespaces: those that scope `cluster` leaves out; empty for `labelled`.
    """

    scope: pulumi.Output[str]
    exempt_namespaces: pulumi.Output[list[str]]

    def __init__(self, name: str, args: PodGuardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.POD_GUARD, name, None, opts)
        settings = args.settings
        registrar = Registrar(self, name, args.provider, {pod_guard.INSTALLED: lambda: args.depends_on})
        registrar.register_all(pod_guard.objects(settings))
        self.scope = pulumi.Output.from_input(settings.pod_guard.scope.value)
        self.exempt_namespaces = pulumi.Output.from_input(pod_guard.exempt_namespaces(settings))
        self.register_outputs({"scope": self.scope, "exempt_namespaces": self.exempt_namespaces})
