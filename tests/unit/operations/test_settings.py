"""The reference of the settings: its commands, and the files that `make reference` writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from config.cluster import Distribution
from config.reference import Setting, settings
from config.stack import StackConfigError
from operations.settings import commands
from operations.settings.__main__ import files
from operations.settings.commands import app
from operations.settings.page import anchor
from testbed.stacks import ROOT, jetson
from tests.support.docs import command

PAGE = (ROOT / "docs/settings.md").read_text(encoding="utf-8")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def _explained(key: str) -> str:
    done = _run("explain", key)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_every_file_is_what_the_models_say() -> None:
    for path, text in files().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path} is old: run `make reference`, read the diff"


def test_a_setting_is_explained_with_type_default_and_page() -> None:
    text = _explained("kai.timeout_seconds")
    assert text.startswith("kai.timeout_seconds\n")
    assert re.search(r"(?m)^  Type: +integer, seconds, from 30 to 7200$", text)
    assert re.search(r"(?m)^  Default: +600$", text)
    assert "docs/settings.md#kai\n" in text
    assert "Only with" not in text


def test_a_section_says_what_it_has() -> None:
    text = _explained("kai.scheduler")
    assert "kai.scheduler.placement: one of binpack, spread (default binpack)" in text
    assert "kai.scheduler.args: mapping of names to text" in text
    assert "kai.namespace" not in text


def test_a_name_of_ones_own_stands_for_any_name() -> None:
    assert _explained("platform.tegra_nodes.jetson-1.gpu_count").startswith("platform.tegra_nodes.<name>.gpu_count\n")


def test_a_union_is_explained_by_variant() -> None:
    tegra, x86 = _explained("platform").split("Only with: ")[1:]
    assert tegra.startswith("platform.kind: tegra")
    assert "platform.driver_library_path" in tegra
    assert x86.startswith("platform.kind: x86")
    assert "platform.driver_library_path" not in x86


@pytest.mark.parametrize("key", ["kai-anywhere:base", "base"])
def test_the_key_beside_the_settings_is_explained_too(key: str) -> None:
    text = _explained(key)
    assert text.startswith("kai-anywhere:base\n")
    page, _, chapter = re.findall(r"Page: +docs/(\S+)", text)[0].partition("#")
    assert f"## {chapter.replace('-', ' ')}" in (ROOT / "docs" / page).read_text(encoding="utf-8").lower().replace(
        ",", ""
    )
    assert "bases/jetson.yaml" in text
    assert json.loads(_run("explain", key, "--json").stdout)[0]["key"] == "kai-anywhere:base"


def test_an_unknown_key_ends_with_the_status_of_wrong_usage_and_names_near_keys() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "operations", "settings", "explain", "kai.cdi_enable"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "There is no setting 'kai.cdi_enable'.\nDid you mean kai.cdi_enabled?\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_setting_is_listed_with_its_type() -> None:
    lines = _run("list").stdout.splitlines()
    assert {line.partition(":")[0] for line in lines} == {
        setting.key for setting in settings() if setting.shape != "section"
    }
    assert "kai.default_queue: true or false (default true)" in lines
    assert f"cluster.distribution: one of {', '.join(Distribution)}, required" in lines


def test_programs_get_json() -> None:
    [explained] = json.loads(_run("explain", "kai.queues.robots.priority", "--json").stdout)
    assert explained["key"] == "kai.queues.<name>.priority"
    assert (explained["type"], explained["default"], explained["required"]) == ("integer, at least 0", None, False)
    assert [setting["key"] for setting in json.loads(_run("list", "--json").stdout)] == [
        setting.key for setting in settings()
    ]


def test_the_commands_of_the_page_answer() -> None:
    lines = command("settings.md", "kai-anywhere settings explain kai.queues").splitlines()
    for line in lines:
        program, group, *arguments = line.split()
        assert (program, group) == ("kai-anywhere", "settings")
        assert _run(*arguments).exit_code == 0, line
    assert len(lines) > 2


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.key)
def test_the_page_has_every_setting_and_its_anchor(setting: Setting) -> None:
    assert f"`{setting.key}`" in PAGE
    headings = re.findall(r"(?m)^#+ (.+)$", PAGE)
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert anchors.count(anchor(setting)) == 1


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a base and a site."""
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    (tmp_path / "bases").mkdir()
    base = {"config": {"kai-anywhere:settings": {key: said for key, said in jetson().items() if key != "validation"}}}
    (tmp_path / "bases" / "jetson.yaml").write_text(json.dumps(base), encoding="utf-8")
    own = {"kai": {"timeout_seconds": 900}, "platform": {"tegra_nodes": {"j.example": {"gpu_memory_mib": 57344}}}}
    config = {"kai-anywhere:base": "bases/jetson.yaml", "kai-anywhere:settings": own}
    (tmp_path / "Pulumi.berlin.yaml").write_text(json.dumps({"config": config}), encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("site")
def test_a_stacks_settings_are_shown_with_the_file_of_each() -> None:
    lines = _run("show", "berlin").stdout.splitlines()
    by_key = {line.partition(":")[0]: line.partition(":")[2].partition("# ") for line in lines}
    assert [part.strip() for part in by_key["kai.timeout_seconds"]] == ["900", "#", "Pulumi.berlin.yaml"]
    assert [part.strip() for part in by_key["platform.kind"]] == ["tegra", "#", "bases/jetson.yaml"]
    assert by_key['platform.tegra_nodes["j.example"].gpu_memory_mib'][2] == "Pulumi.berlin.yaml"
    assert by_key["platform.tegra_nodes.jetson-1.gpu_memory_mib"][2] == "bases/jetson.yaml"
    assert "default" not in {parts[2] for parts in by_key.values()}


@pytest.mark.usefixtures("site")
def test_what_no_file_says_is_shown_as_a_default() -> None:
    content = json.loads(_run("show", "berlin", "--defaults", "--json").stdout)
    assert content["files"] == ["Pulumi.berlin.yaml", "bases/jetson.yaml"]
    by_key = {value["key"]: value for value in content["values"]}
    assert len(by_key) == len(content["values"]), "every setting stands there once"
    assert by_key["validation"] == {"key": "validation", "value": "none", "file": "default"}
    assert by_key["kai.timeout_seconds"]["file"] == "Pulumi.berlin.yaml"
    assert "gvirtus" not in by_key, "what is not set is left out"


def test_a_folder_without_stacks_is_told_as_that(tmp_path: Path) -> None:
    done = _run("show", "berlin", "--folder", str(tmp_path))
    assert str(done.exception) == f"There is no Pulumi.berlin.yaml, and no other file of a stack, in {tmp_path}."


def test_settings_that_are_wrong_are_not_shown(site: Path) -> None:
    (site / "bases" / "jetson.yaml").write_text("config: {kai-anywhere:settings: {kai: {a: 1}}}", encoding="utf-8")
    done = _run("show", "berlin")
    assert isinstance(done.exception, StackConfigError)
    assert "    file:    bases/jetson.yaml" in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("config", "line"),
    [
        pytest.param("{}", "the key kai-anywhere:settings is missing", id="none"),
        pytest.param("{kai-anywhere:settings: }", "the key kai-anywhere:settings is empty", id="empty"),
        pytest.param("{kai-anywhere:settings: a}", "must be a mapping: `key: value` lines", id="a text"),
    ],
)
def test_a_file_without_settings_and_base_hears_nothing_of_a_base(config: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.bare.yaml").write_text(f"config: {config}", encoding="utf-8")
    done = _run("show", "bare", "--folder", str(tmp_path))
    assert line in str(done.exception)
    assert "base" not in str(done.exception)
