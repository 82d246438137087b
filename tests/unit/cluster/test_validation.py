"""What an install is held to afterwards, against a real HTTP server."""

import copy
import json

import pytest

from cluster import validation, waiting
from cluster.access.answers.nodes import Node
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.reservation_pods import shared_nodes
from cluster.validation import checks, validate
from config.stack import StackSettings
from manifests.kai import DEPLOYMENTS
from manifests.node_labels import node_labels
from testbed.stacks import Json, changed, gvirtus, jetson, parse, rungs, time_slicing, x86
from tests.support.api_server import Answer, ApiServer, deployment, node
from tests.support.reservation import RESERVATION_PODS, as_the_stack_says, make_valid


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "SETTLES_SECONDS", 0)


@pytest.fixture
def settings(api: ApiServer) -> StackSettings:
    """A Jetson stack that is installed on the server and does its work."""
    stack = parse(changed(jetson(), "validation", "after_up"))
    make_valid(api, stack)
    return stack


def _failure(cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    short = settings.model_copy(update={"kai": settings.kai.model_copy(update={"timeout_seconds": 0})})
    with pytest.raises(ClusterError) as caught:
        validate(cluster, short, lambda _: None)
    return str(caught.value)


def test_a_stack_that_does_its_work_holds_and_nothing_is_stored(
    api: ApiServer, cluster: Cluster, settings: StackSettings
) -> None:
    validate(cluster, settings, lambda _: None)
    writes = [request for request in api.asked if request.method != "GET"]
    assert writes
    for request in writes:
        assert (request.path, request.query["dryRun"]) == (RESERVATION_PODS, ["All"])
        assert request.headers["impersonate-user"] == "system:serviceaccount:kai-scheduler:binder"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_of_kai_that_has_no_pod_fails_with_its_name(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = f"/apis/apps/v1/namespaces/kai-scheduler/deployments/{name}"
    api.serve(path, deployment(name, available=0))
    text = _failure(cluster, settings, monkeypatch)
    assert f"'{name}': 0 of 1 replicas are available" in text
    assert text.count("without success") == 1


def test_a_label_that_is_gone_or_another_fails_with_both_values(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = node_labels(settings)["jetson-1"] | {"nvidia.com/gpu.memory": "4095"}
    del labels["nvidia.com/gpu.count"]
    api.serve("/api/v1/nodes", {"items": [node("jetson-1", labels=labels)]})
    text = _failure(cluster, settings, monkeypatch)
    assert "node 'jetson-1' has nvidia.com/gpu.memory=4095, the stack says 122880" in text
    assert "node 'jetson-1' has no label nvidia.com/gpu.count" in text


def test_a_node_that_advertises_no_gpu_fails(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = node_labels(settings)["jetson-1"]
    api.serve("/api/v1/nodes", {"items": [node("jetson-1", gpus=0, labels=labels)]})
    assert "no nvidia.com/gpu on jetson-1" in _failure(cluster, settings, monkeypatch)


def test_a_node_without_its_memory_is_found_though_the_stack_does_not_name_it(
    api: ApiServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = parse(x86())
    make_valid(api, settings)
    api.serve("/api/v1/nodes", {"items": [node("gpu-1", architecture="amd64")]})
    text = _failure(cluster, settings, monkeypatch)
    assert "node 'gpu-1' has no label nvidia.com/gpu.memory" in text
    assert "reservation pods" not in text


def test_overrides_that_are_not_in_force_fail_with_what_lacks_and_the_ways_out(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    del api.creates[RESERVATION_PODS]
    text = _failure(cluster, settings, monkeypatch)
    assert text.startswith("Everything is installed, but does not work as the stack says (validation: after_up):\n")
    assert "on node 'jetson-1', privileged is false; it should be true" in text
    assert "on node 'jetson-1', it lacks the host path /dev" in text
    assert "Deployments" not in text, "what holds is not listed"
    for way in ("kai-anywhere doctor", "pulumi up --refresh", "kai-anywhere verify"):
        assert way in text


def test_a_refusal_fails_in_the_api_server_s_words(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.creates[RESERVATION_PODS] = Answer(403, json.dumps({"message": "'other' denied request: no"}).encode())
    text = _failure(cluster, settings, monkeypatch)
    assert "on node 'jetson-1', the cluster refuses them: 'other' denied request: no" in text


def test_who_may_not_act_as_the_binder_is_told_so_and_does_not_pass(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'serviceaccounts "binder" is forbidden: User "me" cannot impersonate resource'
    api.creates[RESERVATION_PODS] = Answer(403, json.dumps({"message": said}).encode())
    text = _failure(cluster, settings, monkeypatch)
    assert "verb impersonate on serviceaccounts" in text
    assert said in text


def test_everything_that_fails_is_named_at_once(
    api: ApiServer, cluster: Cluster, settings: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    del api.creates[RESERVATION_PODS]
    api.serve("/api/v1/nodes", {"items": [node("jetson-1", gpus=0)]})
    api.fail("/apis/apps/v1/namespaces/kai-scheduler/deployments/binder", 404)
    text = _failure(cluster, settings, monkeypatch)
    assert text.count("without success") == 3
    assert "'binder': it does not exist yet" in text


def test_a_container_that_a_mesh_adds_does_not_matter(
    api: ApiServer, cluster: Cluster, settings: StackSettings
) -> None:
    pod = copy.deepcopy(as_the_stack_says(settings, "jetson-1"))
    pod["spec"]["containers"].insert(0, {"name": "proxy", "image": "mesh:1"})
    api.creates[RESERVATION_PODS] = Answer(201, json.dumps(pod).encode())
    validate(cluster, settings, lambda _: None)


@pytest.mark.parametrize(
    ("stack", "names"),
    [
        (jetson(), {"jetson-1", "gpu-7", "cpu-1"}),
        (time_slicing(), {"jetson-1", "cpu-1"}),
        (gvirtus(), {"jetson-1", "gpu-7", "cpu-1"}),
    ],
)
def test_kai_shares_no_gpu_where_time_is_sliced_or_the_gpus_are_elsewhere(stack: Json, names: set[str]) -> None:
    nodes = {name: Node.model_validate(node(name)) for name in ("jetson-1", "gpu-7", "cpu-1")}
    frontend = Node.model_validate(node("far", labels={"gvirtus.io/frontend.allowed": "true"}))
    bare = Node.model_validate(node("bare", gpus=0))
    assert set(shared_nodes(parse(stack), nodes | {"far": frontend, "bare": bare})) == names


def test_the_bounds_are_the_stack_s_own_where_something_has_to_start() -> None:
    [kai, *others] = checks(parse(changed(rungs(), "kai.timeout_seconds", 45)))
    assert kai.timeout_seconds == 45
    assert len(others) == 3
