"""What `up` ends with, once pulumi has done its work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from operations import engine
from operations.__main__ import app
from operations.engine import Checkpoint
from operations.exit_status import ExitStatus
from operations.lifecycle import commands
from operations.target import Target
from testbed.stacks import changed, jetson, parse
from tests.support.api_server import ApiServer


@pytest.fixture
def up(config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Result]:
    """Install a stack on a cluster of one's own, whose settings name its context."""
    named = changed(changed(jetson(), "cluster.kubeconfig", config_path), "cluster.context", "loopback")
    target = Target("edge", parse(named), tmp_path, {}, ())

    @contextmanager
    def opened(_: str) -> Iterator[Target]:
        yield target

    monkeypatch.setattr(commands, "open_target", opened)
    monkeypatch.setattr(engine, "up", lambda _: None)
    monkeypatch.setattr(engine, "checkpoint", lambda _: Checkpoint())
    return lambda: CliRunner().invoke(app, ["up", "--stack", "edge"])


def test_a_stack_that_is_up_is_told_so_though_nobody_answers_what_runs_where(
    api: ApiServer, up: Callable[[], Result]
) -> None:
    """A small board's API server is busy with what has just come: the command failed, and everything was installed."""
    assert "Stack 'edge' is up on http://127.0.0.1:" in up().stdout
    api.fail("/api/v1/nodes", 503)
    result = up()
    assert result.exit_code == ExitStatus.WELL
    assert result.stdout == (
        f"\nStack 'edge' is up. What runs where can't be told now: The cluster at {api.url} answered GET /api/v1/nodes "
        "with status 503.\n"
    )


@pytest.mark.usefixtures("api")
def test_what_is_to_be_tried_next_is_for_the_stacks_cluster_whichever_kubectl_takes(
    config_path: str, up: Callable[[], Result]
) -> None:
    assert "\n  kubectl apply -f examples/fraction.yaml" in up().stdout
    content = Path(config_path).read_text(encoding="utf-8")
    Path(config_path).write_text(
        content.replace("current-context: loopback", "current-context: mine"), encoding="utf-8"
    )
    assert "\n  kubectl --context loopback apply -f examples/fraction.yaml" in up().stdout
