"""The preview that is told of, with a program in the place of pulumi."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import ClusterUnreachableError
from config.stack import StackConfigError
from operations.__main__ import app
from operations.errors import OperationError
from operations.pull_request import commands, report, review
from operations.target import Target
from simulator.errors import SimulatorError
from testbed.stacks import jetson, parse
from tests.support.full_disk import room_for
from toolchain.errors import ToolchainError


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


@pytest.mark.parametrize(
    "error",
    [
        OperationError("There is no stack."),
        StackConfigError("A setting is wrong."),
        ClusterUnreachableError("No context 'prod' in the kubeconfig."),
        SimulatorError("The disk is full."),
        ToolchainError("pulumi can't be had.", why="none", remedy="wait"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_a_review_before_its_plan_is_told_where_the_plan_would_stand(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(commands, "open_target", refuse)
    done = CliRunner().invoke(app, ["review", "--stack", "prod", "--out", str(tmp_path)])
    assert done.exception is error
    assert str(error) in (tmp_path / "comment.md").read_text(encoding="utf-8")
    [event] = report.read(tmp_path / "preview.json", "prod").events
    assert event.diagnostic is not None
    assert event.diagnostic.message == str(error)


def test_a_full_disk_leaves_no_half_of_what_is_posted_and_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OperationError("There is no such stack.")

    monkeypatch.setattr(commands, "open_target", refuse)
    command = ["review", "--stack", "gone", "--out", str(tmp_path)]
    assert isinstance(CliRunner().invoke(app, command).exception, OperationError)
    whole = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert list(map(len, whole.values())) == sorted(map(len, whole.values())), "the comment is longer, and comes later"
    for name, left in (("preview.json", []), ("comment.md", ["preview.json"])):
        with room_for(len(whole[name]) - 1):
            error = CliRunner().invoke(app, command).exception
        assert isinstance(error, OSError)
        assert error.filename == str(tmp_path / name)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {name: whole[name] for name in left}
