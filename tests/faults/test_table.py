"""The table of faults says what is true: every row is proved or says why not, and every test that it names is there."""

import ast
import re
import subprocess
import sys

import pytest

from testbed.stacks import ROOT
from tests.faults.table import FAULTS, named, page

_ROWS = 36


def _names(file: str) -> set[str]:
    """The tests of a file, as pytest names them after its path."""
    tests: set[str] = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            tests.add(node.name)
        if isinstance(node, ast.ClassDef):
            tests |= {f"{node.name}::{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
    return {name for name in tests if name.rpartition("::")[2].startswith("test_")}


def test_every_fault_has_a_row_and_every_row_a_test_or_a_reason() -> None:
    assert [fault.number for fault in FAULTS] == list(range(1, _ROWS + 1))
    for fault in FAULTS:
        assert fault.tests or fault.not_here, fault.number
        assert fault.expected.endswith(".")
        assert not fault.not_here or fault.not_here.endswith(".")


@pytest.mark.parametrize("test", named())
def test_a_test_of_the_table_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in _names(file)


def test_a_test_that_does_not_exist_would_be_noticed() -> None:
    assert "test_nothing_of_that_name" not in _names("tests/faults/test_table.py")
    assert "test_every_fault_has_a_row_and_every_row_a_test_or_a_reason" in _names("tests/faults/test_table.py")


def test_every_test_of_this_folder_is_in_the_table() -> None:
    here = {
        f"tests/faults/{file.name}::{name}"
        for file in (ROOT / "tests/faults").glob("test_*.py")
        if file.name != "test_table.py"
        for name in _names(f"tests/faults/{file.name}")
    }
    assert here
    assert here <= set(named())


def test_the_page_shows_the_table() -> None:
    assert page() in (ROOT / "docs/faults.md").read_text(encoding="utf-8")


def test_the_command_names_every_test_once() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.faults"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == named()
    assert not re.search(r"\s\S+\s(?=\S+::\S+ )", done.stdout)
