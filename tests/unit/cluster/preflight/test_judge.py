"""Preflight's judgement, a pure function: one finding for one thing that is wrong, none where nothing is."""

import dataclasses
import re
from typing import Any

import pytest
import yaml

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import HelmRevision, Namespace
from cluster.access.answers.server import Version
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.first_contact import meet
from cluster.preflight.installations import Installations
from cluster.preflight.run import ClusterFacts, judge
from config.cluster import Distribution
from testbed.stacks import (
    Json,
    changed,
    gvirtus,
    gvirtus_webhook,
    jetson,
    mixed,
    monitoring_full,
    never,
    operator_elsewhere,
    parse,
    spark,
    without,
    x86,
)
from tests.support.hosts.settings import jetson_with_host, ssh_host

_STACK = "kai-anywhere/jetson"
_NEVER_DEPLOYED = DeployedState()
_DEPLOYED = DeployedState(deployed=True, cluster_uid="ours", releases=frozenset({("kai-scheduler", "kai-scheduler")}))


def _node(
    name: str, labels: dict[str, str] | None = None, *, architecture: str = "arm64", memory_mib: int = 131072
) -> Node:
    return Node.model_validate(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "status": {"nodeInfo": {"architecture": architecture}, "capacity": {"memory": f"{memory_mib}Mi"}},
        }
    )


def _version(minor: str) -> Version:
    return Version(gitVersion=f"v1.{minor}.0", major="1", minor=minor)


def _namespace(name: str, labels: dict[str, str] | None = None) -> dict[str, Namespace]:
    shown = {"metadata": {"name": name, "uid": "u", "labels": labels or {}}}
    return {name: Namespace.model_validate(shown)}


def _revision(status: str) -> HelmRevision:
    return HelmRevision.model_validate({"metadata": {"name": "sh.helm.release.v1.x.v2", "labels": {"status": status}}})


_READY = ClusterFacts(
    server="https://127.0.0.1:6443",
    context="edge",
    uid="ours",
    version=_version("36"),
    nodes={"jetson-1": _node("jetson-1"), "gpu-1": _node("gpu-1", architecture="amd64")},
    namespaces={},
    runtime_class=False,
    mutating_policies=frozenset({"v1"}),
    revisions={},
)
"""A cluster that the Jetson stack can be installed on."""


def _findings(stack: Json, state: DeployedState = _NEVER_DEPLOYED, **facts: Any) -> list[Finding]:  # noqa: ANN401 - any fact
    settings, seen_facts = parse(stack), dataclasses.replace(_READY, **facts)
    return list(
        judge(settings, seen_facts, state, meet(settings, seen_facts.unknown, seen_facts.nodes, state, _STACK), _STACK)
    )


def _only(findings: list[Finding], *says: str, fatal: bool = True) -> None:
    [finding] = findings
    assert finding.fatal is fatal
    text = str(finding)
    assert text.startswith(f"  {'error' if fatal else 'warning'}: ")
    for part in says:
        assert part in text


@pytest.mark.parametrize("stack", [jetson(), x86(), never()])
@pytest.mark.parametrize("state", [_NEVER_DEPLOYED, _DEPLOYED])
def test_a_ready_cluster_has_no_finding(stack: Json, state: DeployedState) -> None:
    assert _findings(stack, state) == []


_FRONTEND = {"cpu-1": _node("cpu-1", architecture="amd64"), "x86-1": _node("x86-1", architecture="amd64")}


def test_a_cluster_is_ready_for_remote_gpus() -> None:
    assert _findings(gvirtus(), nodes=_READY.nodes | _FRONTEND) == []


@pytest.mark.parametrize("node", ["cpu-1", "x86-1"])
def test_a_node_of_remote_gpus_that_the_cluster_does_not_have_is_named(node: str) -> None:
    nodes = {name: node_facts for name, node_facts in (_READY.nodes | _FRONTEND).items() if name != node}
    _only(_findings(gvirtus(), nodes=nodes), f"the stack names the node '{node}', which the cluster does not have")


@pytest.mark.parametrize("label", ["nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"])
def test_a_frontend_with_a_gpu_of_its_own_is_refused(label: str) -> None:
    with_gpu = {"cpu-1": _node("cpu-1", {label: "true"}, architecture="amd64")}
    without_gpu = {"cpu-1": _node("cpu-1", {label: "false"}, architecture="amd64")}
    _only(
        _findings(gvirtus(), nodes=_READY.nodes | _FRONTEND | with_gpu),
        f"gvirtus.frontends.nodes has 'cpu-1', which has a GPU of its own ({label}=true)",
        "Remove the node from gvirtus.frontends.nodes",
    )
    assert _findings(gvirtus(), nodes=_READY.nodes | _FRONTEND | without_gpu) == []


def test_remote_gpus_need_mutating_policies() -> None:
    stack = changed(gvirtus(), "reservation.overrides", "never")
    findings = _findings(stack, nodes=_READY.nodes | _FRONTEND, mutating_policies=frozenset())
    ways_out = ("use gvirtus.carrier: webhook", "remove the section gvirtus")
    _only(findings, "gvirtus.carrier 'policy' can't work", *ways_out)
    assert _findings(never(), mutating_policies=frozenset()) == []


@pytest.mark.parametrize("minor", ["33", "36"])
def test_remote_gpus_by_the_webhook_need_no_mutating_policies(minor: str) -> None:
    nodes = _READY.nodes | _FRONTEND
    assert _findings(gvirtus_webhook(), nodes=nodes, version=_version(minor), mutating_policies=frozenset()) == []


def test_another_cluster_stops_at_once() -> None:
    _only(
        _findings(jetson(), DeployedState(deployed=True, cluster_uid="theirs"), version=_version("20"), nodes={}),
        "was deployed to the cluster theirs; the cluster at https://127.0.0.1:6443",
        "(context 'edge') is another one (ours)",
        "as after a board was flashed, forget it: docs/recovery.md",
        "Choose the right context",
        "pulumi stack init",
    )


def test_a_deployed_stack_without_a_remembered_cluster_is_judged_like_any() -> None:
    assert _findings(jetson(), DeployedState(deployed=True, cluster_uid=None)) == []


def test_a_cluster_too_old_for_the_guard_is_refused() -> None:
    stack = x86()
    _only(_findings(stack, version=_version("29")), "v1.29.0", "needs 1.30 or later", "Upgrade the cluster")
    assert _findings(stack, version=_version("30")) == []


def test_a_cluster_older_than_the_stack_says_is_refused() -> None:
    stack = changed(x86(), "cluster.kubernetes_version", "1.34")
    _only(
        _findings(stack, version=_version("33+")), "older than cluster.kubernetes_version 1.34", "correct the setting"
    )
    assert _findings(stack, version=_version("34+")) == []


def test_a_cluster_too_old_for_the_policy_is_refused() -> None:
    stack = without(jetson(), "cluster.kubernetes_version")
    _only(
        _findings(stack, version=_version("35"), mutating_policies=frozenset()),
        "reservation.carrier 'policy' can't work: the API server is v1.35.0, which serves "
        "MutatingAdmissionPolicy v1beta1 only where somebody switched it on",
        "use reservation.carrier: webhook",
        "reservation.overrides: never",
        "in /etc/rancher/k3s/config.yaml the list kube-apiserver-arg gets",
        "'feature-gates=MutatingAdmissionPolicy=true' and 'runtime-config=admissionregistration.k8s.io/v1beta1=true'",
    )
    _only(
        _findings(stack, version=_version("33"), mutating_policies=frozenset()),
        "the API server is v1.33.0, which is older than 1.34",
    )


@pytest.mark.parametrize("distribution", list(Distribution))
def test_where_v1beta1_can_be_switched_on_the_distribution_says_how(distribution: Distribution) -> None:
    stack = changed(without(jetson(), "cluster.kubernetes_version"), "cluster.distribution", distribution.value)
    _only(
        _findings(stack, version=_version("34"), mutating_policies=frozenset()),
        "To switch it on, on every server, in /",
        "feature-gates=MutatingAdmissionPolicy=true",
        "runtime-config=admissionregistration.k8s.io/v1beta1=true",
    )


def test_the_version_that_the_settings_say_must_be_the_one_that_is_served() -> None:
    stack = without(jetson(), "cluster.kubernetes_version")
    beta = changed(stack, "cluster.mutating_policies", "v1beta1")
    on_beta: dict[str, Any] = {"version": _version("35"), "mutating_policies": frozenset({"v1beta1"})}
    assert _findings(beta, **on_beta) == []
    _only(
        _findings(stack, **on_beta),
        "which serves MutatingAdmissionPolicy v1beta1 and not v1",
        "Set cluster.mutating_policies: v1beta1",
    )
    _only(
        _findings(beta, mutating_policies=frozenset({"v1"})),
        "which serves MutatingAdmissionPolicy v1 and not v1beta1",
        "Remove cluster.mutating_policies.",
    )
    # In between: 1.36 with the switches of before.
    both = frozenset({"v1", "v1beta1"})
    assert _findings(beta, mutating_policies=both) == _findings(stack, mutating_policies=both) == []


def test_a_new_cluster_with_the_policy_switched_off_is_refused_for_that_reason() -> None:
    _only(
        _findings(jetson(), mutating_policies=frozenset()), "does not serve MutatingAdmissionPolicy v1", "switched off"
    )


@pytest.mark.parametrize("stack", [x86(), never()])
def test_a_stack_without_overrides_needs_no_mutating_policy(stack: Json) -> None:
    assert _findings(stack, mutating_policies=frozenset()) == []


def test_a_node_that_is_not_there_is_named_with_the_near_one() -> None:
    stack = changed(without(jetson(), "platform.tegra_nodes.jetson-1"), "platform.tegra_nodes.jetson-11", _JETSON)
    _only(
        _findings(stack),
        "names the node 'jetson-11', which the cluster does not have. Did you mean 'jetson-1'?",
        "Nodes: gpu-1, jetson-1.",
    )


_JETSON = {"gpu_memory_mib": 30720}


def test_a_node_that_is_near_to_none_gets_no_guess() -> None:
    [finding] = _findings(jetson(), nodes={})
    assert "Did you mean" not in finding.what
    assert "Nodes: none." in finding.remedy


def test_a_fake_gpu_label_is_a_warning() -> None:
    fake = _node("gpu-1", {"run.ai/fake.gpu": "true"})
    _only(
        _findings(jetson(), nodes=_READY.nodes | {"gpu-1": fake}),
        "node 'gpu-1' has the label run.ai/fake.gpu=true",
        "kubectl label node gpu-1 run.ai/fake.gpu-",
        fatal=False,
    )
    real = _node("gpu-1", {"run.ai/fake.gpu": "false"})
    assert _findings(jetson(), nodes=_READY.nodes | {"gpu-1": real}) == []


def _with_runtimes(name: str, *runtimes: str) -> dict[str, Node]:
    status = {
        "nodeInfo": {"architecture": "arm64"},
        "runtimeHandlers": [{"name": runtime, "features": {"userNamespaces": True}} for runtime in ("", *runtimes)],
    }
    return {name: Node.model_validate({"metadata": {"name": name}, "status": status})}


def _with_containerd(name: str, runtime: str, labels: dict[str, str]) -> dict[str, Node]:
    status = {"nodeInfo": {"containerRuntimeVersion": runtime}}
    return {name: Node.model_validate({"metadata": {"name": name, "labels": labels}, "status": status})}


_GPU = {"nvidia.com/gpu.present": "true"}


def test_a_gpu_node_whose_containerd_is_older_than_cdi_is_a_warning() -> None:
    old = _with_containerd("gpu-1", "containerd://1.6.20~ds1", _GPU)
    _only(
        _findings(x86(), nodes=old),
        "node 'gpu-1' has containerd://1.6.20~ds1, and gpu_operator.cdi needs containerd 1.7 or later",
        "set gpu_operator.cdi: false",
        fatal=False,
    )
    _only(
        _findings(jetson(), nodes=_with_containerd("jetson-1", "containerd://1.6.8", {})),
        "needs containerd 1.7",
        fatal=False,
    )
    assert _findings(changed(x86(), "gpu_operator.cdi", value=False), nodes=old) == []
    for fine in (
        "containerd://1.7.0-k3s1",
        "containerd://2.1.4",
        "containerd://10.0.1",
        "cri-o://1.6.2",
        "docker://1.6.0",
        "",
    ):
        assert _findings(x86(), nodes=_with_containerd("gpu-1", fine, _GPU)) == []
    assert _findings(x86(), nodes=_with_containerd("cpu-1", "containerd://1.6.20", {})) == []


def test_a_jetson_that_nobody_prepares_is_warned_of_before_anybody_waits_for_its_gpu() -> None:
    bare = _READY.nodes | _with_runtimes("jetson-1", "runc", "runc-fp")
    [finding] = _findings(jetson(), nodes=bare)
    assert "node 'jetson-1' has no container runtime 'nvidia' (status.runtimeHandlers: runc, runc-fp)" in finding.what
    assert "hosts (docs/hosts.md). Prepared by hand" in finding.remedy
    assert not finding.fatal
    assert _findings(jetson_with_host(), nodes=bare) == [], "this run prepares it"
    assert _findings(changed(jetson(), "platform.container_toolkit", "operator"), nodes=bare) == []
    assert _findings(jetson(), nodes=_READY.nodes | _with_runtimes("jetson-1", "nvidia", "runc")) == []
    assert _findings(jetson(), nodes=_READY.nodes | _with_runtimes("gpu-1", "runc")) == [], (
        "the GPU Operator prepares it"
    )


def _tainted(name: str, *taints: str, gpus: int = 0, labels: Json | None = None) -> dict[str, Node]:
    said = [dict(zip(("key", "value", "effect"), re.split("[=:]", taint), strict=True)) for taint in taints]
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "nodeInfo": {"architecture": "arm64"}}
    metadata = {"name": name, "labels": labels or {}}
    return {name: Node.model_validate({"metadata": metadata, "spec": {"taints": said}, "status": status})}


def test_a_taint_that_keeps_the_operators_pods_off_a_gpu_is_told_before_anybody_waits_for_it() -> None:
    kept_off = _tainted("gpu-1", "dedicated=robots:NoSchedule", "nvidia.com/gpu=present:NoSchedule", labels=_GPU)
    [finding] = _findings(x86(), nodes=kept_off | _tainted("cpu-1"))
    assert finding.what == (
        "the GPU Operator's pods do not run on gpu-1: taint dedicated=robots:NoSchedule. No GPU is advertised there."
    )
    assert "[dedicated=robots:NoSchedule]. Pods that use the GPUs" in finding.remedy
    assert "kubectl taint node gpu-1 dedicated=robots:NoSchedule-." in finding.remedy
    assert not finding.fatal


def test_what_the_finding_says_of_a_taint_is_the_setting_that_ends_it() -> None:
    nodes = _tainted("gpu-1", "dedicated=robots:NoSchedule", "site=:NoExecute", labels=_GPU) | _tainted("cpu-1")
    [finding] = _findings(x86(), nodes=nodes)
    _, _, setting = finding.remedy.partition("cluster.tolerated_taints: ")
    taints = yaml.safe_load(setting.partition(". Pods")[0])
    assert taints == ["dedicated=robots:NoSchedule", "site:NoExecute"]
    assert _findings(changed(x86(), "cluster.tolerated_taints", taints), nodes=nodes) == []


def test_who_pastes_the_setting_over_the_old_one_keeps_the_taints_that_it_has() -> None:
    nodes = _tainted("gpu-1", "dedicated=robots:NoSchedule", "site=:NoExecute", labels=_GPU) | _tainted("cpu-1")
    alone = _tainted("gpu-1", "dedicated=robots:NoSchedule", "site=:NoExecute", labels=_GPU)
    stack = changed(x86(), "cluster.tolerated_taints", ["site:NoExecute"])
    for seen_nodes in (nodes, alone):
        [finding] = _findings(stack, nodes=seen_nodes)
        assert "cluster.tolerated_taints: [site:NoExecute, dedicated=robots:NoSchedule]. Pods" in finding.remedy


def test_a_named_jetson_counts_as_a_gpu_and_nodes_with_one_taint_are_one_warning() -> None:
    stack = changed(jetson(), "platform.tegra_nodes", {"jetson-1": _JETSON, "jetson-2": _JETSON})
    nodes = _tainted("jetson-1", "a=b:NoSchedule") | _tainted("jetson-2", "a=b:NoSchedule") | _tainted("cpu-1")
    _only(
        _findings(stack, nodes=nodes),
        "do not run on jetson-1, jetson-2: taint a=b:NoSchedule",
        "cluster.tolerated_taints: [a=b:NoSchedule]",
        fatal=False,
    )


def test_nothing_is_said_of_a_taint_where_gpus_are_advertised_or_somebody_else_runs_the_operator() -> None:
    dedicated, free = "dedicated=robots:NoSchedule", _tainted("cpu-1")
    assert _findings(x86(), nodes=free | _tainted("gpu-1", dedicated, gpus=1, labels=_GPU)) == []
    elsewhere = changed(x86(), "gpu_operator.install", value=False)
    assert _findings(elsewhere, nodes=free | _tainted("gpu-1", dedicated, labels=_GPU), runtime_class=True) == []
    assert _findings(x86(), nodes=free | _tainted("cpu-2", dedicated)) == []
    assert _findings(x86(), nodes=free | _tainted("gpu-1", "slow=disk:PreferNoSchedule", labels=_GPU)) == []


def test_one_machine_with_the_taint_of_control_planes_leaves_kais_pods_no_node() -> None:
    alone = _tainted("jetson-1", "node-role.kubernetes.io/control-plane=:NoSchedule")
    _only(
        _findings(jetson(), nodes=alone),
        "every node has a taint that KAI's pods do not tolerate: node-role.kubernetes.io/control-plane:NoSchedule",
        "kubectl taint node jetson-1 node-role.kubernetes.io/control-plane:NoSchedule-. Or have",
        "cluster.tolerated_taints: [node-role.kubernetes.io/control-plane:NoSchedule]",
        fatal=False,
    )
    taints = ["node-role.kubernetes.io/control-plane:NoSchedule"]
    assert _findings(changed(jetson(), "cluster.tolerated_taints", taints), nodes=alone) == []


def test_a_tegra_node_of_another_architecture_is_refused() -> None:
    _only(
        _findings(jetson(), nodes={"jetson-1": _node("jetson-1", architecture="amd64")}),
        "lists 'jetson-1' as a Tegra node, but its architecture is amd64",
        "Remove the node from platform.tegra_nodes",
    )


def test_a_node_that_has_not_reported_its_architecture_is_not_accused() -> None:
    assert _findings(jetson(), nodes={"jetson-1": _node("jetson-1", architecture="")}) == []


@pytest.mark.parametrize(("make", "name"), [(jetson, "jetson-1"), (spark, "spark-1")])
def test_memory_that_the_board_does_not_have_is_refused(make: Any, name: str) -> None:  # noqa: ANN401 - a factory
    _only(
        _findings(make(), nodes={name: _node(name, memory_mib=65536)}),
        f"node '{name}' has gpu_memory_mib",
        "shares 65536 MiB with its GPU",
        "set gpu_memory_mib below MemTotal",
    )
    assert _findings(make(), nodes={name: _node(name, memory_mib=131072)}) == []
    assert _findings(make(), nodes={name: _node(name, memory_mib=0)}) == [], "not reported yet"


def test_all_memory_of_the_board_is_too_much() -> None:
    _only(_findings(jetson(), nodes={"jetson-1": _node("jetson-1", memory_mib=122880)}), "has gpu_memory_mib 122880")


def _tegra(name: str) -> dict[str, Node]:
    status = {"nodeInfo": {"architecture": "arm64", "kernelVersion": "5.15.148-tegra"}, "capacity": {"memory": "128Gi"}}
    return {name: Node.model_validate({"metadata": {"name": name}, "status": status})}


@pytest.mark.parametrize("stack", [jetson(), x86()])
def test_a_jetson_that_the_stack_does_not_list_is_a_warning(stack: Json) -> None:
    _only(
        _findings(stack, nodes=_READY.nodes | _tegra("jetson-9")),
        "Jetsons that the stack does not list: 'jetson-9' (kernel 5.15.148-tegra). They get no labels",
        "Add them to platform.tegra_nodes",
        fatal=False,
    )
    assert _findings(jetson(), nodes=_tegra("jetson-1")) == [], "the one that is listed"
    many = {name: node for number in range(2, 30) for name, node in _tegra(f"jetson-{number}").items()}
    _only(
        _findings(stack, nodes=_READY.nodes | many),
        "list: 'jetson-10' (kernel 5.15.148-tegra), 'jetson-11'",
        "and 18 more. They get no labels",
        fatal=False,
    )


def test_time_slicing_on_a_jetson_is_a_warning() -> None:
    profile = {"sharing": "time_slicing", "nodes": ["jetson-1"], "replicas": 2}
    _only(
        _findings(changed(jetson(), "node_profiles", {"sliced": profile})),
        "node_profiles.sliced slices the time of 'jetson-1', a Jetson",
        fatal=False,
    )
    assert _findings(changed(jetson(), "node_profiles", {"shared": {"sharing": "kai", "nodes": ["jetson-1"]}})) == []


def test_a_host_that_is_no_node_is_refused() -> None:
    stack = changed(jetson_with_host(), "hosts.jetsom-1", ssh_host())
    stack = changed(stack, "hosts.jetsom-1.ssh.address", "192.0.2.99")
    _only(_findings(stack), "hosts.jetsom-1 is no node of the cluster", "Nodes: gpu-1, jetson-1.")
    assert _findings(changed(stack, "hosts.jetsom-1.gone", True)) == []


def test_memory_that_a_host_is_asked_for_is_not_judged() -> None:
    assert _findings(jetson_with_host(), nodes={"jetson-1": _node("jetson-1", memory_mib=8192)}) == []


def test_a_missing_runtime_class_matters_only_where_nobody_will_make_it() -> None:
    _only(
        _findings(operator_elsewhere()),
        "RuntimeClass 'nvidia' is missing, and gpu_operator.install is false",
        "Install the GPU Operator first, or set gpu_operator.install: true",
    )
    assert _findings(operator_elsewhere(), runtime_class=True) == []
    assert _findings(jetson()) == []


def test_a_priority_class_of_a_name_that_kais_chart_brings_stops_the_run_before_the_gpu_operator_is_installed() -> None:
    _only(
        _findings(jetson(), taken_priority_classes=("build", "train")),
        "the cluster has PriorityClass 'build' and 'train' already, and KAI's chart brings one of that name",
        "kubectl describe priorityclass build train",
    )
    of_a_site = changed(jetson(), "kai.chart", {"source": "./charts/kai"})
    _only(
        _findings(of_a_site, taken_priority_classes=("train",)),
        "the cluster has PriorityClass 'train' already",
        fatal=False,
    )
    another = Installations(kais=("Deployment 'kai-operator' in namespace 'kai'",))
    _only(_findings(jetson(), installations=another, taken_priority_classes=("train",)), "a KAI scheduler that is not")


_ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.mark.parametrize(
    ("namespace", "needed"), [("kai-resource-reservation", "privileged"), ("kai-scheduler", "baseline")]
)
def test_a_changed_pod_security_label_is_a_warning(namespace: str, needed: str) -> None:
    _only(
        _findings(jetson(), _DEPLOYED, namespaces=_namespace(namespace, {_ENFORCE: "restricted"})),
        f"namespace '{namespace}' enforces the pod-security level 'restricted'",
        f"where pods need '{needed}'",
        "pulumi up --refresh",
        fatal=False,
    )


def test_a_pod_security_label_that_somebody_took_away_is_told_as_that() -> None:
    """It said that the namespace enforces the level 'None'."""
    _only(
        _findings(jetson(), _DEPLOYED, namespaces=_namespace("kai-resource-reservation", {})),
        f"namespace 'kai-resource-reservation' has no label {_ENFORCE} any more, so that the cluster's own level is in",
        "force, where pods need 'privileged'",
        "pulumi up --refresh",
        fatal=False,
    )


@pytest.mark.parametrize(("stack", "level"), [(jetson(), "privileged"), (x86(), "baseline"), (x86(), "privileged")])
def test_a_pod_security_label_that_lets_our_pods_in_is_no_finding(stack: Json, level: str) -> None:
    namespaces = _namespace("kai-resource-reservation", {_ENFORCE: level})
    assert _findings(stack, _DEPLOYED, namespaces=namespaces) == []


def test_a_namespace_of_kais_from_before_it_had_a_level_is_no_finding() -> None:
    assert _findings(jetson(), _DEPLOYED, namespaces=_namespace("kai-scheduler", {})) == []


_KAI = ("kai-scheduler", "kai-scheduler")


def test_a_removal_that_was_killed_inside_helm_is_to_come_to_its_end() -> None:
    """Symptom without it: nothing is installed, and after ten minutes the queue controller is said to be missing."""
    _only(
        _findings(jetson(), _DEPLOYED, revisions={_KAI: [_revision("uninstalling")]}),
        "Helm release 'kai-scheduler' is 'uninstalling': a run that was to remove it was killed inside Helm",
        "Let the removal come to its end, then install anew: kai-anywhere down --stack jetson",
    )


@pytest.mark.parametrize("state", [_NEVER_DEPLOYED, _DEPLOYED])
@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade", "pending-rollback"])
def test_a_revision_that_a_killed_run_left_is_named_with_its_secret(status: str, state: DeployedState) -> None:
    _only(
        _findings(jetson(), state, revisions={_KAI: [_revision(status)]}),
        f"Helm release 'kai-scheduler' is '{status}'",
        "kai-anywhere rollback --only-heal --stack jetson. Or by hand: ",
        "kubectl --namespace kai-scheduler delete secret sh.helm.release.v1.x.v2",
    )


@pytest.mark.parametrize("state", [_NEVER_DEPLOYED, DeployedState(deployed=True, cluster_uid="ours")])
@pytest.mark.parametrize("status", ["deployed", "superseded", "failed"])
def test_a_release_that_the_stack_does_not_know_is_not_taken_over(status: str, state: DeployedState) -> None:
    _only(
        _findings(jetson(), state, revisions={_KAI: [_revision(status)]}),
        "Helm release 'kai-scheduler' is installed in namespace 'kai-scheduler', but not known to this stack",
        "If it was installed by hand and may go: helm uninstall kai-scheduler --namespace kai-scheduler. Or choose "
        "another context, and nothing of it is touched",
        "run it again: kai-anywhere rollback --stack jetson",
    )


def test_a_gpu_operator_that_was_installed_by_hand_under_the_stacks_own_name_may_be_used() -> None:
    _only(
        _findings(jetson(), revisions={("gpu-operator", "gpu-operator"): [_revision("deployed")]}),
        "Helm release 'gpu-operator' is installed in namespace 'gpu-operator', but not known to this stack",
        "If it was installed by hand, use it: set gpu_operator.install: false. Or choose another context, and nothing",
        "run it again: kai-anywhere rollback --stack jetson",
    )


@pytest.mark.parametrize("status", ["deployed", "superseded", "failed"])
def test_a_release_of_the_stack_is_no_finding(status: str) -> None:
    assert _findings(jetson(), _DEPLOYED, revisions={_KAI: [_revision(status)]}) == []


def test_a_release_that_somebody_uninstalled_is_named_with_the_run_that_brings_it_back() -> None:
    _only(
        _findings(jetson(), _DEPLOYED, revisions={_KAI: []}),
        "Helm release 'kai-scheduler', which this stack installed in namespace 'kai-scheduler', is not there any more",
        "pulumi up --refresh --stack jetson",
        fatal=False,
    )
    assert _findings(jetson(), _NEVER_DEPLOYED, revisions={_KAI: []}) == []


def test_a_release_of_the_stack_does_not_move_to_another_namespace() -> None:
    _only(
        _findings(changed(jetson(), "kai.namespace", "kai-2"), _DEPLOYED),
        "kai.namespace is 'kai-2', but this stack installed Helm release 'kai-scheduler' in namespace 'kai-scheduler'",
        "Set kai.namespace: kai-scheduler.",
    )


def test_an_operator_of_the_stack_that_is_not_wanted_any_more_takes_the_gpus_with_it() -> None:
    installed = DeployedState(deployed=True, releases=frozenset({("gpus", "gpu-operator")}))
    _only(
        _findings(operator_elsewhere(), installed, runtime_class=True),
        "this stack installed the GPU Operator in namespace 'gpus': `pulumi up` uninstalls it",
        "set gpu_operator.install: true",
        fatal=False,
    )


def test_every_finding_is_told_at_once() -> None:
    stack = changed(mixed(), "gpu_operator.install", False)
    findings = _findings(
        stack,
        version=_version("35"),
        mutating_policies=frozenset(),
        nodes={"jetson-1": _node("jetson-1", architecture="amd64", memory_mib=1024)},
        installations=Installations(kais=("Deployment 'binder' in namespace 'kai'",)),
        revisions={_KAI: [_revision("pending-install")]},
    )
    text = "\n".join(map(str, findings))
    for part in (
        "older than cluster.kubernetes_version 1.36",
        "carrier 'policy' can't work",
        "names the node 'jetson-2'",
        "names the node 'spark-1'",
        "architecture is amd64",
        "shares 1024 MiB",
        "RuntimeClass 'nvidia' is missing",
        "KAI scheduler that is not this stack's",
        "is 'pending-install'",
    ):
        assert part in text
    assert len(findings) == 9


def test_kinds_of_the_prometheus_operator_that_are_missing_are_named() -> None:
    missing = {"monitoring.service_monitor": ("ServiceMonitor", "PrometheusRule")}
    _only(
        _findings(monitoring_full(), missing_kinds=missing),
        "monitoring.service_monitor is true, and the cluster does not know ServiceMonitor and PrometheusRule.",
        "or set monitoring.service_monitor: false",
    )
    assert _findings(monitoring_full()) == []


def test_a_service_monitor_that_the_gpu_operator_can_not_make_is_a_warning() -> None:
    missing = {"gpu_operator.dcgm_exporter.service_monitor": ("ServiceMonitor",)}
    _only(
        _findings(changed(x86(), "gpu_operator.dcgm_exporter.service_monitor", True), missing_kinds=missing),
        "gpu_operator.dcgm_exporter.service_monitor is true, and the cluster does not know ServiceMonitor: nobody asks "
        "DCGM Exporter, and the ClusterPolicy stays notReady",
        "or set gpu_operator.dcgm_exporter.service_monitor: false",
        fatal=False,
    )
    assert _findings(changed(x86(), "gpu_operator.dcgm_exporter.service_monitor", True)) == []
