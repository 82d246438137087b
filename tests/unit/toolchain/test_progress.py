"""What long work shows."""

import re
import time

import pytest

from toolchain.progress import duration, mebibytes, packages, progress


def test_a_silent_stretch_still_tells_a_line_every_interval(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("building tool", 1130, packages, plain_interval=0.1) as advance:
        advance(412)
        time.sleep(0.35)
    lines = capsys.readouterr().err.splitlines()
    # A busy machine sleeps longer, and then tells more.
    assert len(lines) >= 2
    assert all(re.fullmatch(r"building tool: 412 of 1130 packages, \d+ s", line) for line in lines)


def test_quick_work_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("building tool", 2, packages) as advance:
        advance(2)
    assert capsys.readouterr().err == ""


def test_amounts_are_told_in_words() -> None:
    assert packages(412, 1130) == "412 of 1130 packages"
    assert packages(1130, 1130) == "linking"
    assert mebibytes(1 << 20, 3 << 20) == "1.0 of 3.0 MiB"
    assert mebibytes(1 << 20, 0) == "1.0 MiB"
    assert (duration(45.9), duration(80)) == ("45 s", "1 min 20 s")
