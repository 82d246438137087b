"""Random settings on the real engine: what they install comes up, needs nothing a second time, and leaves nothing.

Few, and always the same; thousands of them are asked about on the recorded graph (tests/properties).
"""

from pathlib import Path

import httpx2
import pytest

import simulator
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.simulated import stack_settings
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.properties.runs import drawn
from tests.properties.stacks import fitting

pytestmark = pytest.mark.engine

_NOT_HERE = {
    "cluster": ("kubernetes_version", "mutating_policies", "adopt", "context"),
    "reservation": ("carrier",),
    "gvirtus": ("carrier",),
    "admission": ("image",),
    "kai": ("image_tag", "gpu_sharing_mode"),
    "gpu_operator": ("install", "dcgm_exporter"),
    "monitoring": ("service_monitor",),
}
"""What the simulator has not: another API server, servers that run in pods, and what others would have installed."""


def _on_the_simulator(stack: Json, cluster: simulator.ControlPlane) -> Json:
    """The stack for the simulator's nodes, without machines behind SSH."""
    stack = {key: value for key, value in stack.items() if key not in {"hosts", "validation"}}
    for section, keys in _NOT_HERE.items():
        if stack.get(section):
            stack[section] = {key: value for key, value in stack[section].items() if key not in keys}
    platform = stack["platform"] | {"unified_memory_nodes": {}}
    if platform["kind"] == "tegra":
        platform["tegra_nodes"] = {"jetson-1": {"gpu_memory_mib": 57344}}
    for name, profile in list(stack.get("node_profiles", {}).items())[:1]:
        stack["node_profiles"] = {name: profile | {"nodes": ["x86-1"]}}
    if gvirtus := stack.get("gvirtus"):
        here = {"node": "x86-1", "node_selector": None, "gpu_resource": "nvidia.com/gpu"}
        backends = {name: backend | here for name, backend in gvirtus["backends"].items()}
        frontends = gvirtus.get("frontends") and gvirtus["frontends"] | {"nodes": ["cpu-1"]}
        stack["gvirtus"] = gvirtus | {"backends": backends, "frontends": frontends}
    return stack_settings(fitting(stack | {"platform": platform}), cluster)


@pytest.fixture(scope="module")
def random_stacks() -> list[Json]:
    """Two large ones of each platform, one of them with remote GPUs: the first ones of a run are small."""
    found = sorted(drawn(150), key=lambda each: len(str(each)))
    chosen = []
    for kind in ("tegra", "x86"):
        for remote in (True, False):
            of_kind = [each for each in found if each["platform"]["kind"] == kind]
            chosen += [each for each in of_kind if bool(each.get("gvirtus")) is remote][-1:]
    return chosen


def test_random_settings_come_stay_and_go(
    cluster: simulator.ControlPlane,
    api: httpx2.Client,
    engine_environment: dict[str, str],
    tmp_path: Path,
    random_stacks: list[Json],
) -> None:
    before = inventory(api)
    sections: set[str] = set()
    for number, random_stack in enumerate(random_stacks):
        settings = _on_the_simulator(random_stack, cluster)
        sections |= {section for section, said in settings.items() if said}
        folder = tmp_path / str(number)
        folder.mkdir()
        stack = Stack(folder, settings, engine_environment)
        assert stack.up().changes["create"] > 15, settings
        assert set(stack.up().changes) == {"same"}, settings
        stack.destroy()
        eventually(lambda: inventory(api) == before, within_s=90)
    assert len(random_stacks) == 4
    assert sections >= {"gvirtus", "kai", "monitoring", "node_profiles", "platform"}
