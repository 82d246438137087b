"""What KAI and the kubelet give away of one machine's memory."""

import pytest

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.run import run_preflight
from cluster.preflight.unified_memory import (
    gpu_memory,
    judge_unified_memory,
    read_system_requests,
    requested_mib,
    sold_twice,
)
from testbed.stacks import changed, jetson, parse, spark, x86
from tests.support.api_server import ApiServer

_PODS = "/api/v1/pods"


def _pod(memory: str, node: str = "jetson-1", phase: str = "Running") -> dict[str, object]:
    container = {"name": "main", "resources": {"requests": {"memory": memory}}}
    return {
        "metadata": {"name": "system", "namespace": "kube-system"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


def _nodes(memory_mib: int) -> dict[str, Node]:
    document = {"metadata": {"name": "jetson-1"}, "status": {"capacity": {"memory": f"{memory_mib}Mi"}}}
    return {"jetson-1": Node.model_validate(document)}


def test_every_gpu_of_a_jetson_counts() -> None:
    assert gpu_memory(parse(changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_count", 2))) == {"jetson-1": 245760}
    assert gpu_memory(parse(spark())).keys() == {*spark()["platform"]["unified_memory_nodes"]}
    assert gpu_memory(parse(x86())) == {}


def test_what_fits_beside_the_system_is_no_finding() -> None:
    settings = parse(jetson())
    assert list(judge_unified_memory(settings, _nodes(131072), {"jetson-1": 8192})) == []
    assert list(judge_unified_memory(settings, _nodes(131072), {})) == []
    assert list(judge_unified_memory(settings, {}, {"jetson-1": 8192})) == []


def test_memory_that_is_given_away_twice_is_a_warning() -> None:
    [finding] = judge_unified_memory(parse(jetson()), _nodes(131072), {"jetson-1": 8193})
    assert not finding.fatal
    assert "1 MiB are given away twice" in finding.what
    assert "Lower gpu_memory_mib" in finding.remedy


def test_a_label_that_alone_is_too_large_is_the_other_finding() -> None:
    assert list(judge_unified_memory(parse(jetson()), _nodes(122880), {"jetson-1": 8193})) == []


@pytest.mark.parametrize(("requests", "expected"), [(0, False), (10, False), (11, True)])
def test_it_is_told_from_the_first_mebibyte_on(requests: int, expected: bool) -> None:
    assert bool(sold_twice("n", 90, requests, 100)) is expected


def test_requests_are_rounded_up_and_what_cant_be_read_counts_nothing() -> None:
    odd = {"metadata": {"name": "odd", "namespace": "x", "annotations": {"gpu-memory": "4Gi"}}, "spec": {}}
    pods = [Pod.model_validate(manifest) for manifest in (_pod("1"), _pod("1Mi"), odd)]
    assert requested_mib(pods, {"jetson-1", "jetson-2"}) == {"jetson-1": 2, "jetson-2": 0}
    assert requested_mib(pods, {}) == {}


def test_only_running_pods_of_the_machine_are_counted(config_path: str, api: ApiServer) -> None:
    pods = [_pod("1Gi"), _pod("2Gi", node="other"), _pod("4Gi", phase="Succeeded")]
    api.serve(_PODS, {"items": pods})
    settings = parse(changed(jetson(), "cluster.kubeconfig", config_path))
    cluster = Cluster.connect(settings.cluster)
    assert read_system_requests(cluster, settings) == {"jetson-1": 1024}
    api.fail(_PODS, 403)
    assert read_system_requests(cluster, settings) == {}
    asked = len(api.asked)
    assert read_system_requests(cluster, parse(x86())) == {}
    assert len(api.asked) == asked
    cluster.close()


def test_preflight_says_so_and_goes_on(config_path: str, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("9Gi")]})
    settings = parse(changed(jetson(), "cluster.kubeconfig", config_path))
    [warning] = run_preflight(settings, DeployedState(), preview=False).warnings
    assert "1024 MiB are given away twice. Lower gpu_memory_mib" in warning
