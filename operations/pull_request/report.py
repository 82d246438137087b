"""What the job that runs a pull request's code hands to the job that posts: the engine's events, without secrets.

The second job takes the file for hostile: it may come from any code. It is read as data of one strict form, within
bounds, and everything that is shown of it is rendered there.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from operations.engine_events import Diagnostic, Line, State, Step, Summary
from operations.new_files import write_whole
from operations.redaction import Redactor

LIMIT_BYTES = 4_000_000
"""Of the file; that of a stack with 50 resources has some hundred thousand."""

_LIMIT_EVENTS = 5_000
_LIMIT_STATUS = 255
# What the engine does with a resource (`apitype.OpType` of the Pulumi SDK 3.259).
_OPERATIONS = frozenset(
    {
        *("same", "create", "update", "delete", "replace", "create-replacement", "delete-replaced", "read", "refresh"),
        *("read-replacement", "discard", "read-discard", "discard-replaced", "remove-pending-replace", "import"),
        "import-replacement",
    }
)
_GONE = frozenset({"delete", "delete-replaced", "discard", "read-discard", "discard-replaced"})


class ReportError(Exception):
    """The file is not a report; the message is a part of a sentence and quotes nothing of the file."""


class Report(BaseModel, extra="forbid", frozen=True):
    """A preview as it is handed on.

    Attributes:
        stack: the stack's name.
        status: exit status of pulumi; 0 is success.
        events: what the engine said, in its order.
    """

    stack: str
    status: int = Field(ge=0, le=_LIMIT_STATUS)
    events: tuple[Line, ...] = Field(max_length=_LIMIT_EVENTS)

    def resources(self) -> list[dict[str, object]]:
        """The planned resources, each with `type`, `name` and `inputs`; what would be deleted is left out."""
        planned: dict[str, dict[str, object]] = {}
        for event in self.events:
            if event.before is not None:
                step = event.before.metadata
                planned.pop(step.urn, None)
                if step.op not in _GONE and step.new is not None:
                    planned[step.urn] = {"type": step.type, "name": step.name, "inputs": step.new.inputs or {}}
        return list(planned.values())


def failure(text: str) -> Line:
    """The event of a preview that ended before the engine began."""
    return Line(diagnostic=Diagnostic(message=text, severity="error"))


def write(file: Path, stack: str, status: int, events: Sequence[Line], redactor: Redactor) -> None:
    """Write the report of a preview, without secrets.

    Args:
        file: where to.
        stack: the stack's name.
        status: exit status of pulumi.
        events: those of the engine's log, or a `failure`.
        redactor: knows the secrets.
    """
    report = Report(
        stack=stack, status=min(abs(status), _LIMIT_STATUS), events=tuple(_without_secrets(events, redactor))
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, report.model_dump_json(by_alias=True, exclude_defaults=True))


def read(file: Path, stack: str) -> Report:
    """Read a report that anybody may have written.

    Raises:
        ReportError: if it is not there, not a file, too large, not of the strict form, or of another stack.
    """
    try:
        report = Report.model_validate_json(_content(file), strict=True, extra="forbid")
    except ValidationError as error:
        # The error's own text quotes the file, and so do the keys in its place: both may hold anything.
        problem = error.errors(include_input=False, include_url=False)[0]
        raise ReportError(f"it is not of the form that this code reads ({problem['type']})") from None
    if report.stack != stack:
        raise ReportError("it is of another stack")
    steps = [part.metadata for event in report.events for part in (event.before, event.after) if part is not None]
    if any(step.op not in _OPERATIONS for step in steps):
        raise ReportError("it tells of an operation that the engine does not have")
    return report


def _content(file: Path) -> bytes:
    try:
        # A link could lead to what this job alone may read; a named pipe would be waited for.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        raise ReportError("there is none, or it can't be opened") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ReportError("it is not a regular file")
    with os.fdopen(descriptor, "rb") as opened:
        content = opened.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise ReportError(f"it has more than {LIMIT_BYTES} bytes")
    return content


def _without_secrets(events: Sequence[Line], redactor: Redactor) -> Iterator[Line]:
    for event in events:
        if event.before is not None:
            step = _redacted(event.before.metadata, redactor)
            yield Line(before=event.before.model_copy(update={"metadata": step}))
        elif event.policy is not None:
            words = {"urn": event.policy.urn, "message": event.policy.message}
            update = {name: redactor.text(text) for name, text in words.items()}
            yield Line(policy=event.policy.model_copy(update=update))
        elif event.diagnostic is not None and not event.diagnostic.ephemeral:
            redacted = {"message": redactor.text(event.diagnostic.message), "urn": ""}
            if event.diagnostic.severity in {"error", "warning"}:
                yield Line(diagnostic=event.diagnostic.model_copy(update=redacted))
        elif event.summary is not None:
            yield Line(summary=Summary(changes=event.summary.changes, packs=event.summary.packs))


def _redacted(step: Step, redactor: Redactor) -> Step:
    """The step without secrets, and without what no comment shows."""
    changes = step.op != "same"
    detailed = step.detailed_diff and {redactor.text(path): diff for path, diff in step.detailed_diff.items()}
    return step.model_copy(
        update={
            "urn": redactor.text(step.urn),
            "type": redactor.text(step.type),
            "old": _state(step.type, step.old, redactor, outputs=True) if changes else None,
            "new": _state(step.type, step.new, redactor, outputs=False),
            "detailed_diff": detailed if changes else None,
        }
    )


def _state(resource_type: str, state: State | None, redactor: Redactor, *, outputs: bool) -> State | None:
    if state is None:
        return None
    shown = state.outputs if outputs else None
    return State(
        inputs=None if state.inputs is None else redactor.inputs(resource_type, state.inputs),
        outputs=None if shown is None else redactor.inputs(resource_type, shown),
    )
