"""The command line: what a person sees, without a control plane."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulator", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_status_of_nothing_is_readable_and_fails(tmp_path: Path) -> None:
    folder = tmp_path / "simulator"
    result = run("status", f"--folder={folder}")
    assert result.returncode == 1
    assert "not running" in result.stdout
    assert "python -m simulator up" in result.stdout
    assert not folder.exists(), "looking changes nothing"


@pytest.mark.parametrize("command", ["down", "reset"])
def test_stopping_nothing_is_fine(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "simulator"
    result = run(command, f"--folder={folder}")
    assert (result.returncode, result.stderr) == (0, "")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("jetson-2", "Write NAME=KIND, where KIND is one of jetson, x86, cpu, spark"),
        ("a=thor", "Write NAME=KIND"),
        ("A_b=cpu", "'A_b' can't be a node's name"),
    ],
)
def test_a_wrong_node_is_explained_before_anything_starts(tmp_path: Path, node: str, says: str) -> None:
    folder = tmp_path / "simulator"
    result = run("up", f"--folder={folder}", f"--node={node}")
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not folder.exists()
