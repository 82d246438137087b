"""The environment's first installation at a terminal, and in a log of CI. A module stands in for pip."""

import os
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from tests.support.terminal import CTRL_C, terminal

_SCRIPT = Path(__file__).parents[3] / "toolchain" / "python_environment.py"
_PIP = """
import sys, time
from pathlib import Path
assert "--require-hashes" in sys.argv
for name in ("a-package-with-a-rather-long-name-that-goes-on-and-on", "second"):
    print(f"Collecting {name}==1.0", flush=True)
    time.sleep(0.6)
print("Installing collected packages: first, second", flush=True)
END
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "requirements.txt").write_text(
        "first==1.0 \\\n    --hash=sha256:00\nsecond[x]==2.0 \\\n    --hash=sha256:00\n", encoding="utf-8"
    )
    variables = {name: value for name, value in os.environ.items() if name not in {"CI", "TERM"}}
    return variables | {"PYTHONPATH": str(tmp_path)}


def _pip(tmp_path: Path, end: str) -> list[str]:
    (tmp_path / "pip" / "__main__.py").write_text(_PIP.replace("END", end), encoding="utf-8")
    return [sys.executable, "-P", str(_SCRIPT), "requirements.txt"]


def test_on_a_terminal_one_line_says_what_is_fetched_and_fits(tmp_path: Path, environment: dict[str, str]) -> None:
    with terminal(_pip(tmp_path, "time.sleep(1)"), environment, folder=tmp_path, columns=60) as at:
        assert at.status() == 0
    first, last, end = at.lines
    assert first.startswith("Installing the Python environment into ")
    assert first.endswith("about 2 packages, which takes a minute or two.")
    assert (last[:13], end) == ("Installed in ", "")
    drawn = [Text.from_ansi(part).plain for part in at.shown.split("\n")[1].split("\r")]
    assert any("fetching 1 of 2: a-package" in part for part in drawn)
    assert any("unpacking 2 packages" in part for part in drawn)
    assert max(map(cell_len, drawn)) < 60


@pytest.mark.parametrize("variables", [{"CI": "true"}, {"TERM": "dumb"}], ids=["CI", "dumb"])
def test_in_a_log_there_are_a_first_and_a_last_line(
    tmp_path: Path, environment: dict[str, str], variables: dict[str, str]
) -> None:
    with terminal(_pip(tmp_path, ""), environment | variables, folder=tmp_path) as at:
        assert at.status() == 0
    assert len(at.shown.splitlines()) == 2
    assert "\x1b" not in at.shown


def test_a_failure_is_pips_own_words_and_status(tmp_path: Path, environment: dict[str, str]) -> None:
    with terminal(_pip(tmp_path, "sys.exit('ERROR: no matching distribution')"), environment, folder=tmp_path) as at:
        assert at.status() == 1
    assert "ERROR: no matching distribution" in at.shown
    assert at.lines[-2].endswith("Mend it, and run the same command again.")


def test_ctrl_c_ends_pip_too_and_says_that_the_same_command_goes_on(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with terminal(_pip(tmp_path, "time.sleep(600)"), environment, folder=tmp_path) as at:
        at.until("unpacking")
        at.press(CTRL_C)
        assert at.status() == 130
        assert at.left() == []
    assert at.lines[-2] == "Interrupted. The same command goes on."


def test_a_second_ctrl_c_while_pip_ends_changes_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    end = """
import signal
try:
    time.sleep(600)
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, lambda *_: sys.exit("told again"))
    print("cleaning up", file=sys.stderr, flush=True)
    time.sleep(600)
"""
    with terminal(_pip(tmp_path, end), environment, folder=tmp_path) as at:
        at.until("unpacking")
        at.press(CTRL_C)
        at.until("cleaning up")
        at.press(CTRL_C)
        assert at.status() == 130
        assert at.left() == []
    assert "Traceback" not in at.shown
    assert at.lines[-2] == "Interrupted. The same command goes on."


def test_two_first_runs_at_once_start_one_pip_after_the_other(tmp_path: Path, environment: dict[str, str]) -> None:
    end = """
mark = Path("running")
mark.touch(exist_ok=False)
time.sleep(2)
mark.unlink()
"""
    command = _pip(tmp_path, end)
    with terminal(command, environment, folder=tmp_path) as first:
        first.until("fetching")
        with terminal(command, environment, folder=tmp_path) as second:
            assert (first.status(), second.status()) == (0, 0)
    assert second.lines[0] == "Another command installs the Python environment. Waiting for it."


def test_ctrl_c_while_another_run_installs_ends_the_wait_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    command = _pip(tmp_path, "while not Path('go on').exists(): time.sleep(0.1)")
    with terminal(command, environment, folder=tmp_path) as first:
        first.until("fetching")
        with terminal(command, environment, folder=tmp_path) as second:
            second.until("Waiting for it.")
            second.press(CTRL_C)
            assert second.status() == 130
        assert second.lines[-2].endswith("Interrupted. The same command goes on.")
        (tmp_path / "go on").touch()
        assert first.status() == 0
