"""Which changes of a preview are no drift."""

import pytest

from cluster.ownership.deployed_state import STASH
from operations.pull_request.commands import only_forgets
from tests.unit.operations.pull_request.logs import STACK, record, step, summary


def _stash(op: str, parents: str = "kai-anywhere:index:KaiAnywhere$") -> dict[str, object]:
    event = step(op, "kai-anywhere-adopted", type_=STASH)
    event["resourcePreEvent"]["metadata"]["urn"] = f"{STACK}::{parents}{STASH}::kai-anywhere-adopted"
    return event


@pytest.mark.parametrize("op", ["delete", "update"])
def test_what_the_stack_forgets_of_an_object_that_it_gave_back_is_none(op: str) -> None:
    assert only_forgets(record(_stash(op), summary()))


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([_stash("delete"), step("update", "web")], id="beside a change of the cluster"),
        pytest.param([_stash("delete", parents="")], id="of a program around this one"),
    ],
)
def test_any_other_change_is_drift(events: list[dict[str, object]]) -> None:
    assert not only_forgets(record(*events, summary()))


def test_a_preview_that_was_cut_off_is_not_taken_for_one_without_drift() -> None:
    assert not only_forgets(record(_stash("delete")))
