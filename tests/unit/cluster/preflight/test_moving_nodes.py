"""Nodes that go to time slicing, or from there to KAI, while pods use their GPUs."""

import pytest

from cluster.access.answers.nodes import Node
from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.moving_nodes import judge_moving_nodes, read_moving_nodes
from cluster.preflight.run import run_preflight
from testbed.stacks import Json, changed, parse, time_slicing, x86
from tests.support.api_server import RUNTIME_CLASS, ApiServer, node

_PODS = "/api/v1/pods"
_POOL = {"kai.scheduler/node-pool": "time-slicing"}
_SLICED = time_slicing()
"""gpu-7 and gpu-8 are sliced."""


def _pod(  # noqa: PLR0913 - by name
    name: str, *, gpus: str = "", group: str = "", phase: str = "Running", namespace: str = "ml", on: str = "gpu-7"
) -> Json:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus} if gpus else {"cpu": "1"}}}
    labels = {"runai-gpu-group": group} if group else {}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    spec = {"containers": [container], "nodeName": on}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _findings(
    cluster: Cluster, stack: Json, labels: dict[str, dict[str, str]], state: DeployedState | None = None
) -> list[Finding]:
    nodes = {name: Node.model_validate(node(name, labels=of)) for name, of in labels.items()}
    return list(judge_moving_nodes(read_moving_nodes(cluster, parse(stack), nodes, state or DeployedState())))


def test_a_node_that_goes_to_time_slicing_while_pods_use_its_gpus_is_told(cluster: Cluster, api: ApiServer) -> None:
    pods = [
        _pod("whole", gpus="1"),
        _pod("fraction", group="g"),
        _pod("ended", gpus="1", phase="Succeeded"),
        _pod("without"),
        _pod("elsewhere", gpus="1", on="gpu-9"),
        _pod("gpu-reservation", group="g", gpus="1", namespace="kai-resource-reservation"),
    ]
    api.serve(_PODS, {"items": pods})
    [finding] = _findings(cluster, _SLICED, {"gpu-7": {}, "gpu-8": _POOL, "gpu-9": {}})
    assert not finding.fatal
    assert finding.what == (
        "this run takes node 'gpu-7' to time slicing while pods use its GPUs: ml/fraction, ml/whole. They keep them, "
        "and other pods get the same GPUs."
    )
    assert "kubectl cordon gpu-7" in finding.remedy


def test_so_is_one_that_goes_back_where_the_stack_had_it_sliced(cluster: Cluster, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("replica", gpus="1")]})
    labels = {"gpu-7": _POOL}
    [finding] = _findings(cluster, x86(), labels, DeployedState(labels={"gpu-7": _POOL}))
    assert "'gpu-7' from time slicing back to KAI while pods use its GPUs: ml/replica." in finding.what
    api.asked.clear()
    assert _findings(cluster, x86(), labels) == [], "somebody else slices it"
    assert api.asked == []


def test_a_node_that_stays_as_it_is_or_has_no_such_pods_is_not_told(cluster: Cluster, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("without")]})
    assert _findings(cluster, _SLICED, {"gpu-7": {}}) == []
    api.asked.clear()
    by_others = {"nvidia.com/gpu.replicas": "4"}
    assert _findings(cluster, _SLICED, {"gpu-7": _POOL, "gpu-8": by_others, "gpu-9": {}}) == []
    assert api.asked == []


def test_who_may_not_see_pods_is_told_nothing_and_a_silent_server_is_an_error(cluster: Cluster, api: ApiServer) -> None:
    api.fail(_PODS, 403)
    assert _findings(cluster, _SLICED, {"gpu-7": {}}) == []
    api.fail(_PODS, 503)
    with pytest.raises(ClusterUnreachableError):
        _findings(cluster, _SLICED, {"gpu-7": {}})


def test_preflight_says_it(config_path: str, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("whole", gpus="1")]})
    api.serve("/api/v1/nodes", {"items": [node("gpu-7"), node("gpu-8", labels=_POOL), node("gpu-9")]})
    api.serve(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}})
    settings = parse(changed(_SLICED, "cluster.kubeconfig", config_path))
    warnings = run_preflight(settings, DeployedState(), preview=True).warnings
    assert [
        "gpu-7" in warning for warning in warnings if "time slicing while pods use its GPUs: ml/whole" in warning
    ] == [True]
