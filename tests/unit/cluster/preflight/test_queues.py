"""Queues that leave a stack while something is in them."""

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.queues import judge_leaving_queues, read_leaving_queues
from cluster.preflight.run import run_preflight
from testbed.stacks import Json, changed, parse, x86
from tests.support.api_server import RUNTIME_CLASS, ApiServer, node

_PODS = "/api/v1/pods"
_GROUPS = "/apis/scheduling.run.ai/v2alpha2/podgroups"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_DEPLOYED = DeployedState(
    deployed=True,
    objects=frozenset(
        # As the provider names a kind that came with the same run, and as the state is read then.
        {"Queue/default/night", "Queue/night", "Queue/robots", "Queue/default-queue", "Queue/default-parent-queue"}
    ),
)
_STACK = changed(x86(), "kai.queues", {"day": {}, "robots": {"parent": "day"}})


def _pod(
    name: str, queue: str = "", *, group: str = "", phase: str = "Pending", scheduler: str = "kai-scheduler"
) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "labels": {"kai.scheduler/queue": queue} if queue else {},
            "annotations": {"pod-group-name": group} if group else {},
        },
        "spec": {"schedulerName": scheduler},
        "status": {"phase": phase},
    }


def _queue(name: str, parent: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent}}


def _findings(cluster: Cluster, settings: Json = _STACK, state: DeployedState = _DEPLOYED) -> list[Finding]:
    return list(judge_leaving_queues(read_leaving_queues(cluster, parse(settings), state)))


def test_pods_of_a_queue_that_goes_are_named_whether_by_their_label_or_by_their_group(
    cluster: Cluster, api: ApiServer
) -> None:
    pods = [
        _pod("waits", "night"),
        _pod("trains", group="of-a-deployment", phase="Running"),
        _pod("moved", "night", group="elsewhere"),
        _pod("ended", "night", phase="Succeeded"),
        _pod("of-another-scheduler", "night", scheduler="default-scheduler"),
        _pod("stays", "robots"),
    ]
    groups = [
        {"metadata": {"name": "of-a-deployment", "namespace": "ml"}, "spec": {"queue": "night"}},
        {"metadata": {"name": "elsewhere", "namespace": "ml"}, "spec": {"queue": "robots"}},
    ]
    api.serve(_PODS, {"items": pods})
    api.serve(_GROUPS, {"items": groups})
    [finding] = _findings(cluster)
    assert not finding.fatal
    assert finding.what == (
        "this run deletes the queue 'night', and pods are in it: ml/trains, ml/waits. What waits there stays Pending, "
        "and so does what is submitted to it later."
    )
    # A parent takes no pods.
    assert "with the label kai.scheduler/queue of another queue: default-queue, robots." in finding.remedy


def test_queues_of_others_below_one_that_goes_are_named_and_the_stacks_own_are_not(
    cluster: Cluster, api: ApiServer
) -> None:
    api.serve(_QUEUES, {"items": [_queue("theirs", "night"), _queue("robots", "night"), _queue("apart", "day")]})
    [finding] = _findings(cluster)
    assert not finding.fatal
    assert "it is the parent of queues that are not this stack's: theirs. KAI ignores" in finding.what


def test_a_queue_that_nobody_uses_goes_without_a_word(cluster: Cluster, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("stays", "robots"), _pod("nowhere")]})
    assert _findings(cluster) == []


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        (changed(_STACK, "kai.queues.night", {}), _DEPLOYED),
        (_STACK, DeployedState()),
        # What was adopted is given back, not deleted.
        (_STACK, DeployedState(deployed=True, objects=_DEPLOYED.objects, adopted={"Queue/night": {}})),
    ],
    ids=["stays", "never deployed", "adopted"],
)
def test_where_no_queue_goes_nobody_is_asked(
    cluster: Cluster, api: ApiServer, settings: Json, state: DeployedState
) -> None:
    api.serve(_PODS, {"items": [_pod("waits", "night")]})
    assert _findings(cluster, settings, state) == []
    assert api.asked == []


def test_a_user_who_may_see_no_pods_is_told_nothing(cluster: Cluster, api: ApiServer) -> None:
    api.fail(_PODS, 403)
    api.fail(_QUEUES, 403)
    assert _findings(cluster) == []


def test_a_server_that_does_not_answer_is_an_error(cluster: Cluster, api: ApiServer) -> None:
    api.fail("/api/v1/nodes", 503)
    with pytest.raises(ClusterUnreachableError):
        _findings(cluster)


def test_preflight_says_it(config_path: str, api: ApiServer) -> None:
    api.serve(_PODS, {"items": [_pod("waits", "night")]})
    api.serve("/api/v1/nodes", {"items": [node("gpu-7")]})
    api.serve(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}})
    settings = parse(changed(_STACK, "cluster.kubeconfig", config_path))
    state = DeployedState(objects=frozenset({"Queue/night"}))
    [warning] = run_preflight(settings, state, preview=True).warnings
    assert "this run deletes the queue 'night', and pods are in it: ml/waits." in warning
