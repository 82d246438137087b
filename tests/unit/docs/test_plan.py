"""The commands of the page about plans, and the picture that it shows."""

import json
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpu_sharing.model import Reason
from operations.plan.commands import plan
from operations.plan.report import PlanReport
from testbed.stacks import ROOT, STACK_FILES
from tests.support.docs import Block, blocks

_PAGE = ROOT / "docs" / "plan.md"
_COMMANDS = [line for block in blocks(_PAGE, "bash") for line in block.text.splitlines()]


def _run(command: str) -> str:
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("kai-anywhere", "plan")
    app = typer.Typer()
    app.command()(plan)
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.exception) == (0, None), done.output
    return str(done.stdout)


@pytest.fixture(autouse=True)
def _stack_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stack files of the tests: those at the root are the user's."""
    (tmp_path / "Pulumi.jetson.yaml").write_bytes((STACK_FILES / "Pulumi.jetson.yaml").read_bytes())
    monkeypatch.setattr("operations.plan.commands.ROOT", tmp_path)
    monkeypatch.chdir(ROOT)


def test_the_page_has_its_commands() -> None:
    assert len(_COMMANDS) == 5


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_command_of_the_page_works(command: str) -> None:
    assert _run(command).strip()


def test_the_picture_of_the_page_is_what_the_first_command_prints() -> None:
    [picture] = [block for block in blocks(_PAGE) if not block.language]
    assert picture == Block("", _run(_COMMANDS[0]))


def test_the_programs_read_what_the_page_promises() -> None:
    answer, schema = (json.loads(_run(command)) for command in _COMMANDS[-2:])
    assert (answer["running"], answer["pending"]) == (4, 1)
    assert schema == PlanReport.model_json_schema()
    assert {*answer} == {*schema["properties"]} == {*PlanReport.model_fields}
    text = _PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in schema["properties"])


def test_the_reasons_of_the_page_are_the_programs() -> None:
    rows = [
        line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and "--" not in line
    ]
    named = {word for line in rows for word in line.split("|")[1].replace("`", "").replace(",", "").split()}
    assert named
    assert named <= {*Reason}
