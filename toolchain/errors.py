"""The one exception of the toolchain."""


class ToolchainError(Exception):
    """A program can't be had: what happened, why, and what a person does about it.

    Attributes:
        why: as part of a sentence.
    """

    def __init__(self, what: str, *, why: str, remedy: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  What to do: {remedy}")
        self.why = why
