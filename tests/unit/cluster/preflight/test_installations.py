"""A GPU Operator or KAI that runs already is found wherever it is, under whatever name; our own is none."""

from typing import Any

import pytest

from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.installations import Installations, judge_installations, read_installations
from testbed.stacks import Json, changed, jetson, operator_elsewhere, parse
from tests.support.api_server import DEPLOYMENTS, ApiServer

_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_GPU_CLUSTERS = "/apis/nvidia.com/v1alpha1/gpuclusters"
_NEVER_DEPLOYED = DeployedState()
_BOTH = DeployedState(
    deployed=True, releases=frozenset({("kai-scheduler", "kai-scheduler"), ("gpu-operator", "gpu-operator")})
)


def _deployment(namespace: str, name: str, image: str, release: str | None = None) -> Any:  # noqa: ANN401 - JSON
    annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace} if release else {}
    return {
        "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
    }


def _installations_of(cluster: Cluster, stack: Json, state: DeployedState = _NEVER_DEPLOYED) -> Installations:
    return read_installations(cluster, parse(stack), state)


@pytest.mark.parametrize(
    "image",
    [
        "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.18.6",
        "ghcr.io/nvidia/kai-scheduler/binder:v0.4.0",
        "registry.example.com:5000/mirror/kai-scheduler/operator@sha256:00",
    ],
)
def test_kai_is_found_in_any_namespace_under_any_release(api: ApiServer, cluster: Cluster, image: str) -> None:
    api.serve(DEPLOYMENTS, {"items": [_deployment("team", "some-operator", image, "gpu-sharing")]})
    place = "Deployment 'some-operator' in namespace 'team' (Helm release 'gpu-sharing' in namespace 'team')"
    assert _installations_of(cluster, jetson()) == Installations(kais=(place,))


@pytest.mark.parametrize("image", ["nvcr.io/nvidia/gpu-operator:v26.7.0", "registry.example.com/gpu-operator@sha256:0"])
def test_a_gpu_operator_is_found_in_any_namespace_under_any_release(
    api: ApiServer, cluster: Cluster, image: str
) -> None:
    api.serve(DEPLOYMENTS, {"items": [_deployment("nvidia", "gpu-operator", image)]})
    installations = _installations_of(cluster, jetson())
    assert installations == Installations(gpu_operators=("Deployment 'gpu-operator' in namespace 'nvidia'",))


def test_a_cluster_policy_is_found_without_its_operator(api: ApiServer, cluster: Cluster) -> None:
    api.serve(_POLICIES, {"items": [{"metadata": {"name": "mine"}}]})
    assert _installations_of(cluster, jetson()) == Installations(gpu_operators=("ClusterPolicy 'mine'",))


def test_other_peoples_deployments_are_none(api: ApiServer, cluster: Cluster) -> None:
    images = ("docker.io/library/nginx:1", "example.com/kai-scheduler:1", "example.com/my-gpu-operator:1", "a/b/c:1")
    api.serve(DEPLOYMENTS, {"items": [_deployment("team", "web", image) for image in images]})
    assert _installations_of(cluster, jetson()) == Installations()


def test_an_operator_elsewhere_is_what_the_stack_wants(api: ApiServer, cluster: Cluster) -> None:
    api.serve(DEPLOYMENTS, {"items": [_deployment("nvidia", "gpu-operator", "nvcr.io/nvidia/gpu-operator:v1")]})
    assert _installations_of(cluster, operator_elsewhere()) == Installations()
    assert not [request for request in api.asked if request.path == _POLICIES]


@pytest.mark.parametrize("key", ["kai.namespace", "gpu_operator.namespace"])
def test_what_the_stack_installed_is_not_looked_for(api: ApiServer, cluster: Cluster, key: str) -> None:
    assert _installations_of(cluster, jetson(), _BOTH) == Installations()
    assert _installations_of(cluster, changed(jetson(), key, "elsewhere"), _BOTH) == Installations(), (
        "it is still the stack's"
    )
    assert {request.path for request in api.asked} == {_GPU_CLUSTERS}


@pytest.mark.parametrize("stack", [jetson(), operator_elsewhere()])
@pytest.mark.parametrize("state", [_NEVER_DEPLOYED, _BOTH])
def test_a_gpu_cluster_is_found_whoever_runs_the_operator(
    api: ApiServer, cluster: Cluster, stack: Json, state: DeployedState
) -> None:
    annotations = {"meta.helm.sh/release-name": "gpus", "meta.helm.sh/release-namespace": "nvidia"}
    api.serve(_GPU_CLUSTERS, {"items": [{"metadata": {"name": "gpu-cluster", "annotations": annotations}}]})
    place = "GPUCluster 'gpu-cluster' (Helm release 'gpus' in namespace 'nvidia')"
    assert _installations_of(cluster, stack, state) == Installations(gpu_clusters=(place,))


def test_a_gpu_cluster_stops_a_stack_and_is_left_to_its_owner() -> None:
    [finding] = judge_installations(Installations(gpu_clusters=("GPUCluster 'gpu-cluster'",)))
    assert finding.fatal
    assert finding.what.startswith("the cluster has GPUCluster 'gpu-cluster': ")
    assert finding.remedy.startswith("Choose another context. Or ask whoever made it")
    assert "it is not this stack's to delete" in finding.remedy
    assert "kubectl delete" not in finding.remedy


def test_what_our_own_killed_run_left_is_none(api: ApiServer, cluster: Cluster) -> None:
    left = [
        _deployment(
            "kai-scheduler", "kai-operator", "ghcr.io/kai-scheduler/kai-scheduler/operator:v1", "kai-scheduler"
        ),
        _deployment("kai-scheduler", "binder", "ghcr.io/kai-scheduler/kai-scheduler/binder:v1"),
    ]
    api.serve(DEPLOYMENTS, {"items": left})
    assert _installations_of(cluster, jetson()) == Installations()
    left.append(
        _deployment("kai-scheduler", "kai-operator", "ghcr.io/kai-scheduler/kai-scheduler/operator:v1", "other")
    )
    api.serve(DEPLOYMENTS, {"items": left})
    assert len(_installations_of(cluster, jetson()).kais) == 1, "another release in the namespace that the stack wants"


def test_each_has_a_way_out_that_harms_nobody() -> None:
    installations = Installations(gpu_operators=("Deployment 'a'",), kais=("Deployment 'b'",))
    operator, scheduler = judge_installations(installations)
    assert operator.fatal
    assert scheduler.fatal
    assert "gpu_operator.install: false" in operator.remedy
    assert "another context" in operator.remedy
    assert "another context" in scheduler.remedy
    assert not any(
        word in finding.remedy for finding in (operator, scheduler) for word in ("delete", "uninstall", "Remove")
    )
    assert list(judge_installations(Installations())) == []
