"""What `pulumi up` ends with where the settings say so: does everything that was installed do its work?"""

from dataclasses import dataclass

import pulumi

from cluster.validation import checks, validate
from components import tokens
from components.gates import looked
from config.stack import StackSettings


@dataclass(frozen=True)
class VerificationArgs:
    """What Verification needs.

    Attributes:
        settings: the stack's settings.
    """

    settings: StackSettings


class Verification(pulumi.ComponentResource):
    """Nothing in the cluster: a look at it after everything that this depends on, at each `up` and in no preview.

    At each, and not only where something of the stack has changed: what somebody else changed fails it too.

    Attributes:
        checked: what holds, in words.
    """

    checked: pulumi.Output[list[str]]

    def __init__(self, name: str, args: VerificationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Look, once everything is there.

        Args:
            name: the component's name.
            args: what it needs.
            opts: with everything that the stack installs under `depends_on`: this has its URN only after that.
        """
        super().__init__(tokens.VERIFICATION, name, None, opts)
        what = [check.condition.what for check in checks(args.settings)]
        self.checked = pulumi.Output.from_input(what)
        if not pulumi.runtime.is_dry_run():
            outcome = looked(
                self,
                self.urn,
                lambda connection, report: validate(connection, args.settings, report),
                args.settings.cluster,
            )
            self.checked = outcome.apply(lambda _: what)
        self.register_outputs({"checked": self.checked})
