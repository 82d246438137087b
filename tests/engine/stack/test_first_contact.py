"""What a person made before the stack came: refused, or adopted by a setting and given back on destroy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson, x86
from testbed.waiting import eventually
from tests.engine.stack.test_faults import refused

_QUEUE = "/apis/scheduling.run.ai/v2/queues/default-queue"
_NAMESPACE = "/api/v1/namespaces/gpu-operator"
_NODE = "/api/v1/nodes/jetson-1"
_MEMORY = "nvidia.com/gpu.memory"
_MINE: Json = {
    "displayName": "mine",
    "priority": 5,
    "resources": {"gpu": {"quota": 7, "limit": 8, "overQuotaWeight": 2}},
}
_ADOPTED = ["Queue/default-queue", "Namespace/gpu-operator", "Node/jetson-1"]


@pytest.fixture
def stack(
    tmp_path: Path, cluster: simulator.ControlPlane, engine_environment: dict[str, str], by_hand: None
) -> Iterator[Stack]:
    """A Jetson stack that was never deployed, beside what a person made; what a test deployed is removed."""
    assert by_hand is None
    made = Stack(tmp_path, stack_settings(jetson(), cluster), engine_environment)
    yield made
    if any(not resource["type"].startswith("pulumi:") for resource in made.resources()):
        made.run("destroy", "--yes", "--skip-preview", "--run-program")


@pytest.fixture
def by_hand(api: httpx2.Client) -> Iterator[None]:
    """A queue and a namespace that somebody made, and a label that somebody gave to the Jetson."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in (ROOT / "simulator/charts/kai-scheduler/crds").glob("*.yaml"):
        for definition in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            api.post(definitions, json=definition)
    queue = {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "default-queue"},
        "spec": _MINE,
    }
    eventually(lambda: _post(api, _QUEUE.rpartition("/")[0], queue).status_code in {201, 409})
    _post(api, "/api/v1/namespaces", {"metadata": {"name": "gpu-operator", "labels": {"team": "robots"}}})
    _post(api, f"{_NAMESPACE}/secrets", {"metadata": {"name": "site"}})
    _label(api, "30000")
    yield
    for path in (_QUEUE, _NAMESPACE):
        api.delete(path)
    _label(api, None)
    eventually(lambda: api.get(_NAMESPACE).status_code == httpx2.codes.NOT_FOUND)


def test_what_is_there_stops_up_and_is_left_as_it_is(stack: Stack, cluster: simulator.ControlPlane) -> None:
    refused(
        stack,
        stack.settings,
        cluster,
        "Queue 'default-queue' exists already and is not this stack's (written by kubectl-create)",
        "Namespace 'gpu-operator' exists already and is not this stack's",
        "nvidia.com/gpu.memory is '30000' by kubectl-label, the stack sets '122880'",
    )


def test_what_is_adopted_is_given_back_on_destroy(stack: Stack, api: httpx2.Client) -> None:
    before = {path: _content(api, path) for path in (_QUEUE, _NAMESPACE, _NODE)}
    stack.settings = changed(stack.settings, "cluster.adopt", _ADOPTED)
    stack.up()
    assert _content(api, _QUEUE)["spec"] == _MINE | {
        "displayName": "default-queue",
        "parentQueue": "default-parent-queue",
        "resources": {kind: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for kind in ("gpu", "cpu", "memory")},
    }
    assert _content(api, _NODE)["metadata"]["labels"][_MEMORY] == "122880"
    assert set(stack.up().changes) == {"same"}
    assert set(stack.refresh().changes) == {"same"}

    without_program = stack.destroy(expect=None)
    assert without_program.code != 0
    assert "run pulumi destroy --run-program" in without_program.output
    assert _content(api, _NODE)["metadata"]["labels"][_MEMORY] == "122880"

    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    assert [r["type"] for r in stack.resources()] == []
    assert _content(api, _QUEUE) == before[_QUEUE]
    namespace = _content(api, _NAMESPACE)
    assert namespace == before[_NAMESPACE]
    assert api.get(f"{_NAMESPACE}/secrets/site").status_code == httpx2.codes.OK
    labels = _content(api, _NODE)["metadata"]["labels"]
    assert labels[_MEMORY] == "30000"
    assert "kai-anywhere.io/platform" not in labels


def test_what_somebody_changed_meanwhile_is_his(stack: Stack, api: httpx2.Client) -> None:
    stack.settings = changed(stack.settings, "cluster.adopt", _ADOPTED)
    stack.up()
    _label(api, "40000")
    # A node taken out of the stack gets its labels back in the same way.
    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    assert _content(api, _NODE)["metadata"]["labels"][_MEMORY] == "40000"


def test_what_is_adopted_stays_its_owners_though_its_marks_were_taken_off_before_a_refresh(
    stack: Stack, api: httpx2.Client
) -> None:
    before = _content(api, _NAMESPACE)
    stack.settings = changed(stack.settings, "cluster.adopt", _ADOPTED)
    stack.up()
    for path in (_QUEUE, _NAMESPACE):
        # As `kubectl replace` does with a manifest of its own.
        _change(api, path, {"metadata": {"annotations": None}})
    _change(api, _QUEUE, {"spec": {"resources": {"gpu": {"quota": 3}}}})
    _label(api, "40000")
    stack.refresh()
    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    assert _content(api, _NAMESPACE) == before
    assert api.get(f"{_NAMESPACE}/secrets/site").status_code == httpx2.codes.OK
    assert _content(api, _QUEUE)["spec"] == changed(_MINE, "resources.gpu.quota", 3)
    assert _content(api, _NODE)["metadata"]["labels"][_MEMORY] == "40000"


def test_updates_leave_of_what_is_adopted_all_that_is_not_the_stacks(stack: Stack, api: httpx2.Client) -> None:
    before = {path: _content(api, path) for path in (_QUEUE, _NAMESPACE)}
    stack.settings = changed(stack.settings, "cluster.adopt", _ADOPTED)
    stack.up()
    since = {"metadata": {"labels": {"cost-centre": "7"}}}
    for _ in range(2):
        # The provider takes over what kubectl wrote, at each update, and removes what the program does not say.
        _change(api, _QUEUE, {"spec": {"resources": {"gpu": {"quota": 3}}}})
        _change(api, _NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
        assert stack.up("--refresh").changed == {"kai-scheduler-queue-default-queue", "gpu-operator-namespace"}
        assert _content(api, _QUEUE)["spec"]["priority"] == _MINE["priority"]
        assert _content(api, _QUEUE)["spec"]["resources"]["gpu"]["quota"] == 0
        labels = _content(api, _NAMESPACE)["metadata"]["labels"]
        assert labels["team"] == "robots"
        assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
        _change(api, _NAMESPACE, since)
    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    assert _content(api, _QUEUE) == before[_QUEUE]
    assert _content(api, _NAMESPACE) == changed(before[_NAMESPACE], "metadata.labels.cost-centre", "7")


@pytest.fixture
def first(tmp_path: Path, cluster: simulator.ControlPlane, engine_environment: dict[str, str]) -> Iterator[Stack]:
    """Another team's stack, up in the same cluster."""
    made = Stack(tmp_path / "first", stack_settings(jetson(), cluster), engine_environment, name="first")
    made.up()
    yield made
    made.destroy()


def test_a_second_stack_in_other_namespaces_takes_nothing_of_the_first(
    first: Stack,
    api: httpx2.Client,
    cluster: simulator.ControlPlane,
    tmp_path: Path,
    engine_environment: dict[str, str],
) -> None:
    settings: Json = changed(stack_settings(x86(), cluster), "kai.namespace", "kai-2")
    settings = changed(settings, "gpu_operator.namespace", "gpu-operator-2")
    second = Stack(tmp_path / "second", settings, engine_environment, name="second")
    before = inventory(api)
    run = second.up(expect=None)
    assert run.code != 0
    for words in (
        (
            "the cluster has a GPU Operator that is not this stack's: ClusterPolicy 'cluster-policy' (Helm release "
            "'gpu-operator' in namespace 'gpu-operator')"
        ),
        "gpu_operator.install: false",
        "the cluster has a KAI scheduler that is not this stack's",
        (
            "ValidatingAdmissionPolicy 'kai-anywhere-pod-guard' belongs to another stack of this program, "
            "'kai-anywhere/first'"
        ),
        "Queue 'default-queue' belongs to another stack of this program, 'kai-anywhere/first'",
    ):
        assert words in run.output
    assert inventory(api) == before
    assert [r["type"] for r in second.resources() if not r["type"].startswith("pulumi:")] == []
    assert set(first.up().changes) == {"same"}


def _post(api: httpx2.Client, path: str, document: Json) -> httpx2.Response:
    return api.post(path, params={"fieldManager": "kubectl-create"}, json=document)


def _label(api: httpx2.Client, value: str | None) -> None:
    _change(api, _NODE, {"metadata": {"labels": {_MEMORY: value}}}, manager="kubectl-label")


def _change(api: httpx2.Client, path: str, patch: Json, *, manager: str = "kubectl-edit") -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, params={"fieldManager": manager}, json=patch, headers=headers).raise_for_status()


def _content(api: httpx2.Client, path: str) -> Any:  # noqa: ANN401 - JSON
    """An object without what every write changes."""
    found = api.get(path).raise_for_status().json()
    return {
        "metadata": {field: found["metadata"].get(field, {}) for field in ("labels", "annotations")},
        "spec": found.get("spec"),
    }
