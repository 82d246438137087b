"""Labels by which KAI knows a GPU, where somebody else writes them too, or tells them wrongly."""

from collections.abc import Mapping

import pytest

from cluster.access.answers.nodes import Node
from cluster.ownership.deployed_state import DeployedState
from cluster.ownership.giving_back import GIVEN_BACK
from cluster.preflight.findings import Finding
from cluster.preflight.first_contact import meet, planned_labels
from cluster.preflight.label_writers import judge_writers
from manifests.ownership import field_manager
from testbed.stacks import Json, changed, jetson, parse, spark, x86
from tests.support.hosts.settings import jetson_with_host

_STACK = "kai-anywhere/jetson"
_OURS = field_manager(_STACK, "node-labels-jetson-1")
_MEMORY, _COUNT = "nvidia.com/gpu.memory", "nvidia.com/gpu.count"


def _node(
    labels: Mapping[str, str], owners: Mapping[str, list[str]], name: str = "jetson-1", architecture: str = "arm64"
) -> dict[str, Node]:
    fields = [
        {"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{label}": {} for label in owned}}}}
        for manager, owned in owners.items()
    ]
    metadata = {"name": name, "labels": dict(labels), "managedFields": fields}
    status = {"nodeInfo": {"architecture": architecture}}
    return {name: Node.model_validate({"metadata": metadata, "status": status})}


def _findings(stack: Json, nodes: Mapping[str, Node]) -> list[Finding]:
    findings = list(judge_writers(nodes, planned_labels(parse(stack)), _STACK))
    assert not any(finding.fatal for finding in findings), "what the stack sets is still set"
    return findings


def test_the_saturated_memory_of_feature_discovery_is_named_with_its_writer_and_its_cause() -> None:
    [finding] = _findings(jetson(), _node({_MEMORY: "4095"}, {"nfd-master": [_MEMORY]}))
    assert "node 'jetson-1' has nvidia.com/gpu.memory=4095 by nfd-master" in finding.what
    assert "GPU Feature Discovery up to 0.20.1" in finding.what
    assert "nvidia.com/gpu.deploy.gpu-feature-discovery=false" in finding.remedy
    assert "kubectl get nodefeatures --all-namespaces | grep jetson-1" in finding.remedy
    assert not {"delete", "uninstall", "remove"} & set(finding.remedy.lower().split())


def test_a_jetson_that_no_stack_lists_is_told_so_too() -> None:
    findings = _findings(jetson(), _node({_MEMORY: "4095"}, {"nfd-master": [_MEMORY]}, "jetson-9"))
    assert [finding.what.partition(" has ")[0] for finding in findings] == ["node 'jetson-9'"]


@pytest.mark.parametrize("stack", [jetson(), x86()])
def test_a_graphics_card_of_4095_mib_is_believed(stack: Json) -> None:
    assert _findings(stack, _node({_MEMORY: "4095"}, {"nfd-master": [_MEMORY]}, "gpu-9", "amd64")) == []


@pytest.mark.parametrize("value", ["4094", "4096", "122880"])
def test_another_number_is_nobodys_saturated_answer(value: str) -> None:
    findings = _findings(jetson(), _node({_MEMORY: value}, {"nfd-master": [_MEMORY]}))
    assert not any("4095" in finding.what for finding in findings)


def test_4095_is_right_where_the_stack_says_it() -> None:
    said = changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 4095)
    assert _findings(said, _node({_MEMORY: "4095"}, {_OURS: [_MEMORY]})) == []
    measured = _node({_MEMORY: "4095"}, {_OURS: [_MEMORY]})
    assert _findings(jetson_with_host(), measured) == []


@pytest.mark.parametrize("value", ["30000", "122880"])
def test_a_second_writer_is_named_whether_or_not_the_values_agree(value: str) -> None:
    labels = {_MEMORY: value, _COUNT: "1"}
    [finding] = _findings(jetson(), _node(labels, {_OURS: [_MEMORY], "nfd-master": [_COUNT], "labeller": [_MEMORY]}))
    assert f"nvidia.com/gpu.count ('1') is written by nfd-master; nvidia.com/gpu.memory ('{value}') is written by " in (
        finding.what
    )
    assert "by labeller too, and whoever writes last wins" in finding.what
    assert _OURS not in finding.what
    assert "leave these labels of this node alone" in finding.remedy


@pytest.mark.parametrize(
    "manager",
    [_OURS, f"{GIVEN_BACK}{_OURS}", "kubectl-label", "kubectl-edit", "pulumi-kubernetes-1234", "other"],
)
def test_only_who_writes_again_counts_and_only_for_labels_that_tell_of_a_gpu(manager: str) -> None:
    owned = ["kai-anywhere.io/platform"] if manager == "other" else [_MEMORY, _COUNT]
    assert _findings(jetson(), _node({_MEMORY: "122880", _COUNT: "1"}, {manager: owned})) == []


def test_another_stack_is_the_business_of_first_contact() -> None:
    theirs = field_manager("team/edge", "node-labels-jetson-1")
    assert _findings(jetson(), _node({_MEMORY: "122880"}, {theirs: [_MEMORY]})) == []


def test_labels_that_a_stack_leaves_to_feature_discovery_are_its_own() -> None:
    labels = {_MEMORY: "46068", _COUNT: "1"}
    assert _findings(x86(), _node(labels, {"nfd-master": [*labels]}, "gpu-1", "amd64")) == []
    assert _findings(spark(), _node({_COUNT: "1"}, {"nfd-master": [_COUNT]}, "spark-1")) == []


def test_a_deployed_stack_whose_label_was_written_over_is_told() -> None:
    state = DeployedState(deployed=True, labels={"jetson-1": {_MEMORY: "122880"}})
    nodes = _node({_MEMORY: "4095"}, {"nfd-master": [_MEMORY]})
    [finding] = meet(parse(jetson()), {}, nodes, state, _STACK).findings
    assert "=4095 by nfd-master" in finding.what
