"""What is Pending, and in whose words why."""

from agents.metrics.samples import waits_for
from sharing_map.report import PendingPod, Status
from testbed.shared_gpus import CREATED, gpu_node, pod, queue, waiting
from tests.unit.sharing_map.clusters import status_of


def _only(status: Status) -> PendingPod:
    [waits] = status.pending
    return waits


def test_a_pod_that_waits_has_the_schedulers_words() -> None:
    waits = _only(status_of(nodes=[gpu_node("jetson-1")], pods=[waiting("a", message="no node has enough")]))
    assert (waits.name, waits.node, waits.queue) == ("a", None, "robots")
    assert waits.asks is not None
    assert waits.asks.value == "30000 MiB"
    [reason] = waits.reasons
    assert (reason.value, reason.proof) == ("no node has enough", "Pod robots/a status.conditions[PodScheduled]")
    assert reason.since is not None


def test_a_binding_that_failed_comes_first() -> None:
    request = {
        "metadata": {"name": "a-x", "namespace": "robots", "creationTimestamp": CREATED},
        "spec": {"podName": "a", "selectedNode": "jetson-1", "selectedGPUGroups": ["g"]},
        "status": {"phase": "Failed", "reason": "failed waiting for GPU reservation pod", "failedAttempts": 3},
    }
    waits = _only(status_of(nodes=[gpu_node("jetson-1")], pods=[waiting("a")], bind_requests=[request]))
    assert [reason.value for reason in waits.reasons] == [
        "failed waiting for GPU reservation pod (3 failed attempts)",
        "no node has the GPU memory",
    ]
    assert waits.reasons[0].proof == "BindRequest robots/a-x status.reason"


def test_a_pod_that_the_binder_is_at_waits_for_it_and_not_for_its_containers() -> None:
    """However long that takes: what the scheduler said before stands in the pod until it is bound."""
    request = {
        "metadata": {"name": "a-x", "namespace": "robots", "creationTimestamp": CREATED},
        "spec": {"podName": "a", "selectedNode": "jetson-1", "selectedGPUGroups": ["g"]},
    }
    status = status_of(
        nodes=[gpu_node("jetson-1")], pods=[waiting("a")], bind_requests=[request], queues=[queue("robots")]
    )
    waits = _only(status)
    assert (waits.node, waits_for(waits)) == (None, "binder")
    assert [reason.value for reason in waits.reasons] == [
        "KAI's binder is to put it on jetson-1",
        "no node has the GPU memory",
    ]
    assert [(queue.pods, queue.pending) for queue in status.queues] == [(1, 0)]


def test_the_pod_groups_reasons_are_told_and_its_queue_is_the_pods() -> None:
    asks = {"gpu-memory": "30000", "pod-group-name": "pg-a"}
    made = pod("a", node=None, annotations=asks, phase="Pending", queue=None)
    group = {
        "metadata": {"name": "pg-a", "namespace": "robots"},
        "spec": {"queue": "team"},
        "status": {
            "schedulingConditions": [
                {
                    "type": "UnschedulableOnNodePool",
                    "status": "True",
                    "reason": "Unschedulable",
                    "message": "old words",
                    "lastTransitionTime": CREATED,
                    "reasons": [{"reason": "OverLimit", "message": "Workload is over the limit of queue team"}],
                }
            ]
        },
    }
    waits = _only(status_of(pods=[made], pod_groups=[group]))
    assert waits.queue == "team"
    assert [(reason.value, reason.proof) for reason in waits.reasons] == [
        ("Workload is over the limit of queue team", "PodGroup robots/pg-a status.schedulingConditions")
    ]


def test_a_pod_on_its_node_waits_in_the_kubelets_words() -> None:
    made = pod("a", annotations={"gpu-memory": "1"}, labels={"runai-gpu-group": "g"}, phase="Pending")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    made["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    waits = _only(status_of(nodes=[gpu_node("jetson-1")], pods=[made]))
    assert (waits.node, [reason.value for reason in waits.reasons]) == ("jetson-1", ["ImagePullBackOff: no such image"])


def test_a_pod_of_which_nobody_says_anything_has_no_reason() -> None:
    made = pod("a", node=None, annotations={"gpu-memory": "1"}, phase="Pending")
    assert _only(status_of(pods=[made])).reasons == ()


def test_a_request_that_kai_refuses_is_told_with_what_is_allowed() -> None:
    made = pod("a", node=None, annotations={"gpu-memory": "12Gi"}, phase="Pending")
    asks = _only(status_of(pods=[made])).asks
    assert asks is not None
    assert asks.value.startswith("what KAI can't read: gpu-memory is '12Gi'")


def test_kais_pods_without_a_gpu_wait_too_but_nobody_elses() -> None:
    ours, theirs = (pod(name, node=None, phase="Pending") for name in ("ours", "theirs"))
    theirs["spec"]["schedulerName"] = "default-scheduler"
    waits = _only(status_of(pods=[ours, theirs]))
    assert (waits.name, waits.asks) == ("ours", None)
