"""What preflight finds on a real API server: a GPUCluster, PriorityClasses, a second writer of a Jetson's labels."""

from collections.abc import Iterator

import httpx2
import pytest

import simulator
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.run import PreflightError, PreflightResult, run_preflight
from testbed.simulated import stack_settings
from testbed.stacks import changed, jetson, parse
from testbed.waiting import eventually

_NODE = "/api/v1/nodes/jetson-1"
_MEMORY = "nvidia.com/gpu.memory"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GPU_CLUSTERS = "/apis/nvidia.com/v1alpha1/gpuclusters"
_DEFINITION = {
    "metadata": {"name": "gpuclusters.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "scope": "Cluster",
        "names": {"kind": "GPUCluster", "plural": "gpuclusters", "singular": "gpucluster", "shortNames": ["gc"]},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def gpu_clusters(api: httpx2.Client) -> Iterator[str]:
    """The path of GPUClusters, whose kind the cluster knows for a while."""
    api.post(_DEFINITIONS, json=_DEFINITION).raise_for_status()
    eventually(lambda: api.get(_GPU_CLUSTERS).is_success)
    yield _GPU_CLUSTERS
    api.delete(f"{_DEFINITIONS}/gpuclusters.nvidia.com").raise_for_status()
    eventually(lambda: api.get(_GPU_CLUSTERS).status_code == httpx2.codes.NOT_FOUND)


@pytest.fixture
def label(api: httpx2.Client) -> Iterator[None]:
    """The Jetson's memory as Node Feature Discovery's master writes it, with a patch of JSON under its own name."""
    _patch(api, "nfd-master", "4095")
    yield
    _patch(api, "nfd-master", None)


def _patch(api: httpx2.Client, manager: str, value: str | None) -> None:
    path = f"/metadata/labels/{_MEMORY.replace('/', '~1')}"
    operation = {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
    headers = {"Content-Type": "application/json-patch+json"}
    api.patch(_NODE, params={"fieldManager": manager}, json=[operation], headers=headers).raise_for_status()


def _preflight(cluster: simulator.ControlPlane, *adopt: str) -> PreflightResult:
    stack = changed(stack_settings(jetson(), cluster), "cluster.adopt", list(adopt))
    return run_preflight(parse(stack), DeployedState(), preview=False, stack="kai-anywhere/jetson")


def test_a_gpu_cluster_stops_a_stack_and_its_kind_alone_does_not(
    gpu_clusters: str, api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    assert _preflight(cluster).warnings == ()
    theirs = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"}}
    api.post(gpu_clusters, json=theirs).raise_for_status()
    with pytest.raises(PreflightError) as caught:
        _preflight(cluster)
    assert "error: the cluster has GPUCluster 'gpu-cluster': " in str(caught.value)
    assert "it is not this stack's to delete" in str(caught.value)
    assert api.get(f"{gpu_clusters}/gpu-cluster").is_success


@pytest.mark.parametrize(
    ("release", "warns"),
    [(None, True), ("another-kai", True), ("kai-scheduler", False)],
    ids=["somebody's", "of another release", "of a run of the stack's own that was killed"],
)
def test_a_priority_class_under_the_name_of_one_of_kais_is_told_unless_it_is_kais_own(
    release: str | None, warns: bool, api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    path, marks = "/apis/scheduling.k8s.io/v1/priorityclasses", {}
    if release:
        marks = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kai-scheduler"}
    metadata = {"name": "train", "annotations": marks}
    api.post(path, json={"metadata": metadata, "value": 1000}).raise_for_status()
    try:
        # Of the simulator's chart, which is a local one, nobody knows whether it brings any.
        warnings = [
            warning for warning in _preflight(cluster).warnings if "has PriorityClass 'train' already" in warning
        ]
        assert len(warnings) == warns
    finally:
        api.delete(f"{path}/train").raise_for_status()


@pytest.mark.usefixtures("label")
def test_the_second_writer_of_a_label_is_known_by_its_field_manager(
    api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    with pytest.raises(PreflightError) as caught:
        _preflight(cluster)
    assert "nvidia.com/gpu.memory is '4095' by nfd-master, the stack sets '122880'" in str(caught.value)
    assert "warning: node 'jetson-1' has nvidia.com/gpu.memory=4095 by nfd-master: GPU Feature" in str(caught.value)

    [warning] = _preflight(cluster, "Node/jetson-1").warnings
    assert "node 'jetson-1' has nvidia.com/gpu.memory=4095 by nfd-master: GPU Feature Discovery" in warning

    _patch(api, "labeller", "122880")
    [warning] = _preflight(cluster).warnings
    assert "nvidia.com/gpu.memory ('122880') is written by labeller too" in warning


def test_a_label_that_a_person_wrote_once_is_no_second_writer(
    api: httpx2.Client, cluster: simulator.ControlPlane
) -> None:
    _patch(api, "kubectl-label", "122880")
    try:
        assert _preflight(cluster).warnings == ()
    finally:
        _patch(api, "kubectl-label", None)
