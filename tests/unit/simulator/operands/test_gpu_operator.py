"""The GPU Operator: labels of nodes, operands and runtime classes."""

from dataclasses import replace
from typing import Any

import pytest

from simulator.nodes import NodeKind
from simulator.operands import gpu_operator
from simulator.operands.world import (
    APPLIED_ANNOTATION,
    Apply,
    Decision,
    Delete,
    World,
    keep,
)
from tests.unit.simulator.operands.objects import applied, deployment, names, node, policy

PCI = "feature.node.kubernetes.io/pci-10de.present"


def test_gpu_nodes_get_the_operators_labels_in_one_change() -> None:
    changes = gpu_operator.label_changes({PCI: "true", "nvidia.com/gpu.deploy.dcgm": "false"})
    assert changes["nvidia.com/gpu.present"] == "true"
    assert changes["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert "nvidia.com/gpu.deploy.dcgm" not in changes, "a user's false is respected"
    assert "nvidia.com/gpu.deploy.mig-manager" not in changes, "only GPUs that can do MIG get the MIG manager"
    assert gpu_operator.label_changes({PCI: "true", **{k: v for k, v in changes.items() if v}}) == {
        "nvidia.com/gpu.deploy.dcgm": "true"
    }


def test_without_the_pci_label_present_is_reset_and_every_switch_removed() -> None:
    current = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "false", "other": "kept"}
    assert gpu_operator.label_changes(current) == {
        "nvidia.com/gpu.present": "false",
        "nvidia.com/gpu.deploy.device-plugin": None,
    }
    assert gpu_operator.label_changes({"nvidia.com/gpu.present": "false"}) == {}


def test_the_switch_for_all_operands_is_respected() -> None:
    current = {
        PCI: "true",
        "nvidia.com/gpu.present": "true",
        gpu_operator.ALL_OPERANDS: "false",
        "nvidia.com/gpu.deploy.dcgm": "true",
    }
    assert gpu_operator.label_changes(current) == {"nvidia.com/gpu.deploy.dcgm": None}


def gpu_world(spec: dict[str, Any]) -> World:
    gpu_node = node(NodeKind.X86, **{"nvidia.com/gpu.present": "true"})
    return World(nodes=(gpu_node,), deployments=(deployment("gpu-operator"),), cluster_policies=(policy(**spec),))


def test_enabled_operands_get_a_daemon_set_with_the_real_name() -> None:
    decision = gpu_operator.decide(gpu_world({"driver": {"enabled": False}, "dcgm": {"enabled": False}}))
    assert names(decision, Apply, "DaemonSet") == {
        "nvidia-container-toolkit-daemonset",
        "nvidia-device-plugin-daemonset",
        "nvidia-device-plugin-mps-control-daemon",
        "gpu-feature-discovery",
        "nvidia-dcgm-exporter",
        "nvidia-mig-manager",
        "nvidia-operator-validator",
    }
    assert names(decision, Apply, "Service") == {"gpu-operator", "nvidia-dcgm-exporter"}
    plugin = applied(decision, "nvidia-device-plugin-daemonset")["spec"]["template"]["spec"]
    assert plugin["runtimeClassName"] == "nvidia"
    assert plugin["nodeSelector"] == {"nvidia.com/gpu.deploy.device-plugin": "true"}
    mps = applied(decision, "nvidia-device-plugin-mps-control-daemon")["spec"]["template"]["spec"]
    assert mps["nodeSelector"] == plugin["nodeSelector"] | {"nvidia.com/mps.capable": "true"}
    toolkit = applied(decision, "nvidia-container-toolkit-daemonset")["spec"]["template"]["spec"]
    assert "runtimeClassName" not in toolkit, "the toolkit makes the class work, so it can't need it"


def test_the_runtime_class_has_the_name_of_the_policy_and_belongs_to_it() -> None:
    old = {"metadata": {"name": "nvidia", "ownerReferences": [{"uid": "policy-uid"}]}}
    foreign = {"metadata": {"name": "runc", "ownerReferences": []}}
    world = replace(gpu_world({"operator": {"runtimeClass": "other"}}), runtime_classes=(old, foreign))
    decision = gpu_operator.decide(world)
    made = applied(decision, "other")
    assert made["handler"] == "other"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "policy-uid"
    assert names(decision, Delete, "RuntimeClass") == {"nvidia"}


@pytest.mark.parametrize("cdi", [{}, {"enabled": True}], ids=["by default", "said"])
def test_with_cdi_there_are_two_more_runtime_classes(cdi: dict[str, bool]) -> None:
    decision = gpu_operator.decide(gpu_world({"cdi": cdi}))
    assert names(decision, Apply, "RuntimeClass") == {"nvidia", "nvidia-cdi", "nvidia-legacy"}
    assert applied(decision, "nvidia-legacy")["handler"] == "nvidia-legacy"
    assert applied(decision, "nvidia-cdi")["metadata"]["labels"] == {"app.kubernetes.io/component": "gpu-operator"}


def test_without_cdi_the_two_are_deleted_unless_they_are_somebody_elses() -> None:
    ours = {"metadata": {"name": "nvidia-cdi", "ownerReferences": [{"uid": "policy-uid"}]}}
    theirs = {"metadata": {"name": "nvidia-legacy"}}
    world = replace(gpu_world({"cdi": {"enabled": False}}), runtime_classes=(ours, theirs))
    decision = gpu_operator.decide(world)
    assert names(decision, Apply, "RuntimeClass") == {"nvidia"}
    assert names(decision, Delete, "RuntimeClass") == {"nvidia-cdi"}


def test_without_the_plugin_there_is_no_control_daemon_either() -> None:
    existing = {"metadata": {"name": "nvidia-device-plugin-mps-control-daemon", "namespace": "ns"}}
    world = replace(gpu_world({"devicePlugin": {"enabled": False}}), daemon_sets=(existing,))
    assert names(gpu_operator.decide(world), Delete, "DaemonSet") == {"nvidia-device-plugin-mps-control-daemon"}


def test_in_nri_mode_there_is_no_runtime_class() -> None:
    decision = gpu_operator.decide(gpu_world({"cdi": {"nriPluginEnabled": True}}))
    assert names(decision, Apply, "RuntimeClass") == set()
    assert "runtimeClassName" not in applied(decision, "gpu-feature-discovery")["spec"]["template"]["spec"]


def test_a_disabled_operand_is_deleted_with_its_service() -> None:
    existing = {"metadata": {"name": "nvidia-dcgm-exporter", "namespace": "ns"}}
    world = replace(gpu_world({"dcgmExporter": {"enabled": False}}), daemon_sets=(existing,), services=(existing,))
    decision = gpu_operator.decide(world)
    assert names(decision, Delete, "DaemonSet") == names(decision, Delete, "Service") == {"nvidia-dcgm-exporter"}


def test_without_a_gpu_node_no_daemon_set_is_created() -> None:
    world = World(nodes=(node(NodeKind.CPU),), deployments=(deployment("gpu-operator"),), cluster_policies=(policy(),))
    decision = gpu_operator.decide(world)
    assert names(decision, Apply, "DaemonSet") == set()
    assert "nvidia" in names(decision, Apply, "RuntimeClass")


@pytest.mark.parametrize(
    "world",
    [
        World(cluster_policies=(policy(),)),
        World(deployments=({**deployment("gpu-operator"), "status": {}},), cluster_policies=(policy(),)),
        World(
            deployments=({**deployment("gpu-operator"), "spec": deployment("gpu-operator")["spec"] | {"replicas": 0}},),
            cluster_policies=(policy(),),
        ),
        World(deployments=(deployment("gpu-operator"),)),
    ],
    ids=["no operator", "operator not available", "operator scaled to none", "no policy"],
)
def test_the_gpu_operator_acts_only_when_it_runs_and_has_a_policy(world: World) -> None:
    assert gpu_operator.decide(world) == Decision()


def test_what_was_applied_is_not_applied_again() -> None:
    made = {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}, "spec": {"a": 1}}
    [change] = keep(made, ())
    assert keep(made, (change.manifest,)) == ()
    assert keep({**made, "spec": {"a": 2}}, (change.manifest,))
    assert change.manifest["metadata"]["annotations"][APPLIED_ANNOTATION]
