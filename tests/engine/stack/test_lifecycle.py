"""The main job: a stack's whole life on the real engine, the real Kubernetes provider and a real API server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx2
import pytest

import simulator
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.run import run_preflight
from cluster.waiting import wait_for, webhook_answers
from manifests.kai import queues
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.stacks import STACKS, Json, changed, parse
from testbed.waiting import eventually

KINDS = ("jetson", "x86")
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def before(api: httpx2.Client, kind: str) -> set[str]:
    """What the cluster holds before the stack; `kind` makes it one inventory per stack."""
    assert kind
    return inventory(api)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack], kind: str, before: set[str]) -> Iterator[Stack]:
    """The stack, up; every test leaves it so."""
    assert before
    made = new_stack(STACKS[kind]())
    assert made.up().changes["create"] > 15
    yield made
    # What is left when a test failed; the next stack comes to the same cluster.
    if made.resources():
        made.destroy()


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    assert set(stack.up().changes) == {"same"}


def test_a_refresh_changes_nothing(stack: Stack) -> None:
    assert set(stack.refresh().changes) == {"same"}


def test_what_was_edited_and_deleted_by_hand_is_found_and_repaired(stack: Stack, api: httpx2.Client, kind: str) -> None:
    registration = "/apis/admissionregistration.k8s.io/v1"
    namespace = "/api/v1/namespaces/kai-resource-reservation"
    guard = f"{registration}/validatingadmissionpolicies/kai-anywhere-reservation-guard"
    overrides = f"{registration}/mutatingadmissionpolicies/kai-anywhere-reservation-overrides"
    enforced, memory = "pod-security.kubernetes.io/enforce", "nvidia.com/gpu.memory"
    ours = api.get(namespace).json()["metadata"]["labels"][enforced]
    guarded = api.get(guard).json()["spec"]
    by_hand(api, namespace, {"metadata": {"labels": {enforced: "restricted"}}})
    by_hand(api, guard, {"spec": {"failurePolicy": "Ignore", "validations": guarded["validations"][:1]}})
    differs = {"reservation-namespace", "reservation-guard"}
    overriding = api.get(overrides).json().get("spec")
    if kind == "jetson":
        by_hand(api, "/api/v1/nodes/jetson-1", {"metadata": {"labels": {memory: "100"}}})
        assert api.delete(overrides).status_code == httpx2.codes.OK
        differs |= {"node-labels-jetson-1", "reservation-policy"}

    assert stack.preview("--refresh").changed == differs
    assert stack.up("--refresh").changed == differs
    assert api.get(namespace).json()["metadata"]["labels"][enforced] == ours
    assert api.get(guard).json()["spec"] == guarded
    if kind == "jetson":
        assert api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"][memory] == "122880"
        assert api.get(overrides).json()["spec"] == overriding is not None


@pytest.mark.parametrize("kind", ["jetson"], indirect=True)
def test_a_repair_leaves_what_a_chart_and_a_person_wrote_beside_the_stack(stack: Stack, api: httpx2.Client) -> None:
    shard, namespace = "/apis/kai.scheduler/v1/schedulingshards/default", "/api/v1/namespaces/kai-scheduler"
    part, ours = "app.kubernetes.io/part-of", "kai-anywhere"
    by_chart = api.get(shard).json()["spec"]
    assert by_chart["placementStrategy"] == {"cpu": "binpack", "gpu": "binpack"}
    for path in (shard, namespace):
        by_hand(api, path, {"metadata": {"labels": {part: "something-else", "team": "robots"}}})
    assert stack.up("--refresh").changed == {"kai-scheduler-shard", "kai-scheduler-namespace"}
    assert api.get(shard).json()["spec"] == by_chart
    for path in (shard, namespace):
        labels = api.get(path).json()["metadata"]["labels"]
        assert (labels[part], labels["team"]) == (ours, "robots")
        by_hand(api, path, {"metadata": {"labels": {"team": None}}})
    assert set(stack.up().changes) == {"same"}


def test_the_releases_are_what_the_stack_says(stack: Stack) -> None:
    releases = {r["outputs"]["name"]: r["outputs"] for r in stack.resources() if r["type"].endswith(":Release")}
    assert set(releases) == {"gpu-operator", "kai-scheduler"}
    assert releases["kai-scheduler"]["values"]["global"]["gpuSharingMode"] == "NonMemoryEnforced"
    assert releases["gpu-operator"]["values"]["driver"] == {"enabled": False}


def test_every_gpu_node_advertises_its_gpus_and_no_other_node_does(stack: Stack, api: httpx2.Client) -> None:
    nodes = {n["metadata"]["name"]: n["status"]["allocatable"] for n in api.get("/api/v1/nodes").json()["items"]}
    gpus = {name: int(allocatable.get("nvidia.com/gpu", 0)) for name, allocatable in nodes.items()}
    assert gpus["x86-1"] == 2
    assert gpus["cpu-1"] == 0
    # On x86 nobody says that the Jetson has a GPU: it is no PCI device.
    assert gpus["jetson-1"] == (1 if "tegra_nodes" in stack.settings["platform"] else 0)


def _leaving(stack: Stack, settings: Json) -> list[str]:
    """What preflight says of queues that a run with these settings deletes."""
    state = DeployedState.of((resource["type"], resource.get("outputs", {})) for resource in stack.resources())
    warnings = run_preflight(parse(settings), state, preview=True, stack="kai-anywhere/test").warnings
    return [warning for warning in warnings if "deletes the queue" in warning]


@pytest.mark.parametrize("kind", ["x86"], indirect=True)
def test_queues_exist_and_follow_the_settings(stack: Stack, api: httpx2.Client) -> None:
    before = stack.settings
    stack.settings = changed(before, "kai.queues", {"night": {"parent": "default-parent-queue", "gpu": {"quota": 2}}})
    assert stack.up().changes["create"] == 1
    queues = {q["metadata"]["name"]: q["spec"] for q in api.get(_QUEUES).json()["items"]}
    assert set(queues) == {"default-parent-queue", "default-queue", "night"}
    assert queues["night"]["parentQueue"] == "default-parent-queue"
    assert queues["night"]["resources"]["gpu"] == {"quota": 2, "limit": -1, "overQuotaWeight": 1}
    assert _leaving(stack, stack.settings) == []
    assert _leaving(stack, before) == []
    for name, queue in (("trains", "night"), ("elsewhere", "default-queue")):
        pod = {
            "metadata": {"name": name, "labels": {"kai.scheduler/queue": queue}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "train:1"}]},
        }
        api.post(_PODS, json=pod).raise_for_status()
    try:
        assert _leaving(stack, stack.settings) == []
        [warning] = _leaving(stack, before)
    finally:
        for name in ("trains", "elsewhere"):
            api.delete(f"{_PODS}/{name}", params={"gracePeriodSeconds": 0}).raise_for_status()
    assert "this run deletes the queue 'night', and pods are in it: default/trains. What waits there stays" in warning
    assert "with the label kai.scheduler/queue of another queue: default-queue, notebooks." in warning
    # The next run says it.
    stack.settings = before


@pytest.mark.parametrize("kind", ["jetson"], indirect=True)
def test_queues_wait_for_a_webhook_that_does_not_answer(stack: Stack, api: httpx2.Client) -> None:
    """KAI's emulated webhook, which the API server really calls."""
    assert "kai-queue-validation-v2" in _webhooks(api)
    settings = parse(stack.settings)
    manifest = next(iter(queues(settings).values()))
    condition = webhook_answers(manifest, causes="Because.")
    with closing(Cluster.connect(settings.cluster)) as connection:
        assert condition.missing(connection) is None
        before = api.get(f"{_QUEUES}/{manifest['metadata']['name']}").json()["metadata"]["resourceVersion"]

        _scale_queue_controller(api, 0)
        eventually(lambda: condition.missing(connection) is not None)
        with pytest.raises(ClusterError) as caught:
            wait_for(connection, condition, timeout_seconds=2, report=lambda _: None)
        assert 'failed calling webhook "queue-validation.kai.scheduler"' in str(caught.value)
        assert "last heard: " in str(caught.value)

        opened = threading.Event()

        def wait() -> None:
            wait_for(connection, condition, timeout_seconds=120, report=lambda _: None)
            opened.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not opened.wait(2)
        _scale_queue_controller(api, 1)
        waiting.join()
        assert opened.is_set()
        after = api.get(f"{_QUEUES}/{manifest['metadata']['name']}").json()["metadata"]["resourceVersion"]
        assert after == before, "a dry run stores nothing"


@pytest.mark.parametrize("kind", ["jetson"], indirect=True)
class TestTegra:
    """What exists on Tegra stacks only."""

    @pytest.mark.usefixtures("stack")
    def test_the_jetson_has_our_labels_and_keeps_its_operands_off(self, api: httpx2.Client) -> None:
        labels = api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]
        assert labels["kai-anywhere.io/platform"] == "tegra"
        assert labels["nvidia.com/gpu.memory"] == "122880"
        assert labels["nvidia.com/gpu.count"] == "1"
        assert labels["nvidia.com/gpu.present"] == "true"
        pods = api.get("/api/v1/namespaces/gpu-operator/pods").json()["items"]
        operands = {p["metadata"]["name"].rsplit("-", 1)[0] for p in pods if p["spec"].get("nodeName") == "jetson-1"}
        assert "nvidia-device-plugin-daemonset" in operands
        off = ("nvidia-container-toolkit-daemonset", "nvidia-dcgm-exporter", "gpu-feature-discovery")
        assert operands.isdisjoint(off)

    @pytest.mark.usefixtures("stack")
    def test_nodes_that_the_stack_does_not_name_have_no_label_of_ours(self, api: httpx2.Client) -> None:
        for node in ("x86-1", "cpu-1"):
            labels = api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"]
            assert "kai-anywhere.io/platform" not in labels

    def test_overrides_never_takes_the_policy_away_and_auto_brings_it_back(
        self, stack: Stack, api: httpx2.Client
    ) -> None:
        policies = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
        namespace = "/api/v1/namespaces/kai-resource-reservation"
        auto = stack.settings
        stack.settings = changed(auto, "reservation.overrides", "never")
        off = stack.up()
        assert off.changed == {
            "reservation-policy",
            "reservation-binding",
            "reservation-index-policy",
            "reservation-index-binding",
            "reservation-guard",
            "reservation-namespace",
            "pod-guard-policy",
        }
        assert off.changes["delete"] == 4
        assert api.get(policies).json()["items"] == []
        labels = api.get(namespace).json()["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
        stack.settings = auto
        assert stack.up().changes["create"] == 4
        assert [p["metadata"]["name"] for p in api.get(policies).json()["items"]] == [
            "kai-anywhere-reservation-index",
            "kai-anywhere-reservation-overrides",
        ]

    def test_a_node_taken_out_loses_our_labels_and_one_that_left_the_cluster_too_is_not_made_again(
        self, stack: Stack, api: httpx2.Client, cluster: simulator.ControlPlane
    ) -> None:
        stays, leaves = "/api/v1/nodes/jetson-2", "/api/v1/nodes/jetson-3"
        simulator.up(cluster.folder, nodes=dict.fromkeys(("jetson-2", "jetson-3"), simulator.NodeKind.JETSON))
        one = stack.settings
        more = {"jetson-2": {"gpu_memory_mib": 61440}, "jetson-3": {"gpu_memory_mib": 61440}}
        stack.settings = changed(one, "platform.tegra_nodes", one["platform"]["tegra_nodes"] | more)
        stack.up()
        for node in (stays, leaves):
            assert api.get(node).json()["metadata"]["labels"]["nvidia.com/gpu.memory"] == "61440"
        api.delete(leaves).raise_for_status()
        stack.settings = one
        refused = stack.up(expect=None)
        assert refused.code != 0
        assert f"pulumi refresh --stack {stack.name}" in refused.output
        assert refused.changed == frozenset()
        stack.refresh()
        stack.up()
        assert api.get(leaves).status_code == httpx2.codes.NOT_FOUND
        labels = api.get(stays).json()["metadata"]["labels"]
        assert {"nvidia.com/gpu.memory", "nvidia.com/gpu.count", "kai-anywhere.io/platform"}.isdisjoint(labels)
        assert not any(value == "false" for key, value in labels.items() if key.startswith("nvidia.com/gpu.deploy."))
        api.delete(stays)


@pytest.mark.parametrize("kind", ["x86"], indirect=True)
class TestX86:
    """What must not exist on x86 stacks."""

    @pytest.mark.usefixtures("stack")
    def test_nothing_is_mutated_and_the_reservation_namespace_is_not_privileged(self, api: httpx2.Client) -> None:
        assert api.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies").json()["items"] == []
        labels = api.get("/api/v1/namespaces/kai-resource-reservation").json()["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "baseline"

    @pytest.mark.usefixtures("stack")
    def test_the_nodes_keep_the_labels_of_gpu_feature_discovery(self, api: httpx2.Client) -> None:
        node = api.get("/api/v1/nodes/x86-1").json()["metadata"]
        assert node["labels"]["nvidia.com/gpu.memory"] == "46068"
        assert "kai-anywhere.io/platform" not in node["labels"]
        assert not any(f["manager"].startswith("pulumi") for f in node["managedFields"])

    def test_a_time_slicing_profile_multiplies_the_gpus_and_takes_the_node_from_kai(
        self, stack: Stack, api: httpx2.Client
    ) -> None:
        node = "/api/v1/nodes/x86-1"
        plain = stack.settings
        profile = {"sharing": "time_slicing", "nodes": ["x86-1"], "replicas": 4}
        stack.settings = changed(plain, "node_profiles", {"sliced": profile})
        stack.up()
        eventually(lambda: api.get(node).json()["status"]["allocatable"]["nvidia.com/gpu"] == "8")
        labels = api.get(node).json()["metadata"]["labels"]
        assert labels["nvidia.com/device-plugin.config"] == "sliced"
        assert labels["kai.scheduler/node-pool"] == "time-slicing"
        stack.settings = plain
        stack.up()
        eventually(lambda: api.get(node).json()["status"]["allocatable"]["nvidia.com/gpu"] == "2")
        assert "kai.scheduler/node-pool" not in api.get(node).json()["metadata"]["labels"]


def test_destroy_leaves_nothing_behind_and_nobody_blocked(stack: Stack, api: httpx2.Client, before: set[str]) -> None:
    stack.destroy()
    assert not {name for name in _webhooks(api) if name != "kai-anywhere"}
    mine = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "mine"}, "spec": {}}
    made = api.post(_QUEUES, json=mine)
    assert made.status_code == httpx2.codes.CREATED, made.text
    api.delete(f"{_QUEUES}/mine").raise_for_status()
    assert [r["type"] for r in stack.resources()] == []
    eventually(lambda: left_behind(api, before) == set())


def _webhooks(api: httpx2.Client) -> set[str]:
    """Names of the webhook configurations that are KAI's or ours."""
    return {
        item["metadata"]["name"]
        for kind in ("mutating", "validating")
        for item in api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations").json()["items"]
        if "kai" in item["metadata"]["name"]
    }


def _scale_queue_controller(api: httpx2.Client, replicas: int) -> None:
    path = "/apis/apps/v1/namespaces/kai-scheduler/deployments/queue-controller"
    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, json={"spec": {"replicas": replicas}}, headers=headers).raise_for_status()


def by_hand(api: httpx2.Client, path: str, patch: object) -> None:
    """Change an object as `kubectl edit` does, under another field manager."""
    response = api.patch(
        path,
        params={"fieldManager": "kubectl-edit"},
        json=patch,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    response.raise_for_status()
