"""The guard that refuses pods with power over their node, for what comes into the cluster without this program."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes import Provider

from components import tokens
from components.kubernetes import register
from config.stack import StackSettings
from manifests import pod_guard
from manifests.objects import deny_binding


@dataclass(frozen=True)
class PodGuardArgs:
    """What PodGuard needs.

    Attributes:
        settings: the stack's settings.
        provider: the cluster.
        after: what must be there before: the stack's own releases, whose pods it judges from their next roll-out on.
    """

    settings: StackSettings
    provider: Provider
    after: Sequence[pulumi.Input[pulumi.Resource]] = field(default=())


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
        policy = register(
            f"{name}-policy",
            pod_guard.guard_policy(settings),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(args.after)),
        )
        register(
            f"{name}-binding",
            deny_binding(pod_guard.POD_GUARD),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[policy]),
        )
        self.scope = pulumi.Output.from_input(settings.pod_guard.scope.value)
        self.exempt_namespaces = pulumi.Output.from_input(pod_guard.exempt_namespaces(settings))
        self.register_outputs({"scope": self.scope, "exempt_namespaces": self.exempt_namespaces})
