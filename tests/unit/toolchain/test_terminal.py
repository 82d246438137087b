"""Building at a terminal: one line that fits, and Ctrl-C. A script stands in for Go."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.support.terminal import CTRL_C, Terminal, terminal
from toolchain.install import build_minutes
from toolchain.programs import ENGINE, KUBERNETES_VERSION, SIMULATOR

_REPOSITORY = Path(__file__).parents[3]

_GO = """#!/bin/sh
case "$1" in
env) echo '{"GOVERSION": "go1.99.0", "GOCACHE": "/"}';;
list) echo "go: downloading example.com/a v1.0.0" >&2; echo "package example.com/a true"
      echo "package example.com/b true";;
build) echo example.com/a; BUILD;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Offline, without any program but a `go`; at the end no unfinished work is left."""
    (tmp_path / "bin").mkdir()
    yield {
        "PATH": str(tmp_path / "bin"),
        "HOME": str(tmp_path),
        "KAI_ANYWHERE_CACHE": str(tmp_path / "cache"),
        "KAI_ANYWHERE_OFFLINE": "1",
    }
    entries = (tmp_path / "cache" / "toolchain").iterdir()
    assert [entry.name for entry in entries if ".partial-" in entry.name] == []


def _go(environment: dict[str, str], build: str) -> None:
    program = Path(environment["PATH"]) / "go"
    program.write_text(_GO.replace("BUILD", build), encoding="utf-8")
    program.chmod(0o755)


def _command(*programs: str) -> list[str]:
    return [sys.executable, "-m", "toolchain", "install", *programs]


def _drawn(at: Terminal) -> list[str]:
    """Each state of each line, without colours."""
    return [Text.from_ansi(part).plain for line in at.shown.split("\n") for part in line.split("\r")]


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_build_is_one_line_that_fits_the_terminal_and_is_gone_at_the_end(
    environment: dict[str, str], columns: int
) -> None:
    # Longer than the bar takes to be drawn.
    _go(environment, "/bin/sleep 1; exit 1")
    with terminal(_command("kube-apiserver"), environment, folder=_REPOSITORY, columns=columns) as at:
        assert at.status() == 1
    bars = [part for part in _drawn(at) if "packages 0:00" in part]
    assert bars
    assert max(map(cell_len, bars)) <= columns
    # One line is drawn anew in place, and its end wipes it out.
    assert at.shown.count("\x1b[1A\x1b[2K") == 2, "once for the packages' list, once for the build"
    assert "can't be built" in at.shown


@pytest.mark.parametrize(
    "variables", [{"TERM": "dumb"}, {"CI": "true"}, {"TERM": "dumb", "FORCE_COLOR": "1"}], ids=["dumb", "CI", "forced"]
)
def test_where_nothing_can_be_drawn_anew_there_are_lines_without_control_characters(
    environment: dict[str, str], variables: dict[str, str]
) -> None:
    _go(environment, "exit 1")
    with terminal(_command("kubectl"), environment | variables, folder=_REPOSITORY) as at:
        assert at.status() == 1
    assert "\x1b" not in at.shown
    assert f"1 of 1: kubectl {KUBERNETES_VERSION}, about 1 min\r\n" in at.shown


def test_no_color_is_kept(environment: dict[str, str]) -> None:
    _go(environment, "/bin/sleep 1; exit 1")
    with terminal(_command("kubectl"), environment | {"NO_COLOR": "1"}, folder=_REPOSITORY) as at:
        assert at.status() == 1
    assert "packages 0:00" in at.shown
    assert "\x1b[3" not in at.shown
    assert "\x1b[9" not in at.shown


def test_a_first_build_says_how_long_each_program_takes_and_what_is_not_needed(environment: dict[str, str]) -> None:
    _go(environment, "exit 1")
    groups = ["--group", "engine", "--group", "simulator"]
    with terminal([*_command(), *groups], environment, folder=_REPOSITORY, columns=200) as at:
        assert at.status() == 1
    says = at.shown.replace("\r", "")
    assert "  pulumi 3.259.0: 3 min, unless 3.255.0 or newer, below 4.0.0 is on PATH\n" in says
    assert "  kube-apiserver, kube-controller-manager, kube-scheduler 1.36.3: 9 min, unless 1.36.0 or newer" in says
    assert "The first time this takes about 25 min on two cores," in says
    assert "1 of 7: pulumi 3.259.0, about 3 min, and 22 min for the rest\n" in says
    # What only tests and other commands need.
    for program in ("helm", "containerd", "dockerd", "nfd-master", "crane", "pulumi-language-yaml", "1.34"):
        assert program not in says


def test_ctrl_c_leaves_no_process_and_says_that_the_same_command_goes_on(environment: dict[str, str]) -> None:
    _go(environment, "/bin/sleep 600")
    with terminal(_command("kubectl"), environment, folder=_REPOSITORY) as at:
        at.until("1 of 2 packages")
        at.press(CTRL_C)
        assert at.status() == 130
        assert at.left() == []
    assert at.lines[-2] == "Interrupted. The same command goes on: what was downloaded or built is kept."
    assert "Traceback" not in at.shown


def test_an_interrupt_of_this_process_alone_ends_go_too(environment: dict[str, str], tmp_path: Path) -> None:
    _go(environment, f"trap 'echo ended > {tmp_path}/ended; exit 1' INT; while :; do /bin/sleep 0.1; done")
    with terminal(_command("kubectl"), environment, folder=_REPOSITORY) as at:
        at.until("1 of 2 packages")
        os.kill(at.process.pid, 2)
        assert at.status() == 130
        assert at.left() == []
    assert (tmp_path / "ended").exists(), "go itself ends what it has started"


def test_the_readme_says_what_a_first_run_takes() -> None:
    """The programs' minutes, and five for the Python environment, the simulator and the stack."""
    readme = " ".join((_REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"the first run takes about (\d+) minutes on two cores", readme)
    assert said
    assert int(said[1]) == build_minutes((*ENGINE, *SIMULATOR)) + 5
