"""What the command line says when it can't do its work: a text and status 1, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from operations.stack_file import stack_names
from testbed.stacks import ROOT


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "operations", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", ["up", "repair", "preview", "down", "preflight", "images"])
def test_an_unknown_stack_names_those_that_exist(command: str) -> None:
    done = _run(command, "--stack", "roof")
    assert done.returncode == 1
    assert f"There is no Pulumi.roof.yaml, so no such stack.\nStacks: {', '.join(stack_names(ROOT))}." in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_cache_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    done = _run("up", PATH=str(Path(sys.executable).parent), KAI_ANYWHERE_CACHE=str(blocked), KAI_ANYWHERE_OFFLINE="1")
    assert done.returncode == 1
    assert str(blocked) in done.stderr
    assert "Traceback" not in done.stderr


def test_resetting_what_was_never_started_is_no_error() -> None:
    done = _run("reset", "--stack", "never-started")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The simulator of stack 'never-started' was never started.\n"
