"""Reservation pods: the carrier `webhook` makes the same ones as the carrier `policy`, and nothing beyond."""

import base64
from collections.abc import Callable

import httpx2
import pytest

from manifests import admission
from testbed.admission.deployment import Deployment, make, remove
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.support.admission.pods import all_of, is_mutated, is_mutated_now, outcome, pods, post, reviews
from tests.support.pods.reservation_cases import CASES, CHANGED, NODE, REFUSED, as_binder_creates, case_pod


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_").replace("_", "-"))
def test_both_carriers_make_the_same_pod(
    api: httpx2.Client,
    two_replicas: Deployment,
    by_policy: dict[str, Json | None],
    case: Callable[[Json], None],
) -> None:
    assert two_replicas.replicas
    expected = by_policy[case.__name__]
    result = outcome(post(api, case_pod(case)))
    assert result == expected
    assert (result is None) == (case.__name__ in REFUSED)
    if result is not None:
        assert is_mutated({"spec": result}) == (case.__name__ in CHANGED)


def test_a_second_pass_changes_nothing(api: httpx2.Client, two_replicas: Deployment) -> None:
    assert two_replicas.replicas
    first = post(api, as_binder_creates()).json()
    again = as_binder_creates() | {"spec": first["spec"]}
    assert outcome(post(api, again)) == outcome(post(api, as_binder_creates()))


def test_kai_may_patch_the_pod_and_remove_its_finalizer(api: httpx2.Client, two_replicas: Deployment) -> None:
    assert two_replicas.replicas
    pod = as_binder_creates()
    pod["metadata"]["finalizers"] = ["test/wait"]
    created = post(api, pod, dry_run=False).json()
    path = f"{pods()}/{created['metadata']['name']}"
    headers = {"Content-Type": "application/merge-patch+json"}
    for change in ({"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}, {"labels": {"a": "b"}}):
        answer = api.patch(path, json={"metadata": change}, headers=headers)
        assert answer.status_code == httpx2.codes.OK, answer.text
        annotations = answer.json()["metadata"]["annotations"]
        # As the policy has it: tests/engine/reservation/test_pods.py.
        assert annotations["run.ai/reserve_for_gpu_index"] == "0"
        assert annotations["kai-anywhere.io/gpu-uuid"] == "GPU-1"
    api.delete(path, params={"gracePeriodSeconds": "0"})
    answer = api.patch(path, json={"metadata": {"finalizers": None}}, headers=headers)
    assert answer.status_code == httpx2.codes.OK, answer.text
    eventually(lambda: api.get(path).status_code == httpx2.codes.NOT_FOUND)


def test_a_node_that_loses_its_label_gets_no_more_overrides(api: httpx2.Client, two_replicas: Deployment) -> None:
    assert two_replicas.replicas
    headers = {"Content-Type": "application/merge-patch+json"}

    def label(value: str | None) -> None:
        body = {"metadata": {"labels": {"kai-anywhere.io/platform": value}}}
        assert api.patch(f"/api/v1/nodes/{NODE}", json=body, headers=headers).status_code == httpx2.codes.OK

    label(None)
    try:
        eventually(lambda: all_of(4, lambda: not is_mutated_now(api)))
    finally:
        label("tegra")
        eventually(lambda: all_of(4, lambda: is_mutated_now(api)))


def test_a_webhook_that_sends_pods_of_another_namespace_brings_them_no_privilege(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    wide = two_replicas.reachable(admission.reservation_webhook(two_replicas.settings))
    wide["metadata"] = {"name": "too-wide"}
    wide["webhooks"][0] |= {"name": "wide.test.io", "namespaceSelector": {}}
    wide["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(two_replicas.bundle()).decode()
    make(api, wide)
    try:
        before = reviews(two_replicas, "reservation", "unchanged")
        pod = as_binder_creates()
        pod["metadata"]["namespace"] = "default"
        del pod["spec"]["serviceAccountName"]

        def arrived() -> bool:
            response = post(api, pod)
            assert response.status_code == httpx2.codes.CREATED, response.text
            assert not is_mutated(response.json())
            return reviews(two_replicas, "reservation", "unchanged") > before

        eventually(arrived)
    finally:
        remove(api, wide)
