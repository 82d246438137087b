"""What runs the agent on a host that is looked at, under each Python that a host may have."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.stacks import ROOT

_IN_MEMORY = (ROOT / "operations" / "doctor" / "hosts" / "in_memory.py").read_text(encoding="utf-8")


def _run(version: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    python = str(kept[-1]) if kept else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"needs Python {version}")
    agent = base64.b64encode(b"import sys; print(sys.argv[1:])").decode()
    return subprocess.run(
        [python, "-c", _IN_MEMORY, "kai-host.pyz", "examine"],
        input=f"{agent}\n",
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_the_agent_runs_and_leaves_nothing(version: str, tmp_path: Path) -> None:
    done = _run(version, tmp_path)
    assert done.stdout == "['examine']\n", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_an_older_python_gets_a_sentence_and_no_traceback(version: str, tmp_path: Path) -> None:
    done = _run(version, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Python {version} is too old: install Python 3.8 or later on the host and have `python3` mean it.\n"
    )
