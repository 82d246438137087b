"""What is said of a pod that waits, and by whom."""

from typing import Any

import pytest

from cluster.access.answers.pods import ContainerStatus, Pod
from cluster.pending import kubectl_says, kubelet_says, said_of, scheduler_says
from cluster.snapshot import BindRequest, PodGroup

_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
_NOT_READY = {"type": "Ready", "status": "False", "message": "containers with unready status: [main]"}


def _pod(*conditions: dict[str, str], node: str = "", waiting: dict[str, str] | None = None) -> Pod:
    statuses = [{"name": "main", "state": {"waiting": waiting}}] if waiting else []
    metadata = {"name": "a", "namespace": "robots", "annotations": {"pod-group-name": "pg-a"}}
    status = {"phase": "Pending", "conditions": list(conditions), "containerStatuses": statuses}
    return Pod.model_validate({"metadata": metadata, "spec": {"nodeName": node}, "status": status})


def _group(**condition: Any) -> PodGroup:  # noqa: ANN401 - JSON
    said = {"type": "UnschedulableOnNodePool", "status": "True"} | condition
    status = {"schedulingConditions": [said]}
    return PodGroup.model_validate({"metadata": {"name": "pg-a", "namespace": "robots"}, "status": status})


def test_the_pods_own_condition_comes_before_its_groups() -> None:
    pod, group = _pod(_UNSCHEDULABLE | {"message": "no room"}), _group(message="the group has no room")
    assert [(statement.by, statement.words) for statement in said_of(pod, group)] == [
        ("scheduler", "no room"),
        ("scheduler", "the group has no room"),
    ]
    assert scheduler_says(pod, group) == "no room"


def test_a_condition_without_a_message_has_its_reason() -> None:
    assert scheduler_says(_pod(_UNSCHEDULABLE)) == "Unschedulable"
    assert scheduler_says(_pod(), _group(reason="OverLimit")) == "OverLimit"


def test_a_groups_reasons_stand_before_its_conditions_own_words() -> None:
    reasons = [{"reason": "OverLimit", "message": "over the limit"}, {"reason": "NotReady"}]
    assert scheduler_says(_pod(), _group(message="old words", reasons=reasons)) == "over the limit; NotReady"


def test_a_condition_that_does_not_hold_says_nothing() -> None:
    assert scheduler_says(_pod(), _group(status="False", message="old words")) == ""


def test_while_an_init_container_waits_the_others_words_say_nothing() -> None:
    pod = _pod(node="jetson-1", waiting={"reason": "PodInitializing"})
    fails = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    init = [ContainerStatus.model_validate({"name": name, "state": state}) for name, state in (("a", {}), ("b", fails))]
    [said] = said_of(pod.model_copy(update={"init_statuses": init}))
    assert said.words == "CrashLoopBackOff: back-off 5m0s"
    assert said.proof == "Pod robots/a status.initContainerStatuses"
    assert kubelet_says(pod) == "PodInitializing"


def test_on_its_node_a_pod_waits_in_the_kubelets_words_alone() -> None:
    request = BindRequest.model_validate(
        {"metadata": {"name": "r", "namespace": "robots"}, "status": {"phase": "Failed", "failedAttempts": 2}}
    )
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod = _pod(_NOT_READY, node="jetson-1", waiting=waiting)
    assert [statement.words for statement in said_of(pod, _group(message="no room"), request)] == [
        "ImagePullBackOff: no such image"
    ]
    assert [statement.words for statement in said_of(_pod(), None, request)] == ["Failed (2 failed attempts)"]


def test_containers_that_run_say_nothing() -> None:
    assert kubelet_says(_pod(node="jetson-1")) == ""
    assert kubelet_says(_pod(node="jetson-1", waiting={"reason": "ContainerCreating"})) == "ContainerCreating"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "Running"),
        ({"containerStatuses": [{"state": {"running": {}}, "ready": True}]}, "Running"),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}, "CrashLoopBackOff"),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}, "Error"),
        ({"containerStatuses": [{"state": {"terminated": {"exitCode": 137}}}]}, "ExitCode:137"),
        (
            {
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
                    {"state": {"running": {}}, "ready": True},
                ]
            },
            "NotReady",
        ),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "Init:ErrImagePull"),
        ({"initContainerStatuses": [{"name": "proxy", "started": True, "state": {"running": {}}}]}, "Running"),
        ({"initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/1"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": ""}, "Unknown"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, "SchedulingGated"),
    ],
)
def test_a_pod_is_called_what_kubectl_calls_it(status: dict[str, Any], said: str) -> None:
    spec = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    metadata = {"name": "a", "namespace": "robots"}
    pod = Pod.model_validate({"metadata": metadata, "spec": spec, "status": {"phase": "Running"} | status})
    assert kubectl_says(pod) == said


def test_a_pod_that_is_being_deleted_is_terminating_unless_it_has_ended() -> None:
    metadata = {"name": "a", "namespace": "robots", "deletionTimestamp": "2026-11-03T09:59:00Z"}
    for status, said in (({"phase": "Running"}, "Terminating"), ({"phase": "Succeeded"}, "Succeeded")):
        assert kubectl_says(Pod.model_validate({"metadata": metadata, "status": status})) == said
