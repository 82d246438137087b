"""Settings that are put back after an `up` that failed midway: what is in use again under its old name stays."""

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx2

import simulator
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.stacks import Json, changed, gvirtus, jetson, time_slicing
from testbed.waiting import eventually


def test_profiles_that_are_put_back_after_a_chart_that_failed_are_there(
    new_stack: Callable[[Json], Stack], api: httpx2.Client, tmp_path: Path
) -> None:
    def profiles() -> set[str]:
        items = api.get("/api/v1/namespaces/gpu-operator/configmaps").json()["items"]
        names = {item["metadata"]["name"] for item in items}
        return {name for name in names if name.startswith("device-plugin-profiles-")}

    before = inventory(api)
    sliced = {"sharing": "time_slicing", "nodes": ["x86-1"], "replicas": 4}
    stack = new_stack(changed(time_slicing(), "node_profiles", {"sliced": sliced}))
    stack.up()
    first, good = profiles(), stack.settings
    assert len(first) == 1

    fails = tmp_path / "gpu-operator"
    shutil.copytree(simulator.chart_path("gpu-operator"), fails)
    (fails / "templates" / "fails.yaml").write_text('{{ fail "not today" }}\n', encoding="utf-8")
    edited = changed(good, "node_profiles.sliced.replicas", 8)
    stack.settings = changed(edited, "gpu_operator.chart", {"source": str(fails)})
    assert "not today" in stack.up(expect=1).output
    assert first < profiles(), "nodes read the first until the release names the second"

    stack.settings = good
    assert stack.up().changes["delete"] == 1
    assert profiles() == first
    assert set(stack.up().changes) == {"same"}
    assert set(stack.preview("--refresh").changes) == {"same"}
    stack.settings = edited
    stack.up()
    assert len(profiles()) == 1
    assert profiles() != first
    stack.destroy()
    eventually(lambda: not left_behind(api, before))


def test_backends_move_to_another_namespace_with_their_one_gpu_and_back_after_a_move_that_failed(
    new_stack: Callable[[Json], Stack], api: httpx2.Client
) -> None:
    def namespaces() -> set[str]:
        names = {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").json()["items"]}
        return names & {"gvirtus-system", "remote-gpus"}

    def is_available(namespace: str) -> bool:
        found = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/only").json()
        return bool(found["status"].get("availableReplicas"))

    before = inventory(api)
    backend = {"image": gvirtus()["gvirtus"]["backends"]["gpu-a"]["image"], "node": "jetson-1"}
    section = {"backends": {"only": backend}, "timeout_seconds": 30}
    stack = new_stack(changed(jetson(), "gvirtus", section))
    stack.up()
    first = stack.settings

    there = changed(first, "gvirtus.namespace", "remote-gpus")
    stack.settings = changed(there, "gvirtus.backends.only.gpu_resource", "nvidia.com/mig-1g.5gb")
    assert "Insufficient nvidia.com/mig-1g.5gb" in stack.up(expect=1).output
    stack.settings = first
    stack.up()
    assert namespaces() == {"gvirtus-system"}
    assert is_available("gvirtus-system")
    assert set(stack.up().changes) == {"same"}
    assert set(stack.preview("--refresh").changes) == {"same"}

    stack.settings = there
    stack.up()
    assert namespaces() == {"remote-gpus"}
    assert is_available("remote-gpus")
    assert set(stack.up().changes) == {"same"}
    stack.destroy()
    eventually(lambda: not left_behind(api, before))
