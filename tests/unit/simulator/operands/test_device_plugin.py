"""The device plugins: which GPUs a node advertises."""

from typing import Any

import pytest

from manifests.gvirtus import frontends as gvirtus_frontends
from simulator.nodes import NodeKind
from simulator.operands import device_plugin
from simulator.operands.world import (
    Decision,
    Merge,
    Ref,
    World,
)
from testbed.stacks import gvirtus, parse
from tests.unit.simulator.operands.objects import node, policy


def test_the_generic_plugin_advertises_what_its_arguments_say() -> None:
    settings = parse(gvirtus())
    assert settings.gvirtus is not None
    assert settings.gvirtus.frontends is not None
    template = gvirtus_frontends.device_plugin(settings, settings.gvirtus.frontends)["spec"]["template"]
    pod = {
        "metadata": {"name": "p", "namespace": "ns", **template["metadata"]},
        "spec": template["spec"] | {"nodeName": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    fresh = node(NodeKind.CPU)
    four = {"status": {key: {device_plugin.RESOURCE: "4"} for key in ("capacity", "allocatable")}}
    decision = device_plugin.decide(World(nodes=(fresh,), pods=(pod,)))
    assert decision == Decision((Merge(Ref("v1", "Node", "n"), four, status=True),))
    assert device_plugin.decide(World(nodes=(fresh,), pods=({**pod, "status": {}},))) == Decision()
    container = pod["spec"]["containers"][0] | {"args": ["--domain", "squat.ai", "--device", '{"name":"gpu"}']}
    other = {**pod, "spec": pod["spec"] | {"containers": [container]}}
    assert device_plugin.decide(World(nodes=(fresh,), pods=(other,))) == Decision()


def plugin_pod(**status: object) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"app": device_plugin.PLUGIN}},
        "spec": {"nodeName": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], **status},
    }


def quantity(gpus: int) -> Decision:
    status = {"status": {key: {device_plugin.RESOURCE: str(gpus)} for key in ("capacity", "allocatable")}}
    return Decision((Merge(Ref("v1", "Node", "n"), status, status=True),))


def sliced(profile: str | None, *, default: str = "", text: str = "") -> World:
    labels = {device_plugin.PROFILE_LABEL: profile} if profile else {}
    text = text or "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    return World(
        nodes=(node(NodeKind.X86, **labels),),
        pods=(plugin_pod(),),
        cluster_policies=(policy(devicePlugin={"config": {"name": "plugin", "default": default}}),),
        config_maps=({"metadata": {"name": "plugin", "namespace": "ns"}, "data": {"sliced": text}},),
    )


def test_gpus_are_advertised_while_the_plugin_runs() -> None:
    fresh = node(NodeKind.X86)
    assert device_plugin.decide(World(nodes=(fresh,))) == Decision()
    assert device_plugin.decide(World(nodes=(fresh,), pods=(plugin_pod(),))) == quantity(2)
    advertising = {**fresh, "status": {"allocatable": {device_plugin.RESOURCE: "2"}}}
    assert device_plugin.decide(World(nodes=(advertising,), pods=(plugin_pod(),))) == Decision()
    assert device_plugin.decide(World(nodes=(advertising,))) == quantity(0)
    as_the_api_server_writes_it = {**fresh, "status": {"allocatable": {device_plugin.RESOURCE: "2k"}}}
    assert device_plugin.decide(World(nodes=(as_the_api_server_writes_it,))) == quantity(0)
    assert device_plugin.decide(World(nodes=(advertising,), pods=(plugin_pod(conditions=[]),))) == quantity(0)


def test_a_node_without_gpus_advertises_none() -> None:
    assert device_plugin.decide(World(nodes=(node(NodeKind.CPU),), pods=(plugin_pod(),))) == Decision()


def test_the_nodes_profile_decides_over_the_default() -> None:
    assert device_plugin.decide(sliced("sliced")) == quantity(8)
    assert device_plugin.decide(sliced(None, default="sliced")) == quantity(8)
    assert device_plugin.decide(sliced(None)) == quantity(2)
    assert device_plugin.decide(sliced("sliced", text="version: v1")) == quantity(2)


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        (sliced("unknown"), "specified config unknown does not exist in ConfigMap ns/plugin"),
        (sliced("sliced", text="version: v2"), "config sliced can't be read"),
        (sliced("sliced", text="{"), "config sliced can't be read"),
    ],
)
def test_a_plugin_with_a_wrong_config_advertises_nothing_and_says_why(world: World, reason: str) -> None:
    decision = device_plugin.decide(world)
    assert decision.changes == ()
    assert "the device plugin on n fails" in decision.complaints[0]
    assert reason in decision.complaints[0]
