"""What a person made before the stack came: refused, or adopted by a setting and given back on destroy.

One stack, which the tests below take through its life in their order.
"""

import json
from functools import partial
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
from tests.support.rollback import take_back_half_done_releases

_QUEUE, _OTHER_QUEUE = (f"/apis/scheduling.run.ai/v2/queues/{name}" for name in ("default-queue", "robots"))
_NAMESPACE, _OTHER_NAMESPACE = (f"/api/v1/namespaces/{name}" for name in ("gpu-operator", "kai-scheduler"))
"""The others are those whose marks somebody takes off."""
_JETSONS = [f"jetson-{number}" for number in range(1, 6)]
_NODES = [f"/api/v1/nodes/{name}" for name in _JETSONS]
_UNTOUCHED, _CHANGED, _CHANGED_BEFORE_A_REFRESH, _ANOTHER, _LABELLED_ANEW = _NODES
"""The last two leave the cluster, and another machine joins under each one's name."""
_MEMORY = "nvidia.com/gpu.memory"
_MINE: Json = {
    "displayName": "mine",
    "priority": 5,
    "resources": {"gpu": {"quota": 7, "limit": 8, "overQuotaWeight": 2}},
}
_ADOPTED = [
    "Queue/default-queue",
    "Queue/robots",
    "Namespace/gpu-operator",
    "Namespace/kai-scheduler",
    *(f"Node/{name}" for name in _JETSONS),
]


@pytest.fixture(scope="module")
def cluster(cluster: simulator.ControlPlane) -> simulator.ControlPlane:
    """The module's simulator, with a Jetson for each thing that happens to one."""
    return simulator.up(cluster.folder, nodes=dict.fromkeys(_JETSONS[1:], simulator.NodeKind.JETSON))


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: simulator.ControlPlane,
    engine_environment: dict[str, str],
    before: Json,
) -> Stack:
    """A Jetson stack beside what a person made; the second test deploys it."""
    assert before
    nodes = {name: {"gpu_memory_mib": 122880, "gpu_count": 1} for name in _JETSONS}
    settings = changed(stack_settings(jetson(), cluster), "platform.tegra_nodes", nodes)
    return Stack(tmp_path_factory.mktemp("first") / "stack", settings, engine_environment, name="first")


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> Json:
    """Queues and namespaces that somebody made, labels that somebody gave to the Jetsons: what they are by then."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in (ROOT / "simulator/charts/kai-scheduler/crds").glob("*.yaml"):
        for definition in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            api.post(definitions, json=definition)
    for path in (_QUEUE, _OTHER_QUEUE):
        eventually(partial(_has_queue, api, path))
    for path in (_NAMESPACE, _OTHER_NAMESPACE):
        folder, _, name = path.rpartition("/")
        _post(api, folder, {"metadata": {"name": name, "labels": {"team": "robots"}}})
        _post(api, f"{path}/secrets", {"metadata": {"name": "site"}})
    for node in _NODES:
        _label(api, node, "30000")
    return {path: _content(api, path) for path in (_QUEUE, _OTHER_QUEUE, _NAMESPACE, _OTHER_NAMESPACE, *_NODES)}


def test_what_is_there_stops_up_and_is_left_as_it_is(stack: Stack, cluster: simulator.ControlPlane) -> None:
    refused(
        stack,
        stack.settings,
        cluster,
        "Queue 'default-queue' exists already and is not this stack's (written by kubectl-create)",
        "Namespace 'gpu-operator' exists already and is not this stack's",
        "nvidia.com/gpu.memory is '30000' by kubectl-label, the stack sets '122880'",
    )


def test_what_is_adopted_becomes_as_the_stack_says_though_a_run_was_killed_in_the_middle(
    stack: Stack, api: httpx2.Client
) -> None:
    stack.settings = changed(stack.settings, "cluster.adopt", _ADOPTED)
    nothing = stack.folder / "nothing.json"
    nothing.write_text(json.dumps({"version": 3, "deployment": {}}), encoding="utf-8")
    with stack.up_until_killed():
        eventually(lambda: [_memory(api, node) for node in _NODES] == ["122880"] * len(_NODES), within_seconds=180)
    stack.run("cancel", "--yes")
    # Helm installs beside the labels.
    take_back_half_done_releases(api)
    # None of it was noted down: from here on the cluster alone tells what was there before, which the last tests ask.
    stack.run("stack", "import", "--file", str(nothing))
    stack.up()
    assert _content(api, _QUEUE)["spec"] == _MINE | {
        "displayName": "default-queue",
        "parentQueue": "default-parent-queue",
        "resources": {kind: {"quota": 0, "limit": -1, "overQuotaWeight": 1} for kind in ("gpu", "cpu", "memory")},
    }
    assert [_memory(api, node) for node in _NODES] == ["122880"] * len(_NODES)
    assert set(stack.up().changes) == {"same"}
    assert set(stack.refresh().changes) == {"same"}


def test_a_second_stack_in_other_namespaces_takes_nothing_of_the_first(
    stack: Stack,
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
        # One that the first made, and one that it adopted.
        "Queue 'default-parent-queue' belongs to another stack of this program, 'kai-anywhere/first'",
        "Queue 'default-queue' belongs to another stack of this program, 'kai-anywhere/first'",
    ):
        assert words in run.output
    assert inventory(api) == before
    assert [r["type"] for r in second.resources() if not r["type"].startswith("pulumi:")] == []
    assert set(stack.up().changes) == {"same"}


def test_updates_leave_of_what_is_adopted_all_that_is_not_the_stacks(stack: Stack, api: httpx2.Client) -> None:
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


def test_a_node_that_joins_again_under_its_name_is_labelled_again(
    stack: Stack, api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    for node in (_ANOTHER, _LABELLED_ANEW):
        api.delete(node).raise_for_status()
    eventually(lambda: {api.get(node).status_code for node in (_ANOTHER, _LABELLED_ANEW)} == {404})
    simulator.up(cluster.folder, nodes=dict.fromkeys(_JETSONS[-2:], simulator.NodeKind.JETSON))
    _label(api, _LABELLED_ANEW, "50000")
    stack.up("--refresh")
    assert [_memory(api, node) for node in _NODES] == ["122880"] * len(_NODES)
    assert set(stack.up().changes) == {"same"}


def test_a_destroy_without_the_program_is_refused_and_gives_nothing_back(stack: Stack, api: httpx2.Client) -> None:
    without_program = stack.destroy(expect=None)
    assert without_program.code != 0
    assert "run pulumi destroy --run-program" in without_program.output
    assert [_memory(api, node) for node in _NODES] == ["122880"] * len(_NODES)


@pytest.fixture(scope="module")
def destroyed(stack: Stack, api: httpx2.Client) -> Stack:
    """The stack, gone after somebody changed what it had adopted: some of it before a refresh, some after."""
    for path in (_OTHER_QUEUE, _OTHER_NAMESPACE):
        # As `kubectl replace` does with a manifest of its own.
        _change(api, path, {"metadata": {"annotations": None}})
    _change(api, _OTHER_QUEUE, {"spec": {"resources": {"gpu": {"quota": 3}}}})
    _label(api, _CHANGED_BEFORE_A_REFRESH, "40000")
    stack.refresh()
    _label(api, _CHANGED, "40000")
    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    return stack


def test_what_is_adopted_is_given_back_on_destroy(destroyed: Stack, api: httpx2.Client, before: Json) -> None:
    assert [r["type"] for r in destroyed.resources()] == []
    assert _content(api, _QUEUE) == before[_QUEUE]
    # With what was written since.
    assert _content(api, _NAMESPACE) == changed(before[_NAMESPACE], "metadata.labels.cost-centre", "7")
    assert api.get(f"{_NAMESPACE}/secrets/site").status_code == httpx2.codes.OK
    assert _memory(api, _UNTOUCHED) == "30000"
    assert "kai-anywhere.io/platform" not in _content(api, _UNTOUCHED)["metadata"]["labels"]


@pytest.mark.usefixtures("destroyed")
def test_what_somebody_changed_meanwhile_is_his(api: httpx2.Client) -> None:
    # A node taken out of the stack gets its labels back in the same way.
    assert _memory(api, _CHANGED) == "40000"


@pytest.mark.usefixtures("destroyed")
def test_a_node_does_not_get_what_another_one_of_its_name_held(api: httpx2.Client) -> None:
    assert _memory(api, _ANOTHER) is None
    assert _memory(api, _LABELLED_ANEW) == "50000"


@pytest.mark.usefixtures("destroyed")
def test_what_is_adopted_stays_its_owners_though_its_marks_were_taken_off_before_a_refresh(
    api: httpx2.Client, before: Json
) -> None:
    assert _content(api, _OTHER_NAMESPACE) == before[_OTHER_NAMESPACE]
    assert api.get(f"{_OTHER_NAMESPACE}/secrets/site").status_code == httpx2.codes.OK
    assert _content(api, _OTHER_QUEUE)["spec"] == changed(_MINE, "resources.gpu.quota", 3)
    assert _memory(api, _CHANGED_BEFORE_A_REFRESH) == "40000"


def _has_queue(api: httpx2.Client, path: str) -> bool:
    """Make it, as soon as the API server knows what a queue is."""
    folder, _, name = path.rpartition("/")
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": _MINE}
    return _post(api, folder, queue).status_code in {201, 409}


def _post(api: httpx2.Client, path: str, document: Json) -> httpx2.Response:
    return api.post(path, params={"fieldManager": "kubectl-create"}, json=document)


def _label(api: httpx2.Client, node: str, value: str) -> None:
    _change(api, node, {"metadata": {"labels": {_MEMORY: value}}}, manager="kubectl-label")


def _memory(api: httpx2.Client, node: str) -> object:
    return _content(api, node)["metadata"]["labels"].get(_MEMORY)


def _change(api: httpx2.Client, path: str, patch: Json, *, manager: str = "kubectl-edit") -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, params={"fieldManager": manager}, json=patch, headers=headers).raise_for_status()


def _content(api: httpx2.Client, path: str) -> Any:  # noqa: ANN401 - JSON
    """An object without what every write changes."""
    live = api.get(path).raise_for_status().json()
    return {
        "metadata": {field: live["metadata"].get(field, {}) for field in ("labels", "annotations")},
        "spec": live.get("spec"),
    }
