"""Reading the engine's event log."""

import json

import pytest

from operations.engine_events import EventLogError, read_events
from tests.unit.operations.pull_request.logs import diagnostic, finding, lines, record, step, summary


def test_steps_that_change_nothing_are_left_out() -> None:
    read = record(step("same", "a"), step("read", "b"), step("refresh", "c"), step("create", "d"), summary(create=1))
    assert [(s.op, s.name) for s in read.steps] == [("create", "d")]


def test_what_the_program_registers_is_counted_once_whatever_happens_to_it() -> None:
    read = record(step("same", "a"), step("create", "b"), step("update", "b"), step("delete", "gone"), summary())
    assert read.registered == 2


def test_a_replacement_is_told_once() -> None:
    read = record(step("create-replacement", "a"), step("replace", "a"), step("delete-replaced", "a"))
    assert [(s.op, s.name) for s in read.steps] == [("replace", "a")]


def test_a_refresh_finds_drift_and_an_update_is_none() -> None:
    read = record(
        step("refresh", "a", old={"x": 1}, new={"x": 2}, detailed={"x": {"diffKind": "update"}}, after=True),
        step("refresh", "b", old={"x": 1}, new={"x": 1}, after=True),
        step("refresh", "c", old={"x": 1}, after=True),
        step("update", "d"),
        step("update", "d", old={"x": 1}, new={"x": 2}, detailed={"x": {"diffKind": "update"}}, after=True),
    )
    assert [s.name for s in read.drifted] == ["a", "c"]
    assert [s.name for s in read.steps] == ["d"]


def test_findings_that_block_come_first_and_none_comes_twice() -> None:
    advice, refusal = finding("maybe", level="advisory"), finding("no")
    read = record(advice, refusal, refusal)
    assert [(f.message, f.blocks) for f in read.findings] == [("no", True), ("maybe", False)]


def test_diagnostics_lose_their_colours_and_passing_ones_are_left_out() -> None:
    read = record(
        diagnostic("<{%fg 1%}>it broke<{%reset%}>\n"),
        diagnostic("it broke"),
        diagnostic("working on it", ephemeral=True),
        diagnostic("RPC", severity="debug"),
        diagnostic("beware", severity="warning"),
        diagnostic("using pulumi-language-python from $PATH at /usr/bin/x", severity="warning"),
    )
    assert read.errors == ("it broke",)
    assert read.warnings == ("beware",)


def test_the_summary_makes_a_record_complete() -> None:
    assert record(summary(create=2)).complete
    assert record(summary(create=2)).counts == {"create": 2}
    assert record(summary()).packs == {"kai-anywhere": "v0.1.0"}
    assert not record(step("create", "a")).complete


def test_an_engine_that_was_killed_leaves_half_a_line_which_is_not_taken_for_the_end() -> None:
    whole = lines(step("create", "a"), summary(create=1), step("create", "b"))
    read = read_events([*whole[:-1], whole[-1][:40]])
    assert [s.name for s in read.steps] == ["a"]
    assert not read.complete


def test_an_event_of_a_newer_engine_is_passed_over() -> None:
    assert read_events([json.dumps({"sequence": 1, "somethingNewEvent": {"x": 1}}), *lines(summary())]).complete


def test_an_empty_log_is_incomplete() -> None:
    assert not read_events([]).complete
    assert not read_events(["\n"]).complete


@pytest.mark.parametrize("line", ["not JSON", "[]", '{"policyEvent": {"message": 1}}', '{"resourcePreEvent": 3}'])
def test_another_file_is_refused_without_quoting_it(line: str) -> None:
    with pytest.raises(EventLogError, match="Line 1 is not an event of the engine") as caught:
        read_events([line, *lines(summary())])
    assert "not JSON" not in str(caught.value)
