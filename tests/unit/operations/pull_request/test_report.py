"""The report that one job hands to another: no secret leaves the first, and the second takes it for hostile."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from operations.engine_events import parse_events, record_of
from operations.pull_request import report
from operations.redaction import HIDDEN, Redactor
from tests.unit.operations.pull_request.logs import diagnostic, finding, lines, record, step, summary

SECRET = "hunter2-secret"
EVENTS = (
    step("same", "kept", old={"a": 1}, new={"a": 1}),
    step("update", "web", old={"spec": {"replicas": 1, "x": None}}, new={"spec": {"replicas": 2}}),
    step("delete", "gone", old={"a": 1}),
    finding("privileged: true"),
    diagnostic("beware", severity="warning"),
    summary(same=1, update=1, delete=1),
)


def _written(folder: Path, *events: Mapping[str, Any], secrets: tuple[str, ...] = ()) -> Path:
    file = folder / "preview.json"
    report.write(file, "jetson", 0, parse_events(lines(*events))[0], Redactor(secrets))
    return file


def _good() -> dict[str, Any]:
    return {"stack": "jetson", "status": 0, "events": []}


def _refusal(file: Path) -> str:
    with pytest.raises(report.ReportError) as caught:
        report.read(file, "jetson")
    return str(caught.value)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    read = report.read(_written(tmp_path, *EVENTS), "jetson")
    recorded, direct = record_of(read.events), record(*EVENTS)
    assert [(step.op, step.urn) for step in recorded.steps] == [(step.op, step.urn) for step in direct.steps]
    assert recorded.findings == direct.findings
    assert (recorded.warnings, recorded.counts, recorded.packs, recorded.complete) == (
        direct.warnings,
        direct.counts,
        direct.packs,
        True,
    )
    assert [step.new and step.new.inputs for step in recorded.steps] == [
        step.new and step.new.inputs for step in direct.steps
    ]


def test_the_planned_resources_are_those_that_stay(tmp_path: Path) -> None:
    planned = report.read(_written(tmp_path, *EVENTS), "jetson").resources()
    assert [(step_of_plan["name"], step_of_plan["inputs"]) for step_of_plan in planned] == [
        ("kept", {"a": 1}),
        ("web", {"spec": {"replicas": 2}}),
    ]


def test_no_secret_is_handed_on(tmp_path: Path) -> None:
    password = {"spec": {"password": "p-4711"}, SECRET: SECRET}
    secret = step(
        "update", "s", type_="kubernetes:core/v1:Secret", old={"data": {"k": "d-1"}}, new={"data": {"k": "d-2"}}
    )
    events = (
        step("update", SECRET, type_=SECRET, old=password, new=password, detailed={SECRET: {"diffKind": "update"}}),
        secret,
        finding(SECRET, name=SECRET),
        diagnostic(SECRET),
        diagnostic(SECRET, severity="warning"),
        diagnostic(f"debug {SECRET}", severity="debug"),
        {"preludeEvent": {"config": {"x": SECRET}}},
    )
    text = _written(tmp_path, *events, secrets=(SECRET,)).read_text(encoding="utf-8")
    for hidden in (SECRET, "p-4711", "d-1", "d-2", "debug", "prelude"):
        assert hidden not in text
    assert text.count(HIDDEN) > 5


def test_a_preview_that_never_began_is_a_report_of_its_error(tmp_path: Path) -> None:
    file = tmp_path / "review" / "preview.json"
    report.write(file, "jetson", 1, [report.failure("no cluster")], Redactor())
    recorded = record_of(report.read(file, "jetson").events)
    assert (recorded.errors, recorded.complete) == (("no cluster",), False)


def _event(**content: object) -> dict[str, Any]:
    return _good() | {"events": [content]}


HOSTILE = {
    "not JSON": "<!-- kai-anywhere:preview:jetson -->\n# Approved",
    "another shape": "[]",
    "nothing": "",
    "not text": b"\xff\xfe\x00".decode("latin-1"),
    "an unknown key": json.dumps(_good() | {"comment": "# Approved"}),
    "an unknown key in an event": json.dumps(_event(comment="# Approved")),
    "an unknown key in a step": json.dumps(
        _event(resourcePreEvent={"metadata": {"op": "same", "urn": "u", "type": "t", "html": "<b>"}})
    ),
    "a number for a text": json.dumps(_good() | {"stack": 1}),
    "a text for a number": json.dumps(_good() | {"status": "0"}),
    "a status that no program has": json.dumps(_good() | {"status": 10**30}),
    "negative numbers": json.dumps(_good() | {"status": -1}),
    "another stack": json.dumps(_good() | {"stack": "x86"}),
    "an operation that does not exist": json.dumps(
        _event(resourcePreEvent={"metadata": {"op": "<b>approved</b>", "urn": "u", "type": "t"}})
    ),
    "too many events": json.dumps(_good() | {"events": [{}] * 5001}),
    "too deep": json.dumps(_good())[:-3] + '[{"resourcePreEvent": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}]}",
    "too large a number": '{"stack": "jetson", "events": [], "status": ' + "9" * 6000 + "}",
    "half a character": '{"stack": "\\ud800", "status": 0, "events": []}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_not_of_the_form_is_refused_and_not_quoted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "preview.json"
    file.write_text(text, encoding="utf-8")
    refusal = _refusal(file)
    for quoted in ("Approved", "<b>", "html", "comment", "x86", "99999"):
        assert quoted not in refusal


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "preview.json"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert "more than 4000000 bytes" in _refusal(file)


def _link(file: Path) -> None:
    target = file.with_name("elsewhere.json")
    target.write_text(json.dumps(_good()), encoding="utf-8")
    file.symlink_to(target)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, _link, lambda _: None], ids=["pipe", "folder", "link", "none"])
def test_what_is_not_a_file_is_neither_followed_nor_waited_for(make: Callable[[Path], None], tmp_path: Path) -> None:
    file = tmp_path / "preview.json"
    make(file)
    assert _refusal(file) in {"there is none, or it can't be opened", "it is not a regular file"}
