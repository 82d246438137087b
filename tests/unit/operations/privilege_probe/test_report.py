"""What a probe says to people and to programs."""

import json

import pytest
import yaml

from operations.privilege_probe.ladder import LADDER, Attempt, Symptom
from operations.privilege_probe.report import NOT_HELD, NOT_SEEN, Result
from testbed.stacks import Json, changed, never, parse, rungs
from testbed.stacks import jetson as stack_of_one

BY_NAME = {rung.name: rung for rung in LADDER}
VALID = {"kernel": "6.8.12-tegra", "kai_image": "kai:1"}


def _result(*attempts: tuple[str, Symptom], stack: Json | None = None) -> Result:
    tried = [Attempt(BY_NAME[name], symptom, ("a line",)) for name, symptom in attempts]
    return Result("jetson-1", parse(stack or stack_of_one()), (44, 107), tried, VALID)


def test_the_json_has_its_shape() -> None:
    answer = json.loads(_result(("plain", Symptom.NO_LIBRARY), ("variables", Symptom.HELD)).json())
    assert list(answer) == [
        "node",
        "status",
        "rung",
        "privilege",
        "workaround_needed",
        "sentence",
        "remarks",
        "settings",
        "attempts",
        "valid_for",
        "not_seen",
    ]
    assert (answer["node"], answer["status"], answer["rung"], answer["privilege"]) == (
        "jetson-1",
        0,
        "variables",
        "none",
    )
    assert answer["workaround_needed"] is False
    assert answer["settings"] == {"reservation": {"privilege_by_node": {"jetson-1": "none"}}}
    assert [attempt["symptom"] for attempt in answer["attempts"]] == ["no_library", "held"]
    assert answer["attempts"][1]["adds"] == ["runtime_class", "variables"]
    assert answer["valid_for"] == VALID
    assert answer["not_seen"] == [*NOT_SEEN.values()]


def test_the_text_ends_with_lines_that_can_be_pasted() -> None:
    result = _result(("plain", Symptom.CLOSED), ("groups", Symptom.HELD))
    text = result.text()
    pasted = text.partition("Write into the stack's settings:\n\n")[2].partition("\n\n")[0]
    assert yaml.safe_load(pasted) == {
        "reservation": {"privilege_by_node": {"jetson-1": "none"}, "supplemental_groups": [44, 107]}
    }
    assert "    a line" in text
    assert "  kernel: 6.8.12-tegra" in text
    assert all(text_of_one in text for text_of_one in NOT_SEEN.values())


def test_nothing_that_the_pod_logs_commands_the_terminal() -> None:
    tried = [Attempt(BY_NAME["plain"], Symptom.OTHER, ("\x1b]0;owned\x07no GPU",))]
    text = Result("jetson-1", parse(stack_of_one()), (44,), tried, VALID).text()
    assert "no GPU" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_what_the_host_has_said_is_not_called_unseen() -> None:
    tried = [Attempt(BY_NAME["variables"], Symptom.HELD, ())]
    seen = VALID | dict.fromkeys(NOT_SEEN, "R36.4.3")
    whole = Result("jetson-1", parse(stack_of_one()), (44,), tried, seen)
    assert whole.text().endswith("  cdi_digest: R36.4.3\nProbe again when one of them changes.")
    assert json.loads(whole.json())["not_seen"] == []
    del seen["cdi_digest"]
    assert Result("jetson-1", parse(stack_of_one()), (44,), tried, seen).not_seen == ["the node's CDI specifications"]


@pytest.mark.parametrize(
    ("attempts", "says"),
    [
        ([("variables", Symptom.HELD)], "The workaround is not needed on jetson-1"),
        ([("libraries", Symptom.HELD)], "A part of the workaround is needed on jetson-1"),
        ([("privileged", Symptom.HELD)], "The workaround is still needed on jetson-1"),
        ([("groups", Symptom.REFUSED), ("privileged", Symptom.HELD)], "whether less would do is not known"),
        ([("privileged", Symptom.CLOSED)], "No rung held on jetson-1"),
        ([("plain", Symptom.NO_IMAGE)], "could not find out whether the workaround is needed"),
    ],
)
def test_one_sentence_says_whether_the_workaround_is_needed(attempts: list[tuple[str, Symptom]], says: str) -> None:
    assert says in _result(*attempts).sentence
    assert says in _result(*attempts).text()


def test_a_rung_that_no_setting_says_is_named() -> None:
    result = _result(("root", Symptom.HELD), ("privileged", Symptom.HELD))
    assert "The rung root" in result.text()
    assert "privileged does, too" in result.text()
    alone = _result(("root", Symptom.HELD), ("privileged", Symptom.CLOSED))
    assert alone.status == NOT_HELD
    assert "of those that it can say none held" in alone.text()


def test_other_jetsons_keep_what_the_settings_say() -> None:
    result = _result(("groups", Symptom.HELD), stack=rungs())
    assert result.settings_to_write["reservation"] == {
        "privilege_by_node": {"jetson-2": "devices", "jetson-3": "privileged", "jetson-1": "none"},
        "supplemental_groups": [44, 104, 107],
    }


def test_groups_that_no_pod_would_get_are_taken_out() -> None:
    stack = changed(stack_of_one(), "reservation", {"privilege": "none", "supplemental_groups": [44]})
    written = _result(("privileged", Symptom.HELD), stack=stack).settings_to_write
    assert written["reservation"]["supplemental_groups"] == []
    assert parse(changed(stack, "reservation", {"privilege": "none"} | written["reservation"])).overrides_apply


def test_a_stack_without_overrides_stays_so_where_kais_own_pod_holds() -> None:
    held = _result(("runtime-class", Symptom.HELD), ("variables", Symptom.HELD), stack=never())
    assert held.settings_to_write == {}
    assert "reservation.overrides: never" in held.text()
    more = _result(("runtime-class", Symptom.NO_LIBRARY), ("libraries", Symptom.HELD), stack=never())
    assert more.settings_to_write["reservation"] == {
        "overrides": "auto",
        "privilege_by_node": {"jetson-1": "devices"},
    }
