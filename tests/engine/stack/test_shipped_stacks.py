"""The stack files at the root, whatever their user made of them: the real engine previews each."""

from pathlib import Path

import pytest

import simulator
from operations import target
from operations.stack_file import raw_settings, read_settings, stack_names
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed

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
