"""Preflight of the modes that hold pods to their fractions: what they need beside KAI, and which nodes can't."""

import pytest

from cluster.access.answers.nodes import Node
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.run import read_facts
from cluster.preflight.sharing import judge_sharing
from testbed.stacks import Json, changed, jetson, parse, time_slicing, x86
from tests.support.api_server import ApiServer, node

_DRIVER = "gpu-fractioning.kai.scheduler/nvidia-driver-version.major"
_WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kai-resource-isolator-mutating"


def _node(*, kernel: str = "6.8.0-generic", gpus: int = 1, condition: str | None = None) -> Node:
    conditions = [{"type": "Ready", "status": "True"}]
    if condition is not None:
        conditions.append(dict(zip(("type", "status"), condition.split("="), strict=True)))
    return Node.model_validate(
        {
            "metadata": {"name": "gpu-1", "labels": {}},
            "status": {
                "nodeInfo": {"kernelVersion": kernel},
                "allocatable": {"nvidia.com/gpu": str(gpus)},
                "conditions": conditions,
            },
        }
    )


def _labelled(plain: Node, **labels: str) -> Node:
    return plain.model_copy(update={"labels": labels})


_MEMORY = {"nvidia.com/gpu.memory": "46068"}
_READY = "gpu-fractioning.nvidia.com/Ready=True"


def _findings(mode: str, single: Node, *, isolator: bool = True, stack: Json | None = None) -> list[Finding]:
    settings = parse(changed(stack or x86(), "kai.gpu_sharing_mode", mode))
    return list(judge_sharing(settings, {"gpu-1": single}, isolator=isolator))


def _only(findings: list[Finding], *says: str, fatal: bool) -> None:
    [finding] = findings
    assert finding.fatal is fatal
    for part in says:
        assert part in str(finding)


@pytest.mark.parametrize("mode", ["non_memory_enforced", "disabled"])
def test_what_enforces_nothing_needs_nothing(mode: str) -> None:
    bare = _node(kernel="6.8.12-tegra")
    assert _findings(mode, bare, isolator=False) == []


def test_hami_core_needs_the_isolators_webhook() -> None:
    ready = _labelled(_node(), **_MEMORY)
    assert _findings("hami_core", ready) == []
    _only(
        _findings("hami_core", ready, isolator=False),
        "'kai-resource-isolator-mutating' is not there",
        "helm install kai-resource-isolator",
        fatal=True,
    )


def test_a_guard_of_the_whole_cluster_refuses_what_the_isolator_makes_of_pods_and_that_is_told() -> None:
    ready = _labelled(_node(), **_MEMORY)
    guarded = changed(x86(), "pod_guard", {"scope": "cluster", "exempt_namespaces": ["training"]})
    _only(
        _findings("hami_core", ready, stack=guarded),
        "pod_guard.scope 'cluster' refuses such pods in every namespace but gpu-operator, kube-system, training.",
        "pod_guard.scope 'labelled' and give the others the label kai-anywhere.io/pod-guard=enforce.",
        fatal=False,
    )
    assert _findings("hami_core", ready, stack=changed(x86(), "pod_guard", {"scope": "labelled"})) == []
    assert _findings("non_memory_enforced", ready, stack=guarded) == []


def test_hami_core_needs_the_label_of_the_memory() -> None:
    _only(
        _findings("hami_core", _node()),
        "node 'gpu-1' has no label nvidia.com/gpu.memory",
        "GPU Feature Discovery",
        fatal=False,
    )


@pytest.mark.parametrize("mode", ["hami_core", "nv_fractions"])
@pytest.mark.parametrize(
    ("single", "known_by"),
    [
        (_node(kernel="6.8.12-tegra", condition=_READY), "kernel 6.8.12-tegra"),
        (
            _labelled(_node(condition=_READY), **{"nvidia.com/gpu.product": "NVIDIA-GB10"}),
            "nvidia.com/gpu.product=NVIDIA-GB10",
        ),
    ],
)
def test_a_node_that_shares_its_memory_with_its_gpu_is_refused(mode: str, single: Node, known_by: str) -> None:
    _only(
        _findings(mode, single),
        f"'{mode}' is for every node of the cluster, and 'gpu-1' ({known_by}) can't have it",
        "Use non_memory_enforced",
        fatal=True,
    )


@pytest.mark.parametrize("mode", ["hami_core", "nv_fractions"])
def test_a_node_without_a_gpu_to_share_is_not_looked_at(mode: str) -> None:
    assert _findings(mode, _node(gpus=0, kernel="6.8.12-tegra")) == []


def test_a_node_whose_gpus_are_sliced_is_not_kais() -> None:
    stack = changed(time_slicing(), "node_profiles.sliced.nodes", ["gpu-1"])
    assert _findings("nv_fractions", _node(), stack=stack) == []


@pytest.mark.parametrize("driver", ["580", "614"])
def test_nv_fractions_refuses_a_known_older_driver(driver: str) -> None:
    labelled = _labelled(_node(condition=_READY), **{_DRIVER: driver})
    _only(_findings("nv_fractions", labelled), f"has NVIDIA driver {driver}", "needs 615 or later", fatal=True)


@pytest.mark.parametrize("condition", ["gpu-fractioning.nvidia.com/Ready", "gpu-sharing.nvidia.com/Ready"])
def test_nv_fractions_reads_both_names_of_the_condition(condition: str) -> None:
    driver = {_DRIVER: "615"}
    assert _findings("nv_fractions", _labelled(_node(condition=f"{condition}=True"), **driver)) == []
    _only(
        _findings("nv_fractions", _labelled(_node(condition=f"{condition}=False"), **driver)),
        "KAI places no fraction there",
        fatal=False,
    )


def test_nv_fractions_warns_where_its_operator_did_not_speak_yet() -> None:
    _only(
        _findings("nv_fractions", _node()),
        "node 'gpu-1' does not say that it is ready",
        "once the GPU Operator runs",
        fatal=False,
    )


def test_the_webhook_is_asked_for_only_where_it_is_needed(api: ApiServer, config_path: str) -> None:
    api.serve("/api/v1/nodes", {"items": [node("gpu-1")]})
    settings = parse(changed(jetson(), "cluster.kubeconfig", config_path))
    connection = Cluster.connect(settings.cluster)
    api.serve(_WEBHOOK, {"metadata": {"name": "kai-resource-isolator-mutating"}})
    try:
        assert read_facts(connection, settings, DeployedState()).isolator is False
        enforcing = parse(
            changed(changed(x86(), "kai.gpu_sharing_mode", "hami_core"), "cluster.kubeconfig", config_path)
        )
        assert read_facts(connection, enforcing, DeployedState()).isolator is True
        del api.answers[_WEBHOOK]
        assert read_facts(connection, enforcing, DeployedState()).isolator is False
    finally:
        connection.close()
