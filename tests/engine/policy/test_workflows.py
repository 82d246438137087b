"""actionlint on the workflows: it knows GitHub's expressions, contexts and inputs. It is built from its Go module."""

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.stacks import ROOT
from tests.support import programs

WORKFLOWS = ROOT / ".github" / "workflows"


def _actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    go = shutil.which("go")
    if go is None:
        pytest.skip("actionlint is built from its Go module, and there is no `go` on PATH")
    command = [go, "-C", str(programs.ROOM / "actionlint"), "tool", "actionlint"]
    # GitHub has them since April 2026; actionlint 1.7.12 is older.
    command += ["-ignore", 'property "workflow_(sha|repository)" is not defined in object type {check_run_id']
    return subprocess.run(
        # What the shell or Python inside of a step are linted with depends on the machine.
        [*command, "-shellcheck=", "-pyflakes=", "-no-color", *map(str, files)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_actionlint_finds_nothing() -> None:
    done = _actionlint(*sorted(WORKFLOWS.glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_would_find_a_context_that_does_not_exist(tmp_path: Path) -> None:
    text = (WORKFLOWS / "preview.yml").read_text(encoding="utf-8")
    changed = text.replace("matrix.stack", "matrix.stick")
    assert changed != text
    (tmp_path / "preview.yml").write_text(changed, encoding="utf-8")
    done = _actionlint(tmp_path / "preview.yml")
    assert done.returncode == 1
    assert 'property "stick" is not defined' in done.stdout
