"""What is read of a cluster at once, and what is said of the rest."""

import json

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError, LoginError
from cluster.snapshot import Queue, read_snapshot
from tests.support.api_server import Answer, ApiServer, node

_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_REQUESTS = "/apis/scheduling.run.ai/v1alpha2/bindrequests"


def _pod(name: str, **status: object) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "namespace": "robots",
            "annotations": {"gpu-memory": "30720"},
            "creationTimestamp": "2026-11-01T10:00:00Z",
        },
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "jetson-1", "containers": [{"name": "main"}]},
        "status": status,
    }


def test_nodes_pods_and_what_kai_keeps_are_read(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/nodes", {"items": [node("jetson-2"), node("jetson-1")]})
    api.serve("/api/v1/pods", {"items": [_pod("b", phase="Running"), _pod("a", phase="Pending")]})
    limits = {"gpu": {"quota": 2, "limit": -1, "overQuotaWeight": 1}}
    queue = {
        "metadata": {"name": "robots"},
        "spec": {"parentQueue": "all", "resources": limits},
        "status": {"allocated": {"nvidia.com/gpu": "500m"}},
    }
    api.serve(_QUEUES, {"items": [queue]})
    request = {
        "metadata": {"name": "a", "namespace": "robots"},
        "spec": {"podName": "a", "selectedNode": "jetson-1", "selectedGPUGroups": ["g"]},
        "status": {"phase": "Failed", "reason": "no answer"},
    }
    api.serve(_REQUESTS, {"items": [request]})
    snapshot = read_snapshot(cluster)
    assert [node.name for node in snapshot.nodes] == ["jetson-1", "jetson-2"]
    pending, running = snapshot.pods
    assert (pending.name, pending.phase, running.phase) == ("a", "Pending", "Running")
    assert (pending.scheduler, pending.node) == ("kai-scheduler", "jetson-1")
    [read] = snapshot.queues
    assert (read.name, read.parent, read.gpu.quota, read.gpu.limit) == ("robots", "all", 2, -1)
    assert read.allocated == {"nvidia.com/gpu": "500m"}
    [failed] = snapshot.bind_requests
    assert (failed.pod, failed.gpu_groups, failed.phase, failed.reason) == ("a", ["g"], "Failed", "no answer")
    assert snapshot.pod_groups == ()
    assert snapshot.unseen == ()


def test_what_a_queue_does_not_say_is_nothing_as_kai_reads_it() -> None:
    said = {"metadata": {"name": "robots"}, "spec": {"resources": {"gpu": {"quota": 2}}}}
    queue = Queue.model_validate(said)
    assert (queue.gpu.quota, queue.gpu.limit, queue.gpu.over_quota_weight) == (2, 0, 0)
    assert (queue.cpu.quota, queue.cpu.limit, queue.cpu.over_quota_weight) == (0, 0, 0)


def test_what_the_user_may_not_read_is_named_and_the_rest_is_read(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/api/v1/pods", 403)
    snapshot = read_snapshot(cluster)
    assert [node.name for node in snapshot.nodes] == ["jetson-1"]
    [unseen] = snapshot.unseen
    assert unseen.what == "pods"
    assert "refuses GET /api/v1/pods" in unseen.why
    assert "\n" not in unseen.why


def test_a_cluster_that_does_not_answer_is_an_error(api: ApiServer, cluster: Cluster) -> None:
    api.fail("/api/v1/pods", 503)
    with pytest.raises(ClusterUnreachableError, match="503"):
        read_snapshot(cluster)


def test_a_login_that_has_ended_is_an_error_and_no_cluster_without_anything(api: ApiServer, cluster: Cluster) -> None:
    for path in ("/api/v1/nodes", "/api/v1/pods", _QUEUES, _REQUESTS):
        api.fail(path, 401)
    with pytest.raises(LoginError, match="does not accept the login"):
        read_snapshot(cluster)


def test_a_long_list_is_read_page_by_page(api: ApiServer, cluster: Cluster) -> None:
    first = {"metadata": {"continue": "next"}, "items": [_pod("a")]}
    api.pages("/api/v1/pods", {"": first, "next": {"metadata": {}, "items": [_pod("b")]}})
    assert [pod.name for pod in read_snapshot(cluster).pods] == ["a", "b"]
    asked = [request.query for request in api.asked if request.path == "/api/v1/pods"]
    assert asked == [{"limit": ["500"]}, {"limit": ["500"], "continue": ["next"]}]


@pytest.mark.parametrize("time", ["0000-12-31T23:00:01Z", "10000-01-01T04:59:59Z"])
def test_a_time_of_a_year_that_python_does_not_have_hides_nothing_else(
    api: ApiServer, cluster: Cluster, time: str
) -> None:
    """Who may update a pod writes any into its managedFields, a kubelet into a status; the API server sends it so."""

    def wrote(annotation: str, time: str) -> dict[str, object]:
        return {"manager": "x", "time": time, "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}}

    odd = _pod("odd")
    odd["metadata"] |= {"managedFields": [wrote("gpu-memory", time), wrote("note", "2026-11-02T10:00:00Z")]}  # type: ignore[operator]
    jetson = node("jetson-1")
    jetson["metadata"]["managedFields"] = [wrote("note", time)]
    jetson["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": time}]
    end = {"lastState": {"terminated": {"exitCode": 1, "finishedAt": time}}}
    odd["status"] = {"conditions": jetson["status"]["conditions"], "containerStatuses": [end]}
    api.serve("/api/v1/nodes", {"items": [jetson]})
    api.serve("/api/v1/pods", {"items": [_pod("a"), odd]})
    snapshot = read_snapshot(cluster)
    assert snapshot.unseen == ()
    assert [pod.name for pod in snapshot.pods] == ["a", "odd"]
    assert list(snapshot.pods[1].metadata_writes) == ["note"]
    assert [entry.time for entry in snapshot.nodes[0].owners] == [None]
    assert (snapshot.nodes[0].conditions, snapshot.nodes[0].condition_changes) == ({"Ready": "True"}, {})
    [condition], [status] = snapshot.pods[1].conditions, snapshot.pods[1].statuses
    assert (condition.status, condition.since) == ("True", None)
    assert status.end is not None
    assert (status.end.exit_code, status.end.ended) == (1, None)


@pytest.mark.parametrize("resource", ["memory", "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_a_kubelet_that_says_what_no_machine_has_hides_no_other_node(
    api: ApiServer, cluster: Cluster, resource: str
) -> None:
    odd, said = node("odd"), {resource: "100e198"}
    odd["status"] |= {"capacity": said, "allocatable": said}
    api.serve("/api/v1/nodes", {"items": [node("jetson-1"), odd]})
    snapshot = read_snapshot(cluster)
    assert snapshot.unseen == ()
    read = snapshot.nodes[1]
    assert (read.memory_mib, read.devices, read.gpu_capacity, read.time_slices, read.slices) == (0, 0, 0, 0, {})


def test_an_answer_that_is_no_list_is_an_error_that_names_the_path(api: ApiServer, cluster: Cluster) -> None:
    api.answers["/api/v1/nodes"] = Answer(200, json.dumps({"items": [{"metadata": {}}]}).encode())
    snapshot = read_snapshot(cluster)
    assert snapshot.nodes == ()
    assert [gap.what for gap in snapshot.unseen] == ["nodes"]
    assert "/api/v1/nodes" in snapshot.unseen[0].why
    assert snapshot.unseen[0].why.endswith("items.0.metadata.name: Field required")
    api.answers["/api/v1/nodes"] = Answer(200, b"<html>")
    assert read_snapshot(cluster).unseen[0].why.endswith("Invalid JSON: expected value at line 1 column 1")
