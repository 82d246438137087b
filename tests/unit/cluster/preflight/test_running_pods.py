"""Pods that run from an earlier installation of KAI, or from before it shared no GPUs."""

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.run import run_preflight
from cluster.preflight.running_pods import RunningPods, read_running_pods
from config.stack import StackSettings
from testbed.stacks import changed, parse, x86
from tests.support.api_server import ApiServer

_PODS = "/api/v1/pods"
_INSTALLED = DeployedState(releases=frozenset({("kai-scheduler", "kai-scheduler")}))


def _pod(name: str, group: str = "a-group", namespace: str = "default", phase: str = "Running") -> dict[str, object]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"runai-gpu-group": group}},
        "status": {"phase": phase},
    }


@pytest.fixture
def settings(config_path: str) -> StackSettings:
    return parse(changed(x86(), "cluster.kubeconfig", config_path))


@pytest.fixture
def off(config_path: str) -> StackSettings:
    stack = changed(x86(), "cluster.kubeconfig", config_path)
    return parse(changed(stack, "kai.gpu_sharing_mode", "disabled"))


@pytest.fixture
def cluster(settings: StackSettings) -> Cluster:
    return Cluster.connect(settings.cluster)


def test_preflight_warns_of_pods_that_kai_deletes_when_it_starts(settings: StackSettings, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("trains"), _pod("ended", phase="Succeeded"), _pod("waits", phase="Pending")]})
    [warning] = run_preflight(settings, DeployedState(), preview=True).warnings
    assert "no reservation pod holds these GPUs: default/trains. KAI deletes these pods when it starts." in warning
    assert "What a Deployment or a Job made is made again." in warning
    [asked] = [request for request in api.asked if request.path.startswith(_PODS)]
    assert asked.query["labelSelector"] == ["runai-gpu-group"]


def test_preflight_warns_of_pods_with_fractions_where_the_stack_switches_them_off(
    off: StackSettings, api: ApiServer
) -> None:
    held = _pod("gpu-reservation-1", namespace="kai-resource-reservation")
    api.serve(_PODS, {"items": [_pod("trains"), held, _pod("deleted", "another-group"), _pod("over", phase="Failed")]})
    deleted, refused = run_preflight(off, DeployedState(), preview=True).warnings
    assert "default/deleted. KAI deletes these pods" in deleted
    assert (
        "kai.gpu_sharing_mode 'disabled' shares no GPUs, and pods run with a fraction of one: default/trains."
        in refused
    )


def test_a_binder_that_runs_already_deletes_nothing(off: StackSettings, cluster: Cluster, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("trains")]})
    assert read_running_pods(cluster, off, _INSTALLED) == RunningPods(refused=("default/trains",))


def test_pods_whose_gpu_is_held_stay(settings: StackSettings, cluster: Cluster, api: ApiServer) -> None:
    held = _pod("gpu-reservation-1", namespace="kai-resource-reservation")
    api.serve(_PODS, {"items": [_pod("a"), _pod("b"), held, _pod("of-another-gpu", "another-group")]})
    assert read_running_pods(cluster, settings, DeployedState()) == RunningPods(deleted=("default/of-another-gpu",))


def test_nobody_is_asked_where_the_stack_has_installed_kai_and_shares_gpus(
    settings: StackSettings, cluster: Cluster, api: ApiServer
) -> None:
    api.serve(_PODS, {"items": [_pod("a")]})
    assert read_running_pods(cluster, settings, _INSTALLED) == RunningPods()
    assert api.asked == []


def test_who_may_not_see_pods_is_told_nothing_and_goes_on(
    settings: StackSettings, cluster: Cluster, api: ApiServer
) -> None:
    api.fail(_PODS, 403)
    assert read_running_pods(cluster, settings, DeployedState()) == RunningPods()


def test_a_cluster_that_does_not_answer_is_not_taken_for_one_without_pods(
    settings: StackSettings, cluster: Cluster, api: ApiServer
) -> None:
    api.fail(_PODS, 503)
    with pytest.raises(ClusterUnreachableError):
        read_running_pods(cluster, settings, DeployedState())
