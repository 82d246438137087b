"""What each host must be, and the document that its agent gets."""

import json

import pytest

from agents.host import desired
from manifests.hosts import HostPlatform, host_plans
from manifests.node_labels import GPU_MEMORY, node_labels
from testbed.stacks import Json, changed, parse, x86
from tests.support.golden import Golden
from tests.support.hosts.settings import full_host, jetson_with_host, mixed_with_hosts, ssh_host, x86_with_host


def test_the_documents_of_a_mixed_stack_are_the_reviewed_ones(golden: Golden) -> None:
    plans = host_plans(parse(mixed_with_hosts())) | {
        "everything-said": host_plans(parse(jetson_with_host(full_host())))["jetson-1"]
    }
    golden.check("hosts", {name: json.loads(plan.desired_text) for name, plan in plans.items()})


@pytest.mark.parametrize("stack", [mixed_with_hosts(), jetson_with_host(full_host()), x86_with_host()])
def test_the_agent_takes_every_document(stack: Json) -> None:
    for plan in host_plans(parse(stack)).values():
        assert desired.parse(plan.desired_text.encode()).platform == plan.platform.value


def test_what_a_host_must_be_follows_from_its_node() -> None:
    plans = host_plans(parse(mixed_with_hosts()))
    assert {node: plan.platform for node, plan in plans.items()} == {
        "gpu-1": HostPlatform.X86,
        "jetson-1": HostPlatform.TEGRA,
        "spark-1": HostPlatform.SPARK,
    }
    assert {node: plan.distribution for node, plan in plans.items()} == {
        "gpu-1": "k3s",
        "jetson-1": "k3s",
        "spark-1": "kubeadm",
    }


def test_a_document_is_one_line_and_holds_no_secret() -> None:
    text = host_plans(parse(jetson_with_host(full_host())))["jetson-1"].desired_text
    assert "\n" not in text
    assert "lab-" not in text
    assert "192.0.2.21" not in text


def test_what_does_not_change_the_host_does_not_change_its_document() -> None:
    before = host_plans(parse(jetson_with_host(ssh_host())))["jetson-1"].desired_text
    host = ssh_host(revision=7, sudo_password_secret="other", gpu_memory_reserve_mib=1)
    assert host_plans(parse(jetson_with_host(host)))["jetson-1"].desired_text == before
    mode = changed(jetson_with_host(ssh_host()), "hosts.jetson-1.toolkit", {"mode": "csv"})
    assert host_plans(parse(mode))["jetson-1"].desired_text != before


def test_a_stack_without_hosts_has_no_plans() -> None:
    assert host_plans(parse(x86())) == {}


def test_a_node_whose_host_is_asked_has_no_memory_label_of_its_own() -> None:
    labels = node_labels(parse(mixed_with_hosts()))
    assert GPU_MEMORY not in labels["spark-1"]
    assert labels["jetson-1"][GPU_MEMORY] == "122880"
