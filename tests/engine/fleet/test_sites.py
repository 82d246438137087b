"""Sites with a base on the real engine: what pulumi reads, what the program makes of it, and what the states say."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import simulator
from operations.__main__ import app
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, jetson
from tests.support.docs import command

BASE = "bases/jetson.yaml"
OWN: Json = {"kai": {"queues": {"robots": {"gpu": {"quota": 2}}}}}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, cluster: simulator.ControlPlane) -> Path:
    """A team's folder with a base, which says everything but a site's few lines."""
    folder = tmp_path_factory.mktemp("clusters")
    (folder / "bases").mkdir()
    _write_base(folder, stack_settings(jetson(), cluster))
    return folder


@pytest.fixture(scope="module")
def site(clusters: Path, engine_environment: dict[str, str]) -> Stack:
    """A site with a few lines of its own, up."""
    # Without `main`, as a checkout has it: bases stand beside the program.
    (clusters / "__main__.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(ROOT)!r})\nrunpy.run_path({str(ROOT / '__main__.py')!r})\n",
        encoding="utf-8",
    )
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    project["plugins"]["providers"][0]["path"] = str(ROOT / "package")
    project["runtime"]["options"]["virtualenv"] = sys.prefix
    made = Stack(clusters, OWN, engine_environment, name="berlin", project=project, passphrase="")
    _set(clusters, OWN, base=BASE)
    made.up()
    return made


def _write_base(folder: Path, settings: Json) -> None:
    content = {"config": {"kai-anywhere:settings": settings}}
    (folder / BASE).write_text(yaml.safe_dump(content), encoding="utf-8")


def _set(folder: Path, settings: Json, base: str | None) -> None:
    file = folder / "Pulumi.berlin.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    config: dict[str, Any] = {"kai-anywhere:settings": settings}
    if base is not None:
        config["kai-anywhere:base"] = base
    file.write_text(yaml.safe_dump(content | {"config": config}), encoding="utf-8")


def test_a_site_with_a_base_is_what_one_file_with_everything_would_be(site: Stack, clusters: Path) -> None:
    whole = yaml.safe_load((clusters / BASE).read_text(encoding="utf-8"))["config"]["kai-anywhere:settings"]
    whole["kai"]["queues"]["robots"]["gpu"]["quota"] = 2
    _set(clusters, whole, base=None)
    assert set(site.up().changes) == {"same"}
    [queue] = [resource for resource in site.resources() if resource["urn"].endswith("::kai-scheduler-queue-robots")]
    assert queue["inputs"]["spec"]["resources"]["gpu"]["quota"] == 2
    _set(clusters, OWN, base=BASE)
    assert set(site.up().changes) == {"same"}


def test_a_changed_base_changes_the_site(site: Stack, clusters: Path) -> None:
    before = (clusters / BASE).read_text(encoding="utf-8")
    changed = yaml.safe_load(before)["config"]["kai-anywhere:settings"]
    changed["kai"]["queues"]["robots"]["gpu"]["limit"] = 5
    _set(clusters, OWN, base=BASE)
    try:
        _write_base(clusters, changed)
        assert site.preview().changed == {"kai-scheduler-queue-robots"}
    finally:
        (clusters / BASE).write_text(before, encoding="utf-8")
    assert site.preview("--expect-no-changes").changed == frozenset()


def test_a_wrong_line_is_told_with_its_file_before_anything_is_registered(site: Stack, clusters: Path) -> None:
    before = (clusters / BASE).read_text(encoding="utf-8")
    wrong = yaml.safe_load(before)["config"]["kai-anywhere:settings"]
    wrong["kai"]["timeout_seconds"] = 1
    try:
        _write_base(clusters, wrong)
        failed = site.up(expect=None)
    finally:
        (clusters / BASE).write_text(before, encoding="utf-8")
    assert failed.code != 0
    assert f"Pulumi.berlin.yaml with {BASE}: 1 setting is wrong. Nothing was changed." in failed.output
    assert f"file:    {BASE}" in failed.output
    assert failed.changed == frozenset()


def test_pulumi_sets_a_sites_own_lines_and_leaves_the_base(site: Stack, clusters: Path) -> None:
    before = (clusters / BASE).read_text(encoding="utf-8")
    key = "kai-anywhere:settings.kai.scheduler.placement"
    where = ["--stack", site.name, "--cwd", str(clusters), "--non-interactive"]
    subprocess.run(["pulumi", "config", "set", "--path", key, "spread", *where], env=site.environment, check=True)
    content = yaml.safe_load((clusters / "Pulumi.berlin.yaml").read_text(encoding="utf-8"))
    assert content["config"]["kai-anywhere:base"] == BASE
    assert content["config"]["kai-anywhere:settings"] == {"kai": OWN["kai"] | {"scheduler": {"placement": "spread"}}}
    assert (clusters / BASE).read_text(encoding="utf-8") == before
    _set(clusters, OWN, base=BASE)


def _status(
    site: Stack,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *more: str,
    passphrase: str | None = None,
    logged_in: bool = True,
) -> tuple[int, str, str]:
    monkeypatch.setenv("PULUMI_BACKEND_URL", site.environment["PULUMI_BACKEND_URL"] if logged_in else "")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    if passphrase is not None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", passphrase)
    monkeypatch.chdir(folder.parent)
    folder_named = command("fleets.md", "kai-anywhere fleet status --folder clusters").replace("clusters", folder.name)
    done = CliRunner().invoke(app, [*shlex.split(folder_named)[1:], *more])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def well(site: Stack, clusters: Path) -> Stack:
    """The site, whose last update was no failure."""
    _set(clusters, OWN, base=BASE)
    site.up()
    return site


@pytest.mark.parametrize("passphrase", [None, "another one"])
def test_all_sites_stand_in_one_table_by_their_states(
    well: Stack, clusters: Path, monkeypatch: pytest.MonkeyPatch, passphrase: str | None
) -> None:
    other = clusters / "Pulumi.hamburg.yaml"
    other.write_text(f"config:\n  kai-anywhere:base: {BASE}\n  kai-anywhere:settings: {{}}\n", encoding="utf-8")
    try:
        code, table, said = _status(well, clusters, monkeypatch, passphrase=passphrase)
        _, content, _ = _status(well, clusters, monkeypatch, "--json", passphrase=passphrase)
    finally:
        other.unlink()
    assert (code, said) == (0, "")
    berlin, hamburg = json.loads(content)["sites"]
    assert (berlin["site"], berlin["platform"], berlin["unread"], berlin["pending"]) == ("berlin", "tegra", None, 0)
    made = [
        resource for resource in well.resources() if resource["custom"] and not resource["type"].startswith("pulumi:")
    ]
    assert berlin["resources"] == len(made) > 15
    assert (berlin["last"]["kind"], berlin["last"]["result"]) == ("update", "succeeded")
    assert (hamburg["site"], hamburg["resources"], hamburg["last"]) == ("hamburg", 0, None)
    [line] = [line for line in table.splitlines() if "berlin" in line]
    assert berlin["kai"] in line
    assert berlin["cluster"][:8] in line
    assert [line.split()[-1] for line in table.splitlines() if "hamburg" in line] == ["never"]


def test_a_project_that_names_its_backend_itself_is_asked_there(
    well: Stack, clusters: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = clusters / "Pulumi.yaml"
    before = project.read_text(encoding="utf-8")
    named = {"backend": {"url": well.environment["PULUMI_BACKEND_URL"]}}
    (tmp_path / "elsewhere").mkdir()
    elsewhere = well.environment | {"PULUMI_BACKEND_URL": "", "PULUMI_HOME": str(tmp_path / "home")}
    subprocess.run(["pulumi", "login", (tmp_path / "elsewhere").as_uri()], env=elsewhere, check=True)
    try:
        project.write_text(yaml.safe_dump(yaml.safe_load(before) | named), encoding="utf-8")
        monkeypatch.setenv("PULUMI_HOME", elsewhere["PULUMI_HOME"])
        code, table, said = _status(well, clusters, monkeypatch, logged_in=False)
    finally:
        project.write_text(before, encoding="utf-8")
    assert (code, said) == (0, "")
    assert "update succeeded" in table


def test_an_update_that_failed_is_something_to_look_at(
    site: Stack, clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.up("--config", "kai-anywhere:nobody=reads-this", expect=None)
    _set(clusters, OWN, base=BASE)
    code, table, _ = _status(site, clusters, monkeypatch)
    assert code == 4
    assert "update failed" in table
    site.up()
    assert _status(site, clusters, monkeypatch)[0] == 0
