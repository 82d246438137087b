"""What the guides say that a GPU serves is what KAI's arithmetic gives."""

import re

import pytest

from gpu_sharing.arithmetic import shared_mib
from testbed.stacks import ROOT
from tests.support.fractions import fitting

_GUIDE = (ROOT / "docs" / "jetson.md").read_text(encoding="utf-8")
_ROWS = re.findall(r"(?m)^\| (\d+) \| (\d+) \| `gpu-(?:memory|fraction): \"([\d.]+)\"`[^|]*\| (\d+) \|$", _GUIDE)


@pytest.mark.parametrize(
    ("label", "request_", "pods"),
    [
        (131072, "30720", 4),
        (131072, "30000", 4),
        (131072, "32768", 3),
        (131072, "32750", 4),
        (131072, "0.25", 4),
        (122543, "30720", 3),
    ],
)
def test_the_arithmetic_is_that_of_kais_own_scheduler(label: int, request_: str, pods: int) -> None:
    """The numbers were seen with KAI's allocate action (v0.17.0), a node with one GPU and five pods."""
    assert fitting(label, request_) == pods


def test_the_guide_has_its_table() -> None:
    assert len(_ROWS) == 5


@pytest.mark.parametrize(("label", "shared", "request_", "pods"), _ROWS)
def test_a_row_of_the_guide_is_kais_arithmetic(label: str, shared: str, request_: str, pods: str) -> None:
    assert shared_mib(int(label)) == int(shared)
    assert fitting(int(label), request_) == int(pods)
