"""Reads what the engine says as events, by `--event-log` or an analysis' `--json`: one JSON object a line.

Shapes: `apitype/events.go` of the Pulumi SDK 3.259. `pulumi preview --json` is of no use here: it leaves policy events
out.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operations.errors import OperationError

_COMPONENT = "kai-anywhere:index:"
# None holds a "%": read to the end from each beginning without one, a hostile text would take hours.
_COLOUR = re.compile(r"<\{%[^%\n]*%\}>")
_NOT_REGISTERED = frozenset({"delete", "read-discard", "discard"})
_UNCHANGED = frozenset({"same", "read", "refresh"})
# A replacement is told as three steps; one of them is enough for a reader.
_PARTS_OF_A_REPLACEMENT = frozenset({"create-replacement", "delete-replaced", "import-replacement", "read-replacement"})
# What every run of programs found on PATH says; it tells a reviewer nothing.
_NOISE = re.compile(r"using pulumi-\S+ from \$PATH")


class EventLogError(OperationError):
    """The lines are not events of the engine."""


class _Event(BaseModel):
    # The engine says more than is read here, and says more with every version.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class State(_Event):
    """A resource before or after a step."""

    inputs: dict[str, Any] | None = None
    outputs: dict[str, Any] | None = None


class PropertyDiff(_Event):
    """How one property changes.

    Attributes:
        kind: `add`, `delete` or `update`, with `-replace` where it forces a replacement.
        input_diff: whether old inputs were compared, and not the old state.
    """

    kind: str = Field(alias="diffKind")
    input_diff: bool = Field(alias="inputDiff", default=False)


class Step(_Event):
    """What happens, or would happen, to one resource."""

    op: str
    urn: str
    type: str
    old: State | None = None
    new: State | None = None
    detailed_diff: dict[str, PropertyDiff] | None = Field(alias="detailedDiff", default=None)

    @property
    def name(self) -> str:
        """The resource's logical name."""
        return self.urn.rsplit("::", 1)[-1]

    @property
    def component(self) -> str:
        """The class of our component that it is, or is a part of; empty outside of them."""
        # urn:pulumi:<stack>::<project>::<types from the top, with $ between>::<name>
        *_, types, _ = ("", "", *self.urn.split("::", 3))
        ours = [token for token in types.split("$") if token.startswith(_COMPONENT)]
        return ours[-1].removeprefix(_COMPONENT) if ours else ""


class Finding(_Event):
    """A policy's objection."""

    urn: str = Field(alias="resourceUrn", default="")
    message: str
    policy: str = Field(alias="policyName")
    pack: str = Field(alias="policyPackName")
    level: str = Field(alias="enforcementLevel")

    @property
    def blocks(self) -> bool:
        """Whether it stops an `up`."""
        return self.level == "mandatory"


class Diagnostic(_Event):
    """What program, engine or provider say."""

    urn: str = ""
    message: str
    severity: str
    ephemeral: bool = False


class Summary(_Event):
    """The engine's last words."""

    changes: dict[str, int] | None = Field(alias="resourceChanges", default=None)
    packs: dict[str, str] | None = Field(alias="PolicyPacks", default=None)
    of_a_preview: bool = Field(alias="isPreview", default=False)
    result: str = ""


class Metadata(_Event):
    """What the engine says with a step."""

    metadata: Step


class Line(_Event):
    """One event; a line has one of these or something that is not read here."""

    diagnostic: Diagnostic | None = Field(alias="diagnosticEvent", default=None)
    policy: Finding | None = Field(alias="policyEvent", default=None)
    before: Metadata | None = Field(alias="resourcePreEvent", default=None)
    after: Metadata | None = Field(alias="resOutputsEvent", default=None)
    summary: Summary | None = Field(alias="summaryEvent", default=None)


@dataclass(frozen=True)
class Record:
    """A finished preview, as far as it got.

    Attributes:
        steps: what would be changed, in the engine's order; a replacement once.
        unchanged: what the program has and the plan leaves as it is.
        drifted: what a refresh found changed outside of Pulumi.
        registered: resources that the program has.
        findings: of policies, blocking ones first.
        errors: of program, engine and provider; texts without colours.
        warnings: likewise.
        counts: resources by operation.
        packs: the policy packs that ran, with their versions.
        complete: whether the engine came to its end, and so nothing is missing above.
    """

    steps: tuple[Step, ...]
    unchanged: tuple[Step, ...]
    drifted: tuple[Step, ...]
    registered: int
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    counts: dict[str, int]
    packs: dict[str, str]
    complete: bool


def failed(error: str) -> Record:
    """A preview that ended before the engine began."""
    return Record((), (), (), 0, (), (error,), (), {}, {}, complete=False)


def read_events(lines: Iterable[str]) -> Record:
    """What an event log says.

    The last line may be cut off: an engine that was killed does that, and the record is then not complete.

    Raises:
        EventLogError: if another line is not an event.
    """
    events, cut_off = parse_events(lines)
    record = record_of(events)
    return replace(record, complete=False) if cut_off else record


def record_of(events: Sequence[Line]) -> Record:
    """What events say; they are complete where the engine's last words are among them."""
    steps: dict[str, Step] = {}
    unchanged: dict[str, Step] = {}
    drifted: dict[str, Step] = {}
    registered: set[str] = set()
    for event in events:
        if event.before:
            step = event.before.metadata
            if step.op not in _NOT_REGISTERED:
                registered.add(step.urn)
            if step.op not in _UNCHANGED | _PARTS_OF_A_REPLACEMENT:
                steps[step.urn] = step
            elif step.op == "same":
                unchanged[step.urn] = step
        elif event.after:
            step = event.after.metadata
            if step.op == "refresh" and (step.new is None or step.detailed_diff):
                drifted[step.urn] = step
    findings = dict.fromkeys(event.policy for event in events if event.policy)
    summaries = [event.summary for event in events if event.summary]
    counts: dict[str, int] = {}
    packs: dict[str, str] = {}
    for summary in summaries:
        counts |= summary.changes or {}
        # A local pack is named `name|local|folder`.
        packs |= {name.split("|")[0]: version for name, version in (summary.packs or {}).items()}
    return Record(
        steps=tuple(steps.values()),
        unchanged=tuple(step for urn, step in unchanged.items() if urn not in steps),
        drifted=tuple(drifted.values()),
        registered=len(registered),
        findings=tuple(sorted(findings, key=lambda finding: not finding.blocks)),
        errors=_diagnostics(events, "error"),
        warnings=_diagnostics(events, "warning"),
        counts=counts,
        packs=packs,
        complete=bool(summaries),
    )


def parse_events(lines: Iterable[str]) -> tuple[list[Line], bool]:
    """The events of a log, and whether its last line is cut off.

    Raises:
        EventLogError: if another line is not an event.
    """
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    events: list[Line] = []
    for number, line in numbered:
        try:
            events.append(Line.model_validate_json(line))
        except ValidationError as error:
            if number == numbered[-1][0] and number > 1:
                return events, True
            # The error's own text quotes the line, which may hold anything.
            problem = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the whole line"
            raise EventLogError(f"Line {number} is not an event of the engine: {where}: {problem['msg']}") from None
    return events, False


def _diagnostics(events: Iterable[Line], severity: str) -> tuple[str, ...]:
    messages = (
        _COLOUR.sub("", event.diagnostic.message).strip()
        for event in events
        if event.diagnostic and event.diagnostic.severity == severity and not event.diagnostic.ephemeral
    )
    return tuple(dict.fromkeys(text for text in messages if text and not _NOISE.match(text)))
