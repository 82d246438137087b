"""Node Feature Discovery: labels by rules, and only its own are taken back."""

import pytest

from manifests.gvirtus.frontends import roles_rule
from simulator.nodes import NodeKind
from simulator.operands import nfd
from simulator.operands.world import (
    Decision,
    Merge,
    Object,
    Ref,
    World,
)
from testbed.stacks import changed, gvirtus, parse
from tests.unit.simulator.operands.objects import deployment, node, rule

PCI = "feature.node.kubernetes.io/pci-10de.present"
MASTER = deployment("gpu-operator-node-feature-discovery-master")


def test_a_rule_labels_the_node_it_names_and_no_other() -> None:
    world = World(
        nodes=(node(NodeKind.JETSON), node(NodeKind.JETSON, "other")),
        deployments=(MASTER,),
        node_feature_rules=(rule(),),
    )
    patch = {"metadata": {"labels": {PCI: "true"}, "annotations": {nfd.LABELS_ANNOTATION: PCI}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_labelled_node_needs_no_change() -> None:
    labelled = node(NodeKind.JETSON, **{PCI: "true"})
    labelled["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = PCI
    world = World(nodes=(labelled,), deployments=(MASTER,), node_feature_rules=(rule(),))
    assert nfd.decide(world) == Decision()


@pytest.mark.parametrize(
    ("deployments", "rules", "taken_back"),
    [
        pytest.param((MASTER,), (), True, id="the rule is gone"),
        pytest.param((), (rule(),), True, id="NFD is uninstalled"),
        pytest.param(({**MASTER, "status": {}},), (), False, id="the master is not available"),
    ],
)
def test_nfd_takes_back_only_its_own_labels(
    deployments: tuple[Object, ...], rules: tuple[Object, ...], taken_back: bool
) -> None:
    labelled = node(NodeKind.JETSON, **{PCI: "true", "mine": "too"})
    labelled["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = PCI
    decision = nfd.decide(World(nodes=(labelled,), deployments=deployments, node_feature_rules=rules))
    patch = {"metadata": {"labels": {PCI: None}, "annotations": {nfd.LABELS_ANNOTATION: None}}}
    assert decision.changes == ((Merge(Ref("v1", "Node", "n"), patch),) if taken_back else ())


@pytest.mark.parametrize(
    "unsupported",
    [
        rule(feature="cpu.cpuid"),
        rule(op="Gt"),
        rule(op="InRegexp", name=r"\pL+"),
        rule(labelsTemplate="x"),
        rule(extendedResources={}),
    ],
)
def test_a_rule_that_is_not_understood_is_refused_aloud(unsupported: Object) -> None:
    world = World(nodes=(node(NodeKind.JETSON),), deployments=(MASTER,), node_feature_rules=(unsupported,))
    decision = nfd.decide(world)
    assert decision.changes == ()
    assert "NodeFeatureRule rules, rule 'r' is ignored" in decision.complaints[0]


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        (NodeKind.JETSON, "gvirtus.io/backend.allowed"),
        (NodeKind.X86, "gvirtus.io/backend.allowed"),
        (NodeKind.SPARK, "gvirtus.io/backend.allowed"),
        (NodeKind.CPU, "gvirtus.io/frontend.allowed"),
    ],
)
def test_the_roles_of_remote_gpus_follow_what_the_machine_has(kind: NodeKind, role: str) -> None:
    settings = parse(changed(gvirtus(), "gvirtus.frontends.nodes", ["n"])).gvirtus
    assert settings is not None
    world = World(nodes=(node(kind),), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    patch = {"metadata": {"labels": {role: "true"}, "annotations": {nfd.LABELS_ANNOTATION: role}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_node_that_gets_a_gpu_is_no_frontend_any_more() -> None:
    settings = parse(changed(gvirtus(), "gvirtus.frontends.nodes", ["n"])).gvirtus
    assert settings is not None
    front, back = "gvirtus.io/frontend.allowed", "gvirtus.io/backend.allowed"
    now = node(NodeKind.X86, **{front: "true"})
    now["metadata"]["annotations"][nfd.LABELS_ANNOTATION] = front
    world = World(nodes=(now,), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    patch = {"metadata": {"labels": {front: None, back: "true"}, "annotations": {nfd.LABELS_ANNOTATION: back}}}
    assert nfd.decide(world) == Decision((Merge(Ref("v1", "Node", "n"), patch),))


def test_a_machine_without_a_gpu_that_the_stack_does_not_name_has_no_role() -> None:
    settings = parse(gvirtus()).gvirtus
    assert settings is not None
    world = World(nodes=(node(NodeKind.CPU),), deployments=(MASTER,), node_feature_rules=(roles_rule(settings),))
    assert nfd.decide(world) == Decision()
