"""What holds up the end of a stack, in whose words, and what a person can do."""

from typing import Any

import pytest

from cluster.access.client import Cluster
from cluster.going import Held, held_up, hooks_of_installation
from tests.support.api_server import ApiServer

KAI = ("kai-scheduler", "kai-scheduler")
_JOBS = "/apis/batch/v1/namespaces/kai-scheduler/jobs"
_PODS = "/api/v1/namespaces/kai-scheduler/pods"
_EVENTS = "/api/v1/namespaces/kai-scheduler/events"
_NAMESPACE = "/api/v1/namespaces/gpu-operator"
_JOB = "Job 'post-delete-cleanup' in namespace 'kai-scheduler', a hook of a Helm release"


def _job(
    when: str = "post-delete", *, manager: str = "pulumi-resource-kubernetes", ended: bool = False
) -> dict[str, Any]:
    metadata = {
        "name": "post-delete-cleanup",
        "namespace": "kai-scheduler",
        "annotations": {"helm.sh/hook": when},
        "managedFields": [{"manager": manager}],
    }
    return {"metadata": metadata, "status": {"conditions": [{"type": "Complete", "status": "True"}] if ended else []}}


def _pod(owner: str = "post-delete-cleanup", **status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    owners = [{"kind": "Job", "name": owner}]
    return {
        "metadata": {"name": f"{owner}-x", "namespace": "kai-scheduler", "ownerReferences": owners},
        "status": status,
    }


_NO_NODE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient memory."}
_NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}


@pytest.mark.parametrize(
    ("pods", "events", "why"),
    [
        ([_pod(phase="Pending", conditions=[_NO_NODE])], [], "pod post-delete-cleanup-x: 0/3 nodes are available: 3"),
        (
            [_pod("other"), _pod(phase="Pending", containerStatuses=[{"state": _NO_IMAGE}])],
            [],
            "pod post-delete-cleanup-x: ImagePullBackOff: Back-off pulling image",
        ),
        ([_pod(phase="Running")], ["of an earlier pod"], "pod post-delete-cleanup-x is Running"),
        ([_pod("other")], ["older", "exceeded quota: none"], "its pods are refused: exceeded quota: none"),
        ([], [], ""),
    ],
    ids=["no node", "no image", "runs", "quota", "nobody says"],
)
def test_the_job_that_helm_waits_for_is_named_in_the_words_of_whoever_keeps_it(
    api: ApiServer, cluster: Cluster, pods: list[Any], events: list[str], why: str
) -> None:
    api.serve(_JOBS, {"items": [_job()]})
    api.serve(_PODS, {"items": pods})
    api.serve(_EVENTS, {"items": [{"message": message} for message in events]})
    [held] = held_up(cluster, [KAI], [])
    assert held.what == _JOB
    assert held.why.startswith(why)
    assert bool(held.why) is bool(why)
    assert "kubectl --namespace kai-scheduler delete job post-delete-cleanup\n" in held.ways_out


@pytest.mark.parametrize(
    "job",
    [_job("pre-install"), _job(manager="helm"), _job(ended=True), _job("")],
    ids=["of an installation", "of somebody's Helm", "ended", "no hook"],
)
def test_other_jobs_hold_nothing_up(api: ApiServer, cluster: Cluster, job: dict[str, Any]) -> None:
    api.serve(_JOBS, {"items": [job]})
    assert list(held_up(cluster, [KAI], [])) == []


@pytest.mark.parametrize("when", ["pre-install", "post-install,post-upgrade"])
def test_the_job_that_helm_waits_for_while_it_installs_is_named_likewise(
    api: ApiServer, cluster: Cluster, when: str
) -> None:
    api.serve(_JOBS, {"items": [_job(when), _job("post-delete"), _job(when, manager="helm"), _job(when, ended=True)]})
    api.serve(_PODS, {"items": [_pod(phase="Running")]})
    assert list(hooks_of_installation(cluster, "kai-scheduler")) == [(_JOB, "pod post-delete-cleanup-x is Running")]


def test_a_namespace_that_does_not_go_is_told_in_kubernetes_words(api: ApiServer, cluster: Cluster) -> None:
    conditions = [
        {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources successfully ..."},
        {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: configmaps."},
        {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "Finalizers remaining: example.com/x"},
    ]
    metadata: dict[str, Any] = {"name": "gpu-operator", "uid": "u"}
    api.serve(_NAMESPACE, {"metadata": metadata, "status": {"conditions": conditions}})
    assert list(held_up(cluster, [], ["gpu-operator"])) == [], "nobody deletes it"
    metadata["deletionTimestamp"] = "2026-11-28T12:00:00Z"
    api.serve(_NAMESPACE, {"metadata": metadata, "status": {"conditions": conditions[:1]}})
    assert list(held_up(cluster, [], ["gpu-operator"])) == [], "it goes"
    api.serve(_NAMESPACE, {"metadata": metadata, "status": {"conditions": conditions}})
    [held] = held_up(cluster, [], ["gpu-operator", "not-there"])
    assert held == Held(
        "namespace 'gpu-operator' to be gone",
        "Some resources are remaining: configmaps; Finalizers remaining: example.com/x",
        held.ways_out,
        60,
    )
    assert "kubectl get namespace gpu-operator -o jsonpath='{.status.conditions}'" in held.ways_out
