"""Settings that are put back after an `up` that failed midway: what is in use again under its old name stays.

One stack, which the tests below take through its life in their order.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import simulator
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.stacks import Json, changed, gvirtus, jetson
from testbed.waiting import eventually

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_TOOLKIT = "nvidia.com/gpu.deploy.container-toolkit"


@pytest.fixture(scope="module")
def before(cluster: simulator.ControlPlane, api: httpx2.Client) -> set[str]:
    """What the cluster, with a second Jetson, holds before the stack."""
    simulator.up(cluster.folder, nodes={"jetson-2": simulator.NodeKind.JETSON})
    return inventory(api)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack], before: set[str]) -> Stack:
    """Two Jetsons, one of which has a backend on its one GPU, and a node whose GPUs are sliced."""
    assert before
    backend = {"image": gvirtus()["gvirtus"]["backends"]["gpu-a"]["image"], "node": "jetson-1"}
    settings = changed(jetson(), "gvirtus", {"backends": {"only": backend}})
    settings = changed(settings, "platform.tegra_nodes.jetson-2", {"gpu_memory_mib": 57344})
    sliced = {"sharing": "time_slicing", "nodes": ["x86-1"], "replicas": 4}
    made = new_stack(changed(settings, "node_profiles", {"sliced": sliced}))
    made.up()
    return made


def _profiles(api: httpx2.Client) -> set[str]:
    items = api.get("/api/v1/namespaces/gpu-operator/configmaps").json()["items"]
    names = {item["metadata"]["name"] for item in items}
    return {name for name in names if name.startswith("device-plugin-profiles-")}


def _namespaces(api: httpx2.Client) -> set[str]:
    names = {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").json()["items"]}
    return names & {"gvirtus-system", "remote-gpus"}


def _is_available(api: httpx2.Client, namespace: str) -> bool:
    deployment = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/only").json()
    return bool(deployment["status"].get("availableReplicas"))


def _toolkit(api: httpx2.Client, node: str) -> str | None:
    labels: dict[str, str] = api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"]
    return labels.get(_TOOLKIT)


@contextmanager
def _without_deployments(api: httpx2.Client, namespace: str) -> Iterator[None]:
    """The API server refuses each that is made in a namespace."""
    metadata = {"name": "not-today"}
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    validation = {"expression": f"object.metadata.namespace != '{namespace}'", "message": "not today"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    binding = {"policyName": "not-today", "validationActions": ["Deny"]}
    paths = [f"{_ADMISSION}/validatingadmission{kind}" for kind in ("policies", "policybindings")]
    for path, spec in zip(paths, (policy, binding), strict=True):
        api.post(path, json={"metadata": metadata, "spec": spec}).raise_for_status()
    yield
    for path in paths:
        api.delete(f"{path}/not-today").raise_for_status()


def test_profiles_that_are_put_back_after_a_chart_that_failed_are_there(
    stack: Stack, api: httpx2.Client, tmp_path: Path
) -> None:
    first, good = _profiles(api), stack.settings
    assert len(first) == 1
    fails = tmp_path / "gpu-operator"
    shutil.copytree(simulator.chart_path("gpu-operator"), fails)
    (fails / "templates" / "fails.yaml").write_text('{{ fail "not today" }}\n', encoding="utf-8")
    edited = changed(good, "node_profiles.sliced.replicas", 8)
    stack.settings = changed(edited, "gpu_operator.chart", {"source": str(fails)})
    assert "not today" in stack.up(expect=1).output
    assert first < _profiles(api), "nodes read the first until the release names the second"

    stack.settings = good
    assert stack.up().changes["delete"] == 1
    assert _profiles(api) == first


def test_backends_and_a_jetson_are_put_back_after_backends_that_could_not_be_moved(
    stack: Stack, api: httpx2.Client
) -> None:
    good = stack.settings
    there = changed(good, "gvirtus.namespace", "remote-gpus")
    stack.settings = changed(there, "platform.tegra_nodes", jetson()["platform"]["tegra_nodes"])
    with _without_deployments(api, "remote-gpus"):
        assert "not today" in stack.up(expect=1).output
    eventually(lambda: _toolkit(api, "jetson-2") is None)

    # The operator would find it again before it has its labels, and roll its toolkit out there.
    stack.settings = good
    assert "node 'jetson-2' lost labels" in stack.up(expect=1).output
    assert _toolkit(api, "jetson-2") is None
    stack.refresh()
    stack.up()
    assert _toolkit(api, "jetson-2") == "false"
    assert _namespaces(api) == {"gvirtus-system"}
    assert _is_available(api, "gvirtus-system")
    assert set(stack.up().changes) == {"same"}
    assert set(stack.preview("--refresh").changes) == {"same"}


def test_both_are_changed_at_last_and_go(stack: Stack, api: httpx2.Client, before: set[str]) -> None:
    first = _profiles(api)
    edited = changed(stack.settings, "node_profiles.sliced.replicas", 8)
    stack.settings = changed(edited, "gvirtus.namespace", "remote-gpus")
    stack.up()
    assert len(_profiles(api)) == 1
    assert _profiles(api) != first
    assert _namespaces(api) == {"remote-gpus"}
    assert _is_available(api, "remote-gpus"), "on the one GPU that the old one had"
    assert set(stack.up().changes) == {"same"}
    stack.destroy()
    eventually(lambda: not left_behind(api, before))
