"""What the engine reports of policies: `--json` of an analysis, `--event-log` of a preview."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operations.errors import OperationError


class _Event(BaseModel):
    # The engine tells much more, and newer ones more again.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class PolicyEvent(_Event):
    """One finding of a policy.

    Attributes:
        policy: the policy's name.
        pack: its pack.
        level: `mandatory`, `advisory` or `disabled`, as the configuration left it.
        message: the text.
        resource: the URN; empty for the whole stack.
    """

    policy: str = Field(alias="policyName")
    pack: str = Field(alias="policyPackName")
    level: str = Field(alias="enforcementLevel")
    message: str
    resource: str = Field(default="", alias="resourceUrn")


class _Step(_Event):
    op: str
    urn: str


class StepEvent(_Event):
    """One resource that the engine looks at."""

    metadata: _Step


class SummaryEvent(_Event):
    """The end: which packs ran, by name, with their versions."""

    packs: dict[str, str] = Field(default_factory=dict, alias="PolicyPacks")


class Event(_Event):
    """One line; at most one of these is there."""

    policy: PolicyEvent | None = Field(default=None, alias="policyEvent")
    step: StepEvent | None = Field(default=None, alias="resourcePreEvent")
    summary: SummaryEvent | None = Field(default=None, alias="summaryEvent")


def read_events(lines: Iterable[str]) -> list[Event]:
    """Every event of the engine's output; lines that are none are left out.

    Raises:
        OperationError: if an event is not what this was written for.
    """
    try:
        return [Event.model_validate_json(line) for line in lines if line.startswith("{")]
    except ValidationError as error:
        raise OperationError(
            f"This version of pulumi reports its events in another way: {error}\nUse the one of `make env`."
        ) from error


def packs_of(events: Iterable[Event]) -> dict[str, str]:
    """The packs that ran, with their versions; a local pack is named `<name>|local|<path>` in a preview."""
    ran = [item for event in events if event.summary for item in event.summary.packs.items()]
    return {name.partition("|")[0]: version for name, version in ran}


def findings_of(events: Iterable[Event]) -> list[PolicyEvent]:
    """Every finding."""
    return [event.policy for event in events if event.policy]
