"""What tests put in the place of slow programs answers as those do."""

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.engine import ASKED_BEFORE_EACH_RUN, write_python

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
        subprocess.run([each / "bin" / "python", *arguments], check=False, capture_output=True, text=True)
        for each in pythons
    ]
    told = [(answer.returncode, answer.stdout, answer.stderr) for answer in answers]
    assert told[0] == told[1]
    assert told[0][1]
