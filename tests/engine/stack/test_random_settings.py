"""Random settings on the real engine: they preview, come up, need nothing a second time, become others, leave nothing.

A few; thousands are asked about on the recorded graph (tests/properties). Which ones, the code decides, from whose
constants Hypothesis draws too: a change of any module may bring others. With `RANDOM_SEED=7` they are others again.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import simulator
from cluster.preflight.first_contact import planned_objects
from operations.policy_check import PACK
from operations.policy_check.configuration import configured
from policy.stack_platform import stack_facts
from simulator.operands.gpu_operator import DEPLOY, PRESENT
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.simulated import stack_settings
from testbed.stacks import Json, parse
from testbed.waiting import eventually
from tests.properties.runs import drawn
from tests.properties.stacks import fitting, said

_SEED = int(os.environ["RANDOM_SEED"]) if "RANDOM_SEED" in os.environ else None
_KINDS = ("tegra", "x86")
"""The platform of each stack; each has two kinds of settings, one after the other."""
_DRAWN = 100
"""Random stacks among which the few are those that say most."""

_NODES = {"jetson-2": simulator.NodeKind.JETSON, "spark-1": simulator.NodeKind.SPARK}
"""Beside a simulator's usual ones."""
_LARGEST_MIB = 100_000
"""Less than a simulated Jetson and a simulated Spark have."""
_THEIRS = "kai-anywhere-tests"
"""Who has set what the stacks find there."""
_MEMORY = "nvidia.com/gpu.memory"
_NAMESPACED = ("kai", "gpu_operator", "admission", "gvirtus", "monitoring")
"""Parts with a namespace of their own. A release never moves to another one, and of others not each may go to each."""
_NOT_HERE = {
    "cluster": ("kubernetes_version", "mutating_policies", "context"),
    "reservation": ("carrier",),
    "gvirtus": ("carrier",),
    "admission": ("image",),
    "kai": ("gpu_sharing_mode",),
    "gpu_operator": ("install",),
    "monitoring": ("service_monitor", "service_monitor_labels"),
}
"""What the simulator has not: another API server, servers that run in pods, drivers for nv_fractions on every node, and
what others would have installed."""


def _on_the_simulator(stack: Json, cluster: simulator.ControlPlane) -> Json:
    """The stack for the simulator's nodes, without machines behind SSH, and with leave to change what is there."""
    # What follows an install is for a cluster where each GPU node is named (tests/engine/stack/test_verification.py).
    stack = {key: value for key, value in stack.items() if key not in {"hosts", "installs", "validation"}}
    for section, keys in _NOT_HERE.items():
        if stack.get(section):
            stack[section] = {key: value for key, value in stack[section].items() if key not in keys}
    if exporter := (stack.get("gpu_operator") or {}).get("dcgm_exporter"):
        exporter.pop("service_monitor", None)
    platform = stack["platform"]
    places = {"tegra_nodes": ("jetson-1", "jetson-2"), "unified_memory_nodes": ("spark-1",)}
    for section, nodes in places.items():
        if declared := platform.get(section):
            platform[section] = dict(zip(nodes, map(_bounded, declared.values()), strict=False))
    if profiles := stack.get("node_profiles"):
        name = min(profiles)
        stack["node_profiles"] = {name: profiles[name] | {"nodes": ["x86-1"]}}
    if gvirtus := stack.get("gvirtus"):
        # The node has two GPUs, of which each backend holds one.
        here = {"node": "x86-1", "node_selector": None, "gpu_resource": "nvidia.com/gpu", "cpu": "1", "memory": "1Gi"}
        two = sorted(gvirtus["backends"].items())[:2]
        gvirtus["backends"] = {name: backend | here for name, backend in two}
        gvirtus["timeout_seconds"] = 300
        if gvirtus.get("frontends"):
            gvirtus["frontends"] = gvirtus["frontends"] | {"nodes": ["cpu-1"]}
    return stack_settings(_adopting(fitting(stack), _adopted_nodes(stack)), cluster)


def _adopting(stack: Json, nodes: list[str]) -> Json:
    adopted = [f"Namespace/{_operators_namespace(stack)}", *(f"Node/{node}" for node in nodes)]
    return stack | {"cluster": stack["cluster"] | {"adopt": adopted}}


def _in_the_place_of(first: Json, second: Json) -> Json:
    """What a stack may become that has other settings already."""
    stack = dict(second)
    for part in _NAMESPACED:
        namespace = {key: text for key, text in (first.get(part) or {}).items() if key == "namespace"}
        if stack.get(part) or (namespace and part != "gvirtus"):
            stack[part] = {
                key: value for key, value in (stack.get(part) or {}).items() if key != "namespace"
            } | namespace
    return _adopting(stack, [node for node in _adopted_nodes(first) if node in _nodes_with_memory(stack)])


def _bounded(declared: Json) -> Json:
    return declared | {"gpu_memory_mib": min(declared.get("gpu_memory_mib") or _LARGEST_MIB, _LARGEST_MIB)}


def _adopted_nodes(stack: Json) -> list[str]:
    """One to which the stack says how much memory its GPU has, where there is one."""
    return _nodes_with_memory(stack)[:1]


def _nodes_with_memory(stack: Json) -> list[str]:
    platform = stack["platform"]
    return [*platform.get("tegra_nodes", {}), *platform.get("unified_memory_nodes", {})]


def _operators_namespace(stack: Json) -> str:
    return str((stack.get("gpu_operator") or {}).get("namespace") or "gpu-operator")


@pytest.fixture(scope="module")
def cluster(cluster: simulator.ControlPlane) -> simulator.ControlPlane:
    """The module's simulator, with a node of each kind that random stacks name."""
    return simulator.up(cluster.folder, nodes=_NODES)


@pytest.fixture(scope="module")
def api(api: httpx2.Client, cluster: simulator.ControlPlane) -> httpx2.Client:
    """Its API server, once the cluster's own controllers have said of each node what they say."""
    assert cluster.server
    theirs = {"beta.kubernetes.io/arch", "node.alpha.kubernetes.io/ttl"}
    eventually(
        lambda: all(
            node["metadata"]["labels"].keys() | node["metadata"]["annotations"].keys() >= theirs
            for node in _items(api, "/api/v1/nodes").values()
        )
    )
    return api


@pytest.fixture(scope="module")
def random_stacks(cluster: simulator.ControlPlane) -> dict[str, list[Json]]:
    """For each kind of platform in turn, twice, the stack that says most of what no stack before it has said."""
    candidates = [_on_the_simulator(stack, cluster) for stack in drawn(_DRAWN, _SEED)]
    chosen: dict[str, list[Json]] = {kind: [] for kind in _KINDS}
    said_before: set[tuple[str, str]] = set()
    for kind in _KINDS * 2:
        best = max(
            (candidate for candidate in candidates if _is_of(candidate, kind)),
            key=lambda candidate: len(_fields(candidate) - said_before),
        )
        chosen[kind].append(best)
        said_before |= _fields(best)
    return chosen


def _is_of(stack: Json, kind: str) -> bool:
    """Whether it is of that platform, and says nothing that the policy pack grants to nobody."""
    return stack["platform"]["kind"] == kind and stack_facts(json.dumps(stack), {}).problem is None


def _fields(stack: Json) -> set[tuple[str, str]]:
    return {(model, name) for model, name, _ in said(parse(stack))}


@pytest.fixture(scope="module", params=_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The platform."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def settings(kind: str, random_stacks: dict[str, list[Json]]) -> Json:
    """What the stack says first."""
    return random_stacks[kind][0]


@pytest.fixture(scope="module")
def others(kind: str, settings: Json, random_stacks: dict[str, list[Json]]) -> Json:
    """What it says then."""
    return _in_the_place_of(settings, random_stacks[kind][1])


@pytest.fixture(scope="module")
def before(api: httpx2.Client, settings: Json) -> Iterator[dict[str, Any]]:
    """The cluster before the stack, where somebody has a namespace and a label that the stack is to change."""
    namespace = _operators_namespace(settings)
    made = {"metadata": {"name": namespace, "labels": {"team": "robots"}, "annotations": {"example.com/why": "ours"}}}
    api.post("/api/v1/namespaces", params={"fieldManager": _THEIRS}, json=made).raise_for_status()
    api.post(f"/api/v1/namespaces/{namespace}/secrets", json={"metadata": {"name": "site"}}).raise_for_status()
    for node in _adopted_nodes(settings):
        _label(api, node, "30000")
    yield _everything(api)
    for node in _adopted_nodes(settings):
        _label(api, node, None)
    api.delete(f"/api/v1/namespaces/{namespace}")
    eventually(lambda: api.get(f"/api/v1/namespaces/{namespace}").status_code == httpx2.codes.NOT_FOUND)


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    engine_environment: dict[str, str],
    settings: Json,
    before: dict[str, Any],
) -> Iterator[Stack]:
    """The stack, which the tests below take through its life in their order."""
    assert before
    made = Stack(tmp_path_factory.mktemp("random") / "stack", settings, engine_environment)
    yield made
    # What is left when a test failed; the next stack comes to the same cluster.
    if made.resources():
        made.run("destroy", *_WITH_THE_PROGRAM, expect=None)


_OF_TEGRA = {"Namespace kai-resource-reservation", "MutatingAdmissionPolicy kai-anywhere-reservation-overrides"}
"""What lets reservation pods have privilege."""
_WITH_THE_PROGRAM = ("--yes", "--skip-preview", "--run-program")
"""How a stack is destroyed that has adopted something."""


def test_a_preview_of_random_settings_passes_the_policies_and_changes_nothing(
    stack: Stack, settings: Json, api: httpx2.Client, before: dict[str, Any]
) -> None:
    run = stack.preview(*_judged(stack, settings))
    assert run.changes["create"] > 15
    assert "kai-anywhere@v" in run.output
    assert "mandatory" not in run.output
    assert _everything(api) == before


def test_what_random_settings_say_comes_up_within_the_policies(stack: Stack, settings: Json) -> None:
    run = stack.up(*_judged(stack, settings))
    assert run.changes["create"] > 15
    assert "mandatory" not in run.output


def test_a_second_up_of_random_settings_changes_nothing(stack: Stack) -> None:
    assert set(stack.up().changes) == {"same"}


def test_random_settings_put_something_privileged_on_tegra_alone(
    stack: Stack, settings: Json, api: httpx2.Client
) -> None:
    assert stack.resources()
    _is_privileged_on_tegra_alone(settings, api)


def test_a_stack_becomes_what_other_random_settings_say(
    stack: Stack, settings: Json, others: Json, api: httpx2.Client
) -> None:
    stack.settings = others
    assert "mandatory" not in stack.up(*_judged(stack, others)).output
    # What was given back is remembered to the end of the run that does so, since it may be killed.
    assert stack.up().changed <= {"kai-anywhere-adopted"}
    _is_privileged_on_tegra_alone(others, api)
    left, desired = _planned(settings) - _planned(others), _planned(others)
    assert left
    assert desired
    eventually(lambda: not left & inventory(api), within_seconds=60)
    assert desired <= inventory(api)


def test_destroy_of_random_settings_leaves_nothing_and_gives_back_what_was_there(
    stack: Stack, api: httpx2.Client, before: dict[str, Any]
) -> None:
    stack.run("destroy", *_WITH_THE_PROGRAM)
    assert stack.resources() == []
    eventually(lambda: not _differing(before, _everything(api)), within_seconds=60)


def _is_privileged_on_tegra_alone(settings: Json, api: httpx2.Client) -> None:
    # The GPU Operator's operands and the frontends' device plugin are so by somebody else's design (docs/policy.md).
    privileged = _privileged(api) - {f"Namespace {_operators_namespace(settings)}", "Namespace gvirtus-frontends"}
    assert privileged <= _OF_TEGRA if settings["platform"]["kind"] == "tegra" else privileged == set()


def _planned(settings: Json) -> set[str]:
    """The stack's objects as an inventory names them."""
    metadata = [
        (planned_object["kind"], planned_object["metadata"])
        for planned_object in planned_objects(parse(settings)).values()
    ]
    return {f"{kind}/{of.get('namespace', '')}/{of['name']}" for kind, of in metadata}


def _judged(stack: Stack, settings: Json) -> tuple[str, ...]:
    configuration = configured(PACK, settings, stack.folder)
    return ("--policy-pack", str(PACK.executable), "--policy-pack-config", str(configuration))


def _label(api: httpx2.Client, node: str, memory: str | None) -> None:
    api.patch(
        f"/api/v1/nodes/{node}",
        params={"fieldManager": _THEIRS},
        headers={"Content-Type": "application/merge-patch+json"},
        json={"metadata": {"labels": {_MEMORY: memory}}},
    ).raise_for_status()


def _items(api: httpx2.Client, path: str) -> dict[str, Json]:
    """By name, after the namespace where there is one."""
    items = [(item["metadata"], item) for item in api.get(path).raise_for_status().json()["items"]]
    return {"/".join(filter(None, [of.get("namespace"), of["name"]])): item for of, item in items}


def _privileged(api: httpx2.Client) -> set[str]:
    """Who may be privileged, and what makes pods so."""
    enforced = "pod-security.kubernetes.io/enforce"
    namespaces = _items(api, "/api/v1/namespaces")
    fields = {
        f"Namespace {name}"
        for name, made in namespaces.items()
        if made["metadata"]["labels"].get(enforced) == "privileged"
    }
    policies = _items(api, "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies")
    fields |= {f"MutatingAdmissionPolicy {name}" for name, made in policies.items() if "privileged" in json.dumps(made)}
    for name, pod in _items(api, "/api/v1/pods").items():
        contexts = [container.get("securityContext") or {} for container in pod["spec"]["containers"]]
        if pod["spec"].get("hostNetwork") or any(context.get("privileged") for context in contexts):
            fields.add(f"Pod {name}")
    return fields


def _everything(api: httpx2.Client) -> dict[str, Any]:
    """What the cluster holds, and what it says of its nodes and namespaces.

    Without the labels that the GPU Operator writes itself: it leaves them on nodes when it is uninstalled
    (https://github.com/NVIDIA/gpu-operator/issues/1391). Its switches are `true` then; ours are `false`.
    """
    objects: dict[str, Any] = {name: True for name in inventory(api) if not name.startswith("Node/")}
    for kind, plural in (("Node", "nodes"), ("Namespace", "namespaces")):
        for name, item in _items(api, f"/api/v1/{plural}").items():
            labels = item["metadata"]["labels"].items()
            objects[f"labels of {kind} {name}"] = {
                key: text for key, text in labels if not _is_the_operators(key, text)
            }
            objects[f"annotations of {kind} {name}"] = item["metadata"].get("annotations", {})
    return objects


def _is_the_operators(label: str, value: str) -> bool:
    return label == PRESENT or (label.startswith(DEPLOY) and value == "true")


def _differing(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), after.get(name))
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }
