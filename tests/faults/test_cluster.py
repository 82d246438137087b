"""Faults of the cluster under a stack that is up; each test leaves the stack converged."""

import subprocess
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from cluster.preflight.remembered_nodes import REFRESHES
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.stacks import Json, changed, jetson
from testbed.waiting import eventually

pytestmark = pytest.mark.engine

_CONFIG = "/apis/kai.scheduler/v1/configs/kai-config"
_NODE = "/api/v1/nodes/jetson-1"
_OPERATOR = "/api/v1/namespaces/gpu-operator"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_QUEUE_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.run.ai"


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> set[str]:
    return inventory(api)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack], before: set[str]) -> Stack:
    assert before
    made = new_stack(jetson())
    made.up()
    return made


def _by_force(api: httpx2.Client, path: str, manifest: dict[str, Any]) -> None:
    """`kubectl apply --server-side --force-conflicts` of somebody else."""
    headers = {"Content-Type": "application/apply-patch+yaml"}
    manager = {"fieldManager": "somebody", "force": "true"}
    answer = api.patch(path, content=yaml.safe_dump(manifest), headers=headers, params=manager)
    assert answer.status_code == httpx2.codes.OK, answer.text


def _managers(api: httpx2.Client, path: str) -> set[str]:
    return {entry["manager"] for entry in api.get(path).json()["metadata"]["managedFields"]}


def test_fields_taken_by_force_come_back_once_and_no_run_flaps(stack: Stack, api: httpx2.Client) -> None:
    config: dict[str, Any] = api.get(_CONFIG).json()
    ours = config["spec"].get("global", {}).get("replicaCount")
    label = "nvidia.com/gpu.memory"
    identity = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {"name": "kai-config"}}
    _by_force(api, _CONFIG, identity | {"spec": {"global": {"replicaCount": 3}}})
    _by_force(
        api, _NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "jetson-1", "labels": {label: "1"}}}
    )
    assert stack.up("--refresh").changed == {"node-labels-jetson-1"}
    assert api.get(_NODE).json()["metadata"]["labels"][label] == "122880"
    assert set(stack.up("--refresh").changes) == {"same"}
    # KAI's Config is its chart's: a hook applies it, by force too, with the next change of the release.
    assert api.get(_CONFIG).json()["spec"]["global"]["replicaCount"] == 3
    assert "somebody" in _managers(api, _CONFIG)
    stack.settings = changed(stack.settings, "kai.scheduler.args", {"v": "4"})
    stack.up()
    assert api.get(_CONFIG).json()["spec"].get("global", {}).get("replicaCount") == ours
    assert set(stack.up("--refresh").changes) == {"same"}


def test_a_definition_that_is_gone_is_a_clear_error_and_once_it_is_back_the_next_run_converges(
    stack: Stack, api: httpx2.Client
) -> None:
    good = stack.settings
    definition = api.get(_QUEUE_DEFINITION).json()
    assert api.delete(_QUEUE_DEFINITION).status_code == httpx2.codes.OK
    eventually(lambda: api.get(_QUEUES).status_code == httpx2.codes.NOT_FOUND)
    stack.settings = changed(good, "kai.timeout_seconds", 30)
    run = stack.up("--refresh", expect=None)
    assert run.code != 0
    assert "the cluster does not know the kind Queue" in run.output
    assert "Traceback" not in run.output
    assert api.get(_QUEUES).status_code == httpx2.codes.NOT_FOUND
    again = {"apiVersion": definition["apiVersion"], "kind": definition["kind"], "spec": definition["spec"]}
    again["metadata"] = {"name": definition["metadata"]["name"]}
    path = _QUEUE_DEFINITION.rpartition("/")[0]
    assert api.post(path, json=again).status_code == httpx2.codes.CREATED
    eventually(lambda: api.get(_QUEUES).status_code == httpx2.codes.OK)
    stack.settings = good
    stack.up("--refresh")
    assert {"default-queue", "edge"} <= {item["metadata"]["name"] for item in api.get(_QUEUES).json()["items"]}
    assert set(stack.up("--refresh").changes) == {"same"}


def test_a_node_that_is_gone_is_named_and_one_that_returns_gets_its_labels_again(
    stack: Stack, api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    labels = api.get(_NODE).json()["metadata"]["labels"]
    assert api.delete(_NODE).status_code == httpx2.codes.OK
    eventually(lambda: api.get(_NODE).status_code == httpx2.codes.NOT_FOUND)
    run = stack.up(expect=None)
    assert run.code != 0
    assert "the stack names the node 'jetson-1', which the cluster does not have" in run.output
    simulator.up(cluster.folder)
    assert "kai-anywhere.io/platform" not in api.get(_NODE).json()["metadata"]["labels"]
    assert "node-labels-jetson-1" in stack.up("--refresh").changed
    ours = {key for key in labels if key.startswith("kai-anywhere.io/")} | {"nvidia.com/gpu.memory"}
    now = api.get(_NODE).json()["metadata"]["labels"]
    assert {key: now.get(key) for key in ours} == {key: labels[key] for key in ours}
    eventually(lambda: api.get(_NODE).json()["status"]["allocatable"].get("nvidia.com/gpu") == "1")
    assert set(stack.up("--refresh").changes) == {"same"}


def test_a_repair_forgets_a_node_that_left_cluster_and_stack_and_installs_an_operator_that_somebody_removed(
    stack: Stack, api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    """As `kai-anywhere repair` runs it: the program reads what the state said before the run's refresh."""
    good = stack.settings
    simulator.up(cluster.folder, nodes={"jetson-2": simulator.NodeKind.JETSON})
    stack.settings = changed(good, "platform.tegra_nodes.jetson-2", {"gpu_memory_mib": 57344})
    stack.up()
    stack.settings = good
    assert api.delete("/api/v1/nodes/jetson-2").status_code == httpx2.codes.OK
    assert api.delete(_OPERATOR).status_code == httpx2.codes.OK
    eventually(lambda: api.get(_OPERATOR).status_code == httpx2.codes.NOT_FOUND)
    eventually(lambda: "feature.node.kubernetes.io/pci-10de.present" not in api.get(_NODE).json()["metadata"]["labels"])
    stack.environment[REFRESHES] = "true"
    output = stack.up("--refresh").output
    del stack.environment[REFRESHES]
    assert "pulumi refresh" not in output
    assert api.get("/api/v1/nodes/jetson-2").status_code == httpx2.codes.NOT_FOUND, "nobody made it again"
    assert api.get(_NODE).json()["metadata"]["labels"]["nvidia.com/gpu.deploy.container-toolkit"] == "false"
    assert api.get(_OPERATOR).status_code == httpx2.codes.OK
    assert set(stack.up("--refresh").changes) == {"same"}


def test_a_destroy_that_hangs_at_a_finalizer_and_is_killed_is_ended_by_the_next(
    stack: Stack, api: httpx2.Client, before: set[str]
) -> None:
    namespace = "/api/v1/namespaces/gpu-operator"
    stuck = {"metadata": {"name": "stuck", "finalizers": ["example.com/nobody"]}}
    assert api.post(f"{namespace}/configmaps", json=stuck).status_code == httpx2.codes.CREATED

    def terminating() -> bool:
        return bool(api.get(namespace).json()["metadata"].get("deletionTimestamp"))

    with stack.up_until_killed("destroy"):
        eventually(terminating, within_seconds=300)
    # What would refuse pods is gone before what could answer for it.
    assert not [name for name in inventory(api) if "WebhookConfiguration/" in name and name not in before]
    assert "the stack is currently locked" in stack.destroy(expect=None).output
    stack.run("cancel", "--yes")
    with stack.started("destroy") as again:
        # A run that goes on waits for the namespace, as long as somebody holds it.
        with pytest.raises(subprocess.TimeoutExpired):
            again.wait(timeout=20)
        free = [{"op": "remove", "path": "/metadata/finalizers"}]
        headers = {"Content-Type": "application/json-patch+json"}
        assert api.patch(f"{namespace}/configmaps/stuck", json=free, headers=headers).status_code == httpx2.codes.OK
        output, _ = again.communicate(timeout=300)
        assert again.returncode == 0, output
    # Labels that the GPU Operator wrote itself stay on a node that it saw before ours were there (the test above).
    eventually(lambda: _without_nodes(inventory(api)) == _without_nodes(before))
    assert not [name for name in inventory(api) if name.startswith("Node/") and "/kai-anywhere.io/" in name]
    assert [resource["type"] for resource in stack.resources() if not resource["type"].startswith("pulumi:")] == []


def _without_nodes(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("Node/")}
