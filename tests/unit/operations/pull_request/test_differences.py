"""Values that change."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from operations.engine_events import Step
from operations.pull_request.differences import Difference, differences, drift
from operations.redaction import Redactor
from tests.unit.operations.pull_request.logs import step


def _step(
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    detailed: Mapping[str, Mapping[str, Any]] | None = None,
) -> Step:
    return Step.model_validate(
        step("update", "web", old=old, new=new, detailed=detailed)["resourcePreEvent"]["metadata"]
    )


def test_the_providers_paths_are_looked_up() -> None:
    old = {"metadata": {"labels": {"a.b/c": "1"}}, "spec": {"containers": [{"image": "x:1"}]}}
    new = {"metadata": {"labels": {"a.b/c": "2"}}, "spec": {"containers": [{"image": "x:2"}]}}
    detailed = {
        'metadata.labels["a.b/c"]': {"diffKind": "update", "inputDiff": True},
        "spec.containers[0].image": {"diffKind": "update-replace", "inputDiff": True},
    }
    assert differences(_step(old, new, detailed), Redactor()) == (
        Difference('metadata.labels["a.b/c"]', '"1"', '"2"'),
        Difference("spec.containers[0].image", '"x:1"', '"x:2"', replaces=True),
    )


def test_an_addition_has_no_old_value_and_a_removal_no_new_one() -> None:
    detailed = {"a": {"diffKind": "add"}, "b": {"diffKind": "delete"}}
    assert differences(_step({"b": 1}, {"a": 2}, detailed), Redactor()) == (
        Difference("a", None, "2"),
        Difference("b", "1", None),
    )


def test_without_the_providers_paths_inputs_are_compared() -> None:
    result = differences(_step({"a": {"x": 1, "y": [1, 2]}, "b": 1}, {"a": {"x": 2, "y": [1, 3]}}), Redactor())
    assert result == (
        Difference("a.x", "1", "2"),
        Difference("a.y[1]", "2", "3"),
        Difference("b", "1", None),
    )


class _Counting(Redactor):
    """Counts how often a whole resource is looked through."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    @override
    def inputs(self, resource_type: str, values: Mapping[str, object]) -> dict[str, object]:
        self.calls += 1
        return super().inputs(resource_type, values)


def test_a_resource_is_looked_through_for_secrets_as_often_for_many_paths_as_for_one() -> None:
    """Once for each path, a hostile plan would take hours."""
    calls = []
    for count in (1, 50):
        values = {f"k{number}": {"token": "x"} for number in range(count)}
        detailed = {path: {"diffKind": "update"} for path in values}
        redactor = _Counting()
        result = differences(_step(values, values, detailed), redactor)
        assert [(difference.old, difference.new) for difference in result] == [
            ('{"token": "[secret]"}', '{"token": "[secret]"}')
        ] * count
        calls.append(redactor.calls)
    assert calls[0] == calls[1]


@pytest.mark.parametrize("compare", [differences, drift])
def test_a_value_that_many_paths_lead_to_is_written_once(
    compare: Callable[[Step, Redactor], tuple[Difference, ...]],
) -> None:
    values = {"a": {"b": ["c" * 100]}}
    one, other = compare(
        _step(values, {"a": {}}, {"a": {"diffKind": "update"}, ".a": {"diffKind": "update"}}), Redactor()
    )
    assert one.old is other.old is not None
    assert (one.new, other.new) == ("{}", "{}")


def test_a_path_that_leads_nowhere_shows_no_value() -> None:
    detailed = {"a.b[7].c": {"diffKind": "update"}}
    assert differences(_step({"a": {"b": []}}, {"a": 3}, detailed), Redactor()) == (Difference("a.b[7].c", None, None),)


def test_a_resource_made_or_removed_as_a_whole_has_no_differences() -> None:
    assert differences(_step(None, {"a": 1}), Redactor()) == ()
    assert drift(_step({"a": 1}, None), Redactor()) == ()


def test_a_secret_that_changes_is_hidden_on_both_sides() -> None:
    detailed = {"password": {"diffKind": "update", "inputDiff": True}}
    assert differences(_step({"password": "a"}, {"password": "b"}, detailed), Redactor()) == (
        Difference("password", '"[secret]"', '"[secret]"'),
    )
    assert differences(_step({"password": "a"}, {"password": "b"}), Redactor()) == ()


def test_drift_compares_what_was_remembered_with_what_is_there() -> None:
    detailed = {"spec.replicas": {"diffKind": "update"}}
    old = {"spec": {"replicas": 1}, "metadata": {"resourceVersion": "1"}}
    new = {"spec": {"replicas": 5}, "metadata": {"resourceVersion": "2"}}
    assert drift(_step(old, new, detailed), Redactor()) == (Difference("spec.replicas", "1", "5"),)
