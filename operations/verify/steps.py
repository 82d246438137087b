"""What was verified, and what came of it. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel

from operations.exit_status import ExitStatus
from operations.status.words import printable

VERSION = 1
"""Of the JSON; a change that breaks its readers is another one."""


class Outcome(StrEnum):
    """What came of a step."""

    HELD = "held"
    FAILED = "failed"
    SKIPPED = "skipped"


class Step(BaseModel, extra="forbid", frozen=True):
    """One thing that was verified.

    Attributes:
        name: `reservation pods`, `sharing`, `cuda`.
        place: the node; empty where it is about the cluster.
        outcome: what came of it.
        says: in a sentence.
        evidence: what proves it, a line each.
    """

    name: str
    place: str = ""
    outcome: Outcome
    says: str
    evidence: tuple[str, ...] = ()


class Report(BaseModel, extra="forbid", frozen=True):
    """What `--json` prints."""

    version: int = VERSION
    steps: tuple[Step, ...]

    @property
    def status(self) -> ExitStatus:
        """Failed where anything failed; a warning where anything could not be verified."""
        outcomes = {step.outcome for step in self.steps}
        if Outcome.FAILED in outcomes:
            return ExitStatus.FAILED
        return ExitStatus.WARNINGS if Outcome.SKIPPED in outcomes or not outcomes else ExitStatus.WELL

    def text(self) -> str:
        """For people: a line for each step, and its evidence below."""
        lines = [line for step in self.steps for line in lines_of(step)]
        counts = [(outcome, sum(step.outcome is outcome for step in self.steps)) for outcome in Outcome]
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts if count)
        return "\n".join([*lines, "", f"{summary}." if summary else "There is nothing to verify: no node has a GPU."])


def lines_of(step: Step) -> Sequence[str]:
    """A step as a person reads it."""
    place = f" on {step.place}" if step.place else ""
    lines = [f"{step.outcome:<8}{step.name}{place}: {step.says}", *(f"          {line}" for line in step.evidence)]
    return [printable(line) for line in lines]
