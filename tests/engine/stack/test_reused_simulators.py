"""One simulator for one module of tests after the other: nobody meets what was there before."""

from pathlib import Path

import httpx2

import simulator
from simulator import records
from simulator.layout import Layout
from testbed.engine import Stack
from testbed.inventory import connect, inventory
from testbed.reused import ReusedSimulators
from testbed.simulated import kill, stack_settings
from testbed.stacks import Json, jetson

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_REFUSES_EVERYTHING: Json = {
    "metadata": {"name": "nobody-answers"},
    "webhooks": [
        {
            "name": "nobody.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


def test_whoever_gets_it_next_finds_it_as_after_its_start(
    reused_simulators: ReusedSimulators, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    with reused_simulators.lent() as first, connect(first) as api:
        before, nodes = _definitions(api) | inventory(api), _nodes(api)
        Stack(tmp_path, stack_settings(jetson(), first), engine_environment).up()
        assert _definitions(api) != set()
        simulator.up(first.folder, nodes={"jetson-9": simulator.NodeKind.JETSON})
        held = {"metadata": {"name": "held", "finalizers": ["example.com/nobody"]}}
        api.post("/api/v1/namespaces/kube-system/configmaps", json=held).raise_for_status()
        api.delete("/api/v1/nodes/cpu-1").raise_for_status()
        relabelled = {"metadata": {"labels": {"team": "robots"}}}
        api.patch("/api/v1/namespaces/default", json=relabelled, headers=_MERGE).raise_for_status()
        registration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        api.post(registration, json=_REFUSES_EVERYTHING).raise_for_status()
    with reused_simulators.lent() as second, connect(second) as api:
        assert second == first
        assert _definitions(api) | inventory(api) == before
        assert _nodes(api) == nodes
        assert "team" not in api.get("/api/v1/namespaces/default").json()["metadata"]["labels"]
        assert {item["involvedObject"]["kind"] for item in api.get("/api/v1/events").json()["items"]} == {"Node"}
        Stack(tmp_path / "again", stack_settings(jetson(), second), engine_environment).up()


def test_one_whose_process_was_killed_is_not_given_to_anybody_again(reused_simulators: ReusedSimulators) -> None:
    with reused_simulators.lent() as first:
        before = records.read(Layout.of(first.folder).records)
        kill(first, "kwok")
    with reused_simulators.lent() as second, connect(second) as api:
        made = records.read(Layout.of(second.folder).records)
        assert _started(made).isdisjoint(_started(before))
        assert api.get("/api/v1/nodes").json()["items"]
        kill(second, "kwok")
        simulator.up(second.folder)
        assert len(_started(made) & _started(records.read(Layout.of(second.folder).records))) == len(_started(made)) - 1
    with reused_simulators.lent() as third:
        assert _started(records.read(Layout.of(third.folder).records)).isdisjoint(_started(made))


def test_whoever_needs_two_gets_another_one(reused_simulators: ReusedSimulators) -> None:
    with reused_simulators.lent() as first, reused_simulators.lent() as second:
        assert first.server != second.server
        assert second.folder != first.folder
    assert not Layout.of(second.folder).records.exists(), "one is kept"
    with reused_simulators.lent() as third:
        assert third == first


def _started(state: records.Records | None) -> set[tuple[int, str]]:
    assert state is not None
    return {(process.pid, process.started) for process in state.processes.values()}


def _definitions(api: httpx2.Client) -> set[str]:
    return {item["metadata"]["name"] for item in api.get(_DEFINITIONS).json()["items"]}


def _nodes(api: httpx2.Client) -> dict[str, Json]:
    """What nodes have that tests change: labels, taints, annotations and what can be taken of them."""
    return {
        node["metadata"]["name"]: {
            "labels": node["metadata"]["labels"],
            "annotations": node["metadata"]["annotations"],
            "spec": node["spec"],
            "allocatable": node["status"]["allocatable"],
        }
        for node in api.get("/api/v1/nodes").json()["items"]
    }
