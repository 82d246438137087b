"""What preflight finds, as a person reads it."""

from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it must be.

    Attributes:
        what: what was found.
        remedy: what to do.
        fatal: whether it stops the program.
    """

    what: str
    remedy: str
    fatal: bool = True

    @override
    def __str__(self) -> str:
        """Two lines a person reads."""
        return f"  {'error' if self.fatal else 'warning'}: {self.what}\n    -> {self.remedy}"


def helm_puts_back(release: str, namespace: str) -> str:
    """What puts an object of a chart back: neither `pulumi up` nor `repair` looks into a release that is deployed.

    Args:
        release: its name.
        namespace: its namespace, as a remedy's text.
    """
    return (
        f"Let Helm put it back: helm upgrade {release} CHART --namespace {namespace} --version VERSION --reuse-values, "
        f"with the chart and the version that helm list --namespace {namespace} shows. If that shows no {release}, "
        "install it: `pulumi up --refresh`."
    )


def stack_option(stack: str) -> str:
    """The option of a command that names the stack, where it is known."""
    return f" --stack {name}" if (name := stack.rpartition("/")[2]) else ""
