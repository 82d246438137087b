"""The stack files at the root, whatever their user made of them: the real engine previews each."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import simulator
from operations import target
from operations.stack_file import raw_settings, read_settings, stack_names
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson

pytestmark = pytest.mark.engine


def _here(settings: Json, control_plane: simulator.ControlPlane) -> Json:
    """The settings on a simulator: without the user's cluster, and without hosts, which would be asked for memory."""
    settings = changed(stack_settings(settings, control_plane), "cluster.context", None)
    for kind in settings["platform"].keys() & {"tegra_nodes", "unified_memory_nodes"}:
        nodes = settings["platform"][kind] or {}
        known = {node: {"gpu_memory_mib": 28672} | (said or {}) for node, said in nodes.items()}
        settings = changed(settings, f"platform.{kind}", known)
    return changed(settings, "hosts", {})


@pytest.mark.parametrize("name", stack_names(ROOT))
def test_a_shipped_stack_is_previewed(name: str, tmp_path: Path, engine_environment: dict[str, str]) -> None:
    path = ROOT / f"Pulumi.{name}.yaml"
    control_plane = simulator.up(tmp_path / "simulator", nodes=target._nodes(read_settings(path)))
    try:
        settings = _here(raw_settings(path), control_plane)
        preview = Stack(tmp_path / "stack", settings, engine_environment).preview()
    finally:
        simulator.reset(control_plane.folder)
    assert preview.changes.keys() == {"create"}
    assert preview.changes["create"] > 15


@pytest.mark.parametrize("name", stack_names(ROOT))
def test_what_pulumi_writes_into_a_shipped_stack_leaves_its_comments_in_place(
    name: str, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    file = tmp_path / f"Pulumi.{name}.yaml"
    shutil.copy(ROOT / file.name, file)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    (tmp_path / "state").mkdir()
    own = {"PULUMI_BACKEND_URL": (tmp_path / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": "a passphrase"}
    before = file.read_text(encoding="utf-8")
    for command in (["stack", "init", name], ["config", "set", "--secret", "lab-key", "a key", "--stack", name]):
        subprocess.run(
            ["pulumi", *command, "--non-interactive"], cwd=tmp_path, env=engine_environment | own, check=True
        )
    after = file.read_text(encoding="utf-8")
    assert yaml.safe_load(after).keys() == {"config", "encryptionsalt"}
    comments = [[line for line in text.splitlines() if line.lstrip().startswith("#")] for text in (before, after)]
    assert comments[0] == comments[1], "a section uncommented afterwards belongs to the settings still"


def test_what_nothing_reads_in_a_stack_file_is_refused_by_the_program(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    # The program in the project's own folder, as in a checkout.
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    project["runtime"]["options"]["virtualenv"] = sys.prefix
    (tmp_path / "stack").mkdir()
    shutil.copy(ROOT / "__main__.py", tmp_path / "stack")
    stack = Stack(tmp_path / "stack", jetson(), engine_environment | {"PYTHONPATH": str(ROOT)}, project=project)
    file = stack.folder / f"Pulumi.{stack.name}.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "gvirtus: {}\n", encoding="utf-8")
    assert "gvirtus at the beginning of a line is not a setting" in stack.run("preview", expect=None).output
    file.write_text(text.replace("config:\n", "config:\n  kai-anywhere:setings: 1\n"), encoding="utf-8")
    assert "nothing reads kai-anywhere:setings. Nothing was changed." in stack.run("preview", expect=None).output
