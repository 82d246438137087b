"""Labels of many nodes as one resource, on the real engine and a real API server.

One stack, which the tests below take through its life in their order.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from manifests.node_labels import GPU_MEMORY, PLATFORM
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed, jetson
from tests.support.many_nodes import MANY, NODES, ONE, with_nodes

THEIRS = "example.com/room"
_SEEN = "example.com/seen"
"""Of a node whose changes were watched, at the end."""


@pytest.fixture(scope="module")
def cluster(reused_simulators: ReusedSimulators) -> Iterator[simulator.ControlPlane]:
    """A simulator with more Jetsons than are a resource each."""
    with reused_simulators.lent() as control_plane:
        yield simulator.up(control_plane.folder, nodes=dict.fromkeys(NODES, simulator.NodeKind.JETSON))


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        yield connected


def _settings(cluster: simulator.ControlPlane, nodes: list[str]) -> Json:
    return stack_settings(with_nodes(jetson(), nodes), cluster)


def _adopting(cluster: simulator.ControlPlane, nodes: list[str]) -> Json:
    return changed(_settings(cluster, nodes), "cluster.adopt", ["Node/jetson-6"])


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, cluster: simulator.ControlPlane, engine_environment: dict[str, str]
) -> Stack:
    """A stack that names all Jetsons but the last; the first test deploys it."""
    return Stack(tmp_path_factory.mktemp("many") / "stack", _settings(cluster, NODES[:-1]), engine_environment)


def _types(stack: Stack) -> list[str]:
    return [resource["type"] for resource in stack.resources() if resource["type"] in {MANY, ONE}]


def _node(api: httpx2.Client, name: str) -> Any:  # noqa: ANN401 - JSON
    return api.get(f"/api/v1/nodes/{name}").json()["metadata"]


def _labels(api: httpx2.Client, name: str) -> dict[str, str]:
    labels: dict[str, str] = _node(api, name)["labels"]
    return labels


def _label(api: httpx2.Client, name: str, label: str, value: str | None, *, manager: str) -> None:
    answer = api.patch(
        f"/api/v1/nodes/{name}",
        params={"fieldManager": manager},
        headers={"Content-Type": "application/merge-patch+json"},
        content=json.dumps({"metadata": {"labels": {label: value}}}),
    )
    assert answer.status_code == httpx2.codes.OK


@contextmanager
def _watched(api: httpx2.Client, node: str, label: str) -> Iterator[list[str | None]]:
    """Every value that a label has meanwhile, as the API server tells of each change."""
    seen: list[str | None] = []
    params = {"watch": "true", "fieldSelector": f"metadata.name={node}"}
    params |= {"resourceVersion": _node(api, node)["resourceVersion"]}
    with api.stream("GET", "/api/v1/nodes", params=params, timeout=60) as changes:
        yield seen
        _label(api, node, _SEEN, "yes", manager="kubectl")
        for line in changes.iter_lines():
            labels = json.loads(line)["object"]["metadata"]["labels"]
            seen.append(labels.get(label))
            if _SEEN in labels:
                break
    _label(api, node, _SEEN, None, manager="kubectl")


def test_a_stack_grows_to_many_nodes_and_shrinks_again_and_no_label_goes_in_between(
    stack: Stack, tmp_path: Path, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    """The shape of before this release is that of few nodes: this is the upgrade too."""
    nodes = NODES[:-1]
    file = stack.folder / "Pulumi.yaml"
    with_provider = file.read_text(encoding="utf-8")
    before = tmp_path / "before"
    before.mkdir()
    (before / "__main__.py").write_text(f"import runpy\nrunpy.run_path({str(ROOT / '__main__.py')!r})\n")
    project = yaml.safe_load(with_provider) | {"main": str(before)}
    del project["plugins"]
    file.write_text(yaml.safe_dump(project), encoding="utf-8")
    stack.environment["PYTHONPATH"] = str(ROOT)
    assert f"Labels of {len(nodes)} nodes are a resource each" in stack.up().output
    assert _types(stack) == [ONE] * len(nodes)
    labels = {node: _labels(api, node) for node in nodes}
    file.write_text(with_provider, encoding="utf-8")
    del stack.environment["PYTHONPATH"]

    with _watched(api, "jetson-1", PLATFORM) as seen:
        stack.up()
        assert _types(stack) == [MANY]
        assert {node: _labels(api, node) for node in nodes} == labels
        assert set(stack.preview("--refresh").changes) == {"same"}
        stack.settings = _settings(cluster, nodes[:2])
        stack.up()
    assert set(seen) == {"tegra"}
    assert _types(stack) == [ONE] * 2
    assert {node: _labels(api, node) for node in nodes[:2]} == {node: labels[node] for node in nodes[:2]}
    assert not any(PLATFORM in _labels(api, node) for node in NODES[2:])
    managers = {managed_field["manager"] for managed_field in _node(api, "jetson-1")["managedFields"]}
    assert not any(manager.endswith("/node-labels") for manager in managers)


def test_a_label_that_somebody_gave_stops_up_until_it_is_adopted(
    stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    _label(api, "jetson-3", THEIRS, "lab", manager="kubectl")
    # Somebody else says the same of one node: that stops nobody.
    _label(api, "jetson-4", PLATFORM, "tegra", manager="kubectl")
    _label(api, "jetson-6", GPU_MEMORY, "4000", manager="kubectl")
    stack.settings = _settings(cluster, NODES[:-1])
    refused = stack.up(expect=None)
    assert refused.code != 0
    assert "Node/jetson-6" in refused.output
    assert _types(stack) == [ONE] * 2
    stack.settings = _adopting(cluster, NODES[:-1])
    stack.up()
    assert _types(stack) == [MANY]
    assert [_labels(api, node)[GPU_MEMORY] for node in NODES[:-1]] == [str(28672 + n) for n in range(len(NODES) - 1)]
    assert set(stack.up().changes) == {"same"}, "it knows again what it adopted"


def test_what_somebody_changed_is_found_and_repaired(stack: Stack, api: httpx2.Client) -> None:
    _label(api, "jetson-1", GPU_MEMORY, "1", manager="somebody")
    _label(api, "jetson-2", PLATFORM, None, manager="somebody")
    drift = stack.run("preview", "--refresh", "--diff", "--expect-no-changes", expect=None)
    assert drift.code != 0
    assert '"1"' in drift.output
    assert "jetson-1" in drift.output
    assert "jetson-2" in drift.output
    assert stack.up("--refresh").changed >= {"node-labels"}
    assert _labels(api, "jetson-1")[GPU_MEMORY] == "28672"
    assert _labels(api, "jetson-2")[PLATFORM] == "tegra"
    assert set(stack.preview("--refresh").changes) == {"same"}


def test_nodes_come_and_go_one_by_one(stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client) -> None:
    assert PLATFORM not in _labels(api, NODES[-1])
    stack.settings = _adopting(cluster, NODES[1:])
    assert stack.up().changed >= {"node-labels"}
    assert _types(stack) == [MANY]
    assert _labels(api, NODES[-1])[PLATFORM] == "tegra"
    assert {PLATFORM, GPU_MEMORY}.isdisjoint(_labels(api, NODES[0]))


def test_a_plain_destroy_gives_back_what_was_adopted_and_leaves_what_others_say(
    stack: Stack, api: httpx2.Client
) -> None:
    stack.destroy()
    kept = {"jetson-4": {PLATFORM}, "jetson-6": {GPU_MEMORY}}
    for node in NODES:
        assert {PLATFORM, GPU_MEMORY} & _labels(api, node).keys() == kept.get(node, set()), node
    assert _labels(api, "jetson-6")[GPU_MEMORY] == "4000"
    assert _labels(api, "jetson-3")[THEIRS] == "lab"
