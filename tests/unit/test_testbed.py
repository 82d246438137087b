"""What tests put in the place of slow programs answers as those do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import warm_python
from testbed.engine import ASKED_BEFORE_EACH_RUN, write_python
from testbed.stacks import ROOT
from testbed.waiting import eventually
from toolchain.programs import LANGUAGE_EXEC

_ARGUMENTS = "import sys; print(sys.prefix, sys.argv); sys.exit(7)"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(ASKED_BEFORE_EACH_RUN, id="which packages there are"),
        pytest.param((*ASKED_BEFORE_EACH_RUN[:3], "--format", "json"), id="almost that"),
        pytest.param(("-c", _ARGUMENTS, "two words", "$HOME", ""), id="a program"),
    ],
)
def test_the_python_of_stacks_answers_as_the_one_of_the_environment(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    write_python(tmp_path / "an environment")
    pythons = [Path(sys.prefix), tmp_path / "an environment"]
    answers = [
        subprocess.run([python / "bin" / "python", *arguments], check=False, capture_output=True, text=True)
        for python in pythons
    ]
    results = [(answer.returncode, answer.stdout, answer.stderr) for answer in answers]
    assert results[0] == results[1]
    assert results[0][1]


@pytest.mark.parametrize(
    ("folder", "is_own"), [(ROOT, True), (ROOT / "other", False), (Path(f"{ROOT}-other"), False), (ROOT.parent, False)]
)
def test_the_python_of_stacks_asks_a_warm_one_for_the_program_of_this_checkout_alone(
    tmp_path: Path, folder: Path, *, is_own: bool
) -> None:
    environment, host = tmp_path / "an environment", tmp_path / "a host" / LANGUAGE_EXEC
    write_python(environment)
    host.parent.mkdir()
    host.write_text("import sys; print(sys.argv[-1], 'components.program' in sys.modules)", encoding="utf-8")
    eventually(Path(warm_python.address()).exists)
    words = [str(host), "--monitor", "127.0.0.1:1", "--pwd", str(folder), "--dry_run", "false", "."]
    for address in (warm_python.address(), ""):
        answer = subprocess.run(
            [environment / "bin" / "python", *words],
            env=os.environ | {warm_python.ADDRESS: address},
            check=True,
            capture_output=True,
            text=True,
        )
        assert answer.stdout == f". {is_own and address != ''}\n"
