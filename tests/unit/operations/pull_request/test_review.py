"""The preview that is told of, with a program in the place of pulumi."""

import json
from pathlib import Path

import pytest

from operations.errors import OperationError
from operations.pull_request import review
from operations.target import Target
from testbed.stacks import jetson, parse


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            6,
            "The backend has no stack 'berlin' yet, so there is no preview of it. Make it there, once",
        ),
        (255, "pulumi preview wrote no event log (status 255)"),
    ],
)
def test_a_stack_that_is_not_in_the_backend_yet_is_told_with_what_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, says: str
) -> None:
    file = {"config": {"kai-anywhere:settings": jetson()}}
    (tmp_path / "Pulumi.berlin.yaml").write_text(json.dumps(file), encoding="utf-8")
    monkeypatch.setattr(review, "watched", lambda *_, **__: status)
    with pytest.raises(OperationError) as refused:
        review.preview(Target("berlin", parse(jetson()), tmp_path, {}, ()), tmp_path / "review")
    assert str(refused.value).startswith(says)
