"""docs/fleets.md: its files are a fleet, and its commands print what stands there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from operations.__main__ import app
from operations.fleet.file import FleetFile, Operator, Wave
from operations.stack_file import read_settings
from testbed.stacks import ROOT
from tests.support.docs import blocks, command

PAGE = ROOT / "docs" / "fleets.md"
SITES = ("hamburg", "eu-1", "eu-2", "us-1", "us-2")


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files in a folder, with more sites that differ in nothing."""
    for block in blocks(PAGE, "yaml"):
        if named := re.match(r"# (clusters/\S+)\n", block.text):
            file = tmp_path / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    for site in SITES:
        text = "config:\n  kai-anywhere:base: bases/jetson.yaml\n  kai-anywhere:settings: {}\n"
        (tmp_path / "clusters" / f"Pulumi.{site}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "clusters"


def _printed(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "kai-anywhere"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def _pictures() -> list[str]:
    return [block.text for block in blocks(PAGE, "text")]


def test_the_files_of_the_page_are_a_site_and_its_base(clusters: Path) -> None:
    settings = read_settings(clusters / "Pulumi.berlin.yaml")
    assert settings.platform.jetsons.keys() == {"jetson-1", "jetson-2"}
    assert (settings.kai.queues["robots"].gpu.quota, settings.kai.queues["robots"].gpu.limit) == (2, -1)
    assert read_settings(clusters / "Pulumi.us-1.yaml").platform.jetsons.keys() == {"jetson-1"}


@pytest.mark.usefixtures("clusters")
def test_the_page_shows_which_file_says_what() -> None:
    printed = _printed(command("fleets.md", "kai-anywhere settings show berlin --folder clusters"))
    lines = {re.sub(r" +", " ", line) for line in printed.splitlines()}
    assert {re.sub(r" +", " ", line) for line in _pictures()[0].splitlines()} <= lines


@pytest.mark.usefixtures("clusters")
def test_the_page_shows_the_order() -> None:
    assert _printed(command("fleets.md", "kai-anywhere fleet plan --folder clusters")) == _pictures()[1]


@pytest.mark.usefixtures("clusters")
def test_the_operators_objects_are_printed() -> None:
    first = 'kai-anywhere fleet operator --commit "$(git rev-parse HEAD)" --folder clusters > stacks.yaml'
    line = command("fleets.md", first).replace("$(git rev-parse HEAD)", "0" * 40).partition(" > ")[0]
    made = list(yaml.safe_load_all(_printed(line)))
    assert [item["spec"]["stack"].rpartition("/")[2] for item in made] == ["berlin", *SITES]
    assert {item["kind"] for item in made} == {"Stack"}


def test_the_page_has_every_key_of_the_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in FleetFile.model_fields:
        assert f"| `{name}` |" in text or name == "waves", name
    for name in Wave.model_fields:
        assert f"| `waves[].{name}` |" in text, name
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    for name in Operator.model_fields:
        assert f"`{name}`" in rows, name
