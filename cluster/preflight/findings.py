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
