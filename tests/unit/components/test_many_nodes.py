"""Labels of many nodes are one resource where the engine finds the provider, and one a node elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.ownership.deployed_state import DeployedState
from components.adoption import sparing
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from components.own_provider import is_found
from config.cluster import ClusterSettings, Distribution
from manifests.many_nodes import apart
from manifests.node_labels import MANY_NODES, node_labels
from manifests.ownership import BEFORE
from testbed.stacks import ROOT, Json, changed, gvirtus_full, jetson, parse
from tests.support.hosts.settings import mixed_with_hosts
from tests.support.many_nodes import MANY
from tests.support.recording_monitor import Graph, Registration, record
from tests.unit.components.programs import CLUSTER_UID, KUBECONFIG

ALL = "ManyNodeLabels:node-labels"
ADOPTED = {"Node/jetson-2": {"metadata": {"labels": {"nvidia.com/gpu.memory": "4000"}}}}


def _jetsons(number: int) -> Json:
    nodes = {f"jetson-{index}": {"gpu_memory_mib": 28672 + index} for index in range(1, number + 1)}
    return changed(jetson(), "platform.tegra_nodes", nodes)


def _registered(stack: Json, *, together: bool = True, adopted: Any = None) -> Graph:  # noqa: ANN401 - kept values
    args = KaiAnywhereArgs(parse(stack), CLUSTER_UID, KUBECONFIG, few_resources=together)
    cluster = ClusterSettings(distribution=Distribution.K3S)

    def program() -> None:
        KaiAnywhere("kai-anywhere", args, sparing("kai-anywhere", adopted or {}, cluster))

    return record(program)


def _patches(graph: Graph) -> list[Registration]:
    return [registration for registration in graph.registrations if registration.type == "kubernetes:core/v1:NodePatch"]


def test_many_nodes_are_one_resource_with_the_values_of_each() -> None:
    stack = _jetsons(MANY_NODES + 1)
    graph = _registered(stack)
    assert _patches(graph) == []
    inputs = graph.by_key[ALL].inputs
    nodes = apart(inputs)
    assert {name: node["metadata"]["labels"] for name, node in nodes.items()} == node_labels(parse(stack))
    assert inputs["labels"]["kai-anywhere.io/platform"] == "tegra", "what all have is said once"
    assert inputs["nodes"]["jetson-3"] == {"labels": {"nvidia.com/gpu.memory": "28675"}}
    assert inputs["fieldManager"] == "kai-anywhere/kai-anywhere/test/node-labels"
    assert inputs["kubeconfig"] == KUBECONFIG
    assert graph.by_key[ALL].provider is None, "the Kubernetes provider does not know it"
    assert graph.below("NodeLabels:node-labels") == {ALL}


def test_labels_of_many_nodes_stand_once_in_the_state() -> None:
    assert _registered(_jetsons(MANY_NODES + 1)).outputs["NodeLabels:node-labels"] == {}
    few = _jetsons(MANY_NODES)
    assert _registered(few).outputs["NodeLabels:node-labels"] == {"labels": node_labels(parse(few))}


def test_a_few_nodes_are_a_resource_each() -> None:
    graph = _registered(_jetsons(MANY_NODES))
    assert len(_patches(graph)) == MANY_NODES
    assert ALL not in graph.by_key


def test_many_nodes_are_a_resource_each_where_the_engine_finds_no_provider_and_it_says_so() -> None:
    graph = _registered(_jetsons(MANY_NODES + 1), together=False)
    assert len(_patches(graph)) == MANY_NODES + 1
    assert ALL not in graph.by_key


def test_the_number_of_resources_does_not_grow_with_the_nodes() -> None:
    counts = {len(_registered(_jetsons(number)).registrations) for number in (MANY_NODES + 1, 10 * MANY_NODES)}
    assert len(counts) == 1


def test_everything_that_waits_for_labels_waits_for_the_one_resource() -> None:
    graph = _registered(_jetsons(MANY_NODES + 1))
    order = [registration.key for registration in graph.registrations]
    assert order.index(ALL) < order.index("Release:gpu-operator")
    for release in ("Release:gpu-operator", "Release:kai-scheduler"):
        assert ALL in graph.by_key[release].dependencies


def test_a_value_that_a_host_is_asked_for_is_unknown_to_a_preview_and_the_labels_wait_for_hosts() -> None:
    stack = changed(
        mixed_with_hosts(), "node_profiles.all", {"sharing": "kai", "nodes": [f"x86-{number}" for number in range(30)]}
    )
    graph = _registered(stack)
    labels = apart(graph.by_key[ALL].inputs)["jetson-1"]["metadata"]["labels"]
    assert labels["kai-anywhere.io/platform"] == "tegra"
    assert any(key.endswith("-configured") for key in graph.by_key[ALL].dependencies)


def test_many_frontends_are_one_resource_too() -> None:
    nodes = [f"cpu-{number}" for number in range(MANY_NODES + 1)]
    graph = _registered(changed(gvirtus_full(), "gvirtus.frontends.nodes", nodes))
    inputs = graph.by_key["ManyNodeLabels:gvirtus-frontend"].inputs
    assert sorted(inputs["nodes"]) == sorted(nodes)


def test_an_adopted_node_keeps_what_it_held_within_the_one_resource_and_no_hook_is_needed() -> None:
    registered = _registered(_jetsons(MANY_NODES + 1), adopted=ADOPTED).by_key[ALL]
    kept = {
        name: json.loads(node["annotations"][BEFORE])
        for name, node in registered.inputs["nodes"].items()
        if "annotations" in node
    }
    assert kept == {"jetson-2": ADOPTED["Node/jetson-2"]}
    assert not registered.retained


def test_right_before_each_object_is_made_its_stack_is_asked_once_more() -> None:
    objects = [registration for registration in _registered(jetson()).registrations if "kind" in registration.inputs]
    assert {item.type.rpartition(":")[2] for item in objects} >= {"Namespace", "NodePatch", "Queue"}
    assert {item.hooks for item in objects} == {("take nothing of another stack's for kai-anywhere",)}


def test_the_state_tells_the_labels_and_what_was_adopted_of_the_one_resource() -> None:
    inputs = _registered(_jetsons(MANY_NODES + 1), adopted=ADOPTED).by_key[ALL].inputs
    former = {"nodes": apart(inputs)}
    assert DeployedState.of([(MANY, former)]) == DeployedState.of([(MANY, inputs)]), "as earlier versions kept it"
    state = DeployedState.of([(MANY, inputs)])
    assert state.deployed
    assert state.labels == node_labels(parse(_jetsons(MANY_NODES + 1)))
    assert state.adopted == ADOPTED
    assert "Node/jetson-1" in state.objects


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("plugins: {providers: [{name: kai-anywhere, path: package}]}", True),
        ("plugins: {providers: [{name: kubernetes, path: x}]}", False),
        ("plugins: {languages: []}", False),
        ("plugins: ", False),
        ("- 1", False),
        ("{", False),
        (None, False),
    ],
)
def test_a_project_that_names_the_provider_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, named: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if content is not None:
        (tmp_path / "Pulumi.yaml").write_text(f"name: x\n{content}\n", encoding="utf-8")
    assert is_found(tmp_path) is named


def test_the_provider_is_known_on_path_and_this_project_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert is_found(ROOT)
    assert not is_found(tmp_path)
    monkeypatch.setenv("PATH", str(ROOT / "package"))
    assert is_found(tmp_path)
