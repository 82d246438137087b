"""Labels of many nodes: what is asked of the API server, and what is left alone."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from cluster.access.client import Cluster
from cluster.labelling import read_labels, release_labels, set_labels
from manifests.objects import Manifest
from manifests.ownership import annotated
from tests.support.api_server import connected

MANAGER = "kai-anywhere/kai-anywhere/site/node-labels"
SIBLING = "kai-anywhere/kai-anywhere/site/node-labels-jetson-1"
MEMORY = "nvidia.com/gpu.memory"


def _ours(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {MEMORY: "28672"} | labels}}


def _live(name: str, labels: dict[str, str], *owners: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
    managed = [{"manager": owner, "operation": "Apply", "fieldsV1": fields} for owner in owners]
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels, "managedFields": managed}}


@dataclass
class _Server:
    """A cluster's nodes, and what was applied, as node, manager and body."""

    nodes: list[dict[str, Any]]
    refused: dict[str, str] = field(default_factory=dict)
    applied: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    lists: int = 0

    @property
    def client(self) -> Cluster:
        return connected(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            assert request.url.path == "/api/v1/nodes"
            assert "PartialObjectMetadataList" in request.headers["Accept"], "a node's status is never asked for"
            self.lists += 1
            return httpx2.Response(200, json={"items": self.nodes})
        name = request.url.path.removeprefix("/api/v1/nodes/")
        assert request.url.params["force"] == "true"
        if name in self.refused:
            return httpx2.Response(403, json={"kind": "Status", "message": self.refused[name]})
        self.applied.append((name, request.url.params["fieldManager"], json.loads(request.content)))
        return httpx2.Response(200, json={})


def test_a_node_is_labelled_under_its_identity_so_that_one_that_goes_is_not_made_again() -> None:
    server = _Server([_live("jetson-1", {})])
    done = set_labels(server.client, {"jetson-1": _ours("jetson-1")}, manager=MANAGER)
    assert done.nodes == {"jetson-1"}
    [(name, manager, body)] = server.applied
    assert (name, manager) == ("jetson-1", MANAGER)
    assert body["metadata"] == {"name": "jetson-1", "uid": "uid-of-jetson-1", "labels": {MEMORY: "28672"}}


def test_all_nodes_are_listed_once_and_a_node_that_is_not_there_is_named_and_not_made() -> None:
    server = _Server([_live("jetson-1", {}), _live("jetson-2", {})], refused={"jetson-2": "no right"})
    nodes = {name: _ours(name) for name in ("jetson-1", "jetson-2", "jetson-3")}
    done = set_labels(server.client, nodes, manager=MANAGER)
    assert server.lists == 1
    assert [name for name, _, _ in server.applied] == ["jetson-1"]
    assert done.problems == {"jetson-2": "no right", "jetson-3": "the cluster has no node of this name"}
    assert done.nodes == {"jetson-1"}


def test_a_node_that_another_stack_labelled_meanwhile_is_left_to_it() -> None:
    theirs = "kai-anywhere/kai-anywhere/other/node-labels"
    server = _Server(
        [
            _live("jetson-1", {MEMORY: "9"}, theirs),
            _live("jetson-2", {MEMORY: "28672"}, theirs),
            _live("jetson-3", {"rack": "3"}, theirs),
            _live("jetson-4", {MEMORY: "9"}, "kubectl"),
            _live("jetson-5", {MEMORY: "9"}, theirs, SIBLING),
        ]
    )
    # Whoever edited what is ours already: that is repaired.
    server.nodes.append(_live("jetson-6", {MEMORY: "9"}, theirs))
    server.nodes[-1]["metadata"]["managedFields"].append({"manager": MANAGER, "operation": "Apply", "fieldsV1": {}})
    names = [f"jetson-{number}" for number in range(1, 7)]
    done = set_labels(server.client, {name: _ours(name) for name in names}, manager=MANAGER)
    assert {name for name, _, _ in server.applied} == done.nodes == set(names[1:])
    [problem] = done.problems.values()
    assert "its label belongs to another stack of this program, 'kai-anywhere/other'" in problem
    assert "It was left as it is" in problem


def test_nothing_is_asked_for_no_nodes() -> None:
    server = _Server([])
    set_labels(server.client, {}, manager=MANAGER)
    release_labels(server.client, {}, manager=MANAGER)
    assert (server.lists, server.applied) == (0, [])


def test_a_label_is_read_as_it_is_now_and_one_that_is_gone_or_not_ours_is_left_out() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "1", "example.com/room": "lab"})])
    nodes = {"jetson-1": _ours("jetson-1", other="x"), "jetson-2": _ours("jetson-2")}
    live = read_labels(server.client, nodes)
    assert {name: node["metadata"]["labels"] for name, node in live.items()} == {"jetson-1": {MEMORY: "1"}}
    assert server.applied == []


def test_a_release_names_no_label_so_that_the_api_server_keeps_what_others_own_too() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "28672"}, MANAGER, "kubectl")])
    assert not release_labels(server.client, {"jetson-1": _ours("jetson-1")}, manager=MANAGER).problems
    [(name, manager, body)] = server.applied
    assert (name, manager) == ("jetson-1", MANAGER)
    assert body["metadata"] == {"name": "jetson-1", "uid": "uid-of-jetson-1"}


def test_a_node_that_is_gone_or_not_ours_any_more_is_left_alone_at_a_release() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "28672"}, "kubectl")])
    nodes = {"jetson-1": _ours("jetson-1"), "jetson-2": _ours("jetson-2")}
    assert not release_labels(server.client, nodes, manager=MANAGER).problems
    assert server.applied == []


def _adopted() -> Manifest:
    return annotated(_ours("jetson-1"), {"metadata": {"labels": {MEMORY: "4000"}}})


def test_an_adopted_value_comes_back_before_ours_goes() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "28672"}, MANAGER)])
    release_labels(server.client, {"jetson-1": _adopted()}, manager=MANAGER)
    assert [(manager, body["metadata"].get("labels")) for _, manager, body in server.applied] == [
        (f"given-back/{MANAGER}", {MEMORY: "4000"}),
        (MANAGER, None),
    ]


def test_an_adopted_value_that_somebody_changed_since_stays_his() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "9"}, MANAGER)])
    release_labels(server.client, {"jetson-1": _adopted()}, manager=MANAGER)
    assert [manager for _, manager, _ in server.applied] == [MANAGER]


def test_an_adopted_value_does_not_come_back_over_one_that_somebody_set_before_a_refresh() -> None:
    adopted = annotated(_ours("jetson-1"), {"metadata": {"labels": {MEMORY: "4000"}}})
    live = _live("jetson-1", {MEMORY: "28672"}, "kubectl-label")
    live["metadata"]["managedFields"].append({"manager": MANAGER, "operation": "Apply", "fieldsV1": {}})
    server = _Server([live])
    release_labels(server.client, {"jetson-1": adopted}, manager=MANAGER)
    assert [manager for _, manager, _ in server.applied] == [MANAGER]


def test_an_adopted_value_does_not_come_back_while_another_resource_of_the_stack_holds_the_label() -> None:
    server = _Server([_live("jetson-1", {MEMORY: "28672"}, MANAGER, SIBLING)])
    release_labels(server.client, {"jetson-1": _adopted()}, manager=MANAGER)
    assert [manager for _, manager, _ in server.applied] == [MANAGER]
    server = _Server([_live("jetson-1", {MEMORY: "28672"}, MANAGER, SIBLING.replace("/site/", "/other/"))])
    release_labels(server.client, {"jetson-1": _adopted()}, manager=MANAGER)
    assert len(server.applied) == 2, "another stack's is none of ours"
