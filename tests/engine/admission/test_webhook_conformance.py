"""The cases of Kubernetes' own conformance tests of webhooks, as far as they concern this server's webhooks.

Those are the tests of test/e2e/apimachinery/webhook.go: fail closed, timeouts, match conditions, no power over webhook
configurations, reinvocation. Cases of other kinds of objects and of the configurations'
own API are not repeated.
"""

import base64
import copy
import datetime as dt

import httpx2
import pytest

from agents.admission.certificates import pairs as certificates
from manifests import admission
from manifests.objects import Manifest, manifests
from testbed.admission.deployment import CONFIGURATIONS, Deployment, make, remove
from testbed.stacks import Json
from testbed.waiting import eventually
from tests.support.admission.pods import NAMESPACE, is_mutated, is_mutated_now, plain_pod, post, reviews
from tests.support.pods.reservation_cases import as_binder_creates


class TestWhileNoReplicaAnswers:
    """Fail closed for what it is for; nothing else is touched."""

    def test_reservation_pods_are_refused_and_everything_else_goes_on(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        two_replicas.kill()
        answer = post(api, as_binder_creates())
        assert answer.status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        assert "failed calling webhook" in answer.json()["message"]
        for pod in (
            plain_pod("kube-system", {"gvirtus.io/enabled": "true", "app": "kai-resource-reservation"}),
            plain_pod("default", {"app": "kai-resource-reservation"}),
            plain_pod(NAMESPACE, {}),
        ):
            answer = post(api, pod)
            assert answer.status_code == httpx2.codes.CREATED, answer.text
        two_replicas.start()
        eventually(lambda: is_mutated_now(api))

    def test_the_server_itself_and_kube_system_start_with_nobody_to_ask(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        """By their own controllers, with the labels of both webhooks: nothing waits for what only they could start."""
        two_replicas.kill()
        own = manifests(admission.objects(two_replicas.settings))["deployment"]
        system = _deployment("kube-system", {"gvirtus.io/enabled": "true", "app": "kai-resource-reservation"})
        selfish = _deployment(own["metadata"]["namespace"], {"gvirtus.io/enabled": "true"})
        deployments = [own, system, selfish]
        for manifest in deployments:
            make(api, manifest)
        try:
            for manifest in deployments:
                namespace, name = (manifest["metadata"][key] for key in ("namespace", "name"))
                path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
                replicas = manifest["spec"].get("replicas", 1)
                eventually(lambda: api.get(path).json()["status"].get("availableReplicas") == replicas)  # noqa: B023
            assert post(api, as_binder_creates()).status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        finally:
            for manifest in deployments:
                remove(api, manifest)

    def test_a_pod_that_the_match_condition_leaves_out_is_not_even_sent(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        two_replicas.kill()
        assert post(api, as_binder_creates(node=None)).status_code == httpx2.codes.CREATED
        assert post(api, as_binder_creates()).status_code == httpx2.codes.INTERNAL_SERVER_ERROR

    def test_no_webhook_can_hinder_its_own_removal_or_change_a_configuration(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        two_replicas.kill()
        everything = two_replicas.reachable(admission.reservation_webhook(two_replicas.settings))
        everything["metadata"] = {"name": "everything"}
        resources = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations", "runtimeclasses"]
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources, "scope": "*"}
        everything["webhooks"][0] |= {"name": "all.test.io", "rules": [rule], "objectSelector": {}}
        everything["webhooks"][0] |= {"namespaceSelector": {}, "matchConditions": []}
        other = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "o"}, "handler": "o"}

        def refused() -> bool:
            answer = api.post("/apis/node.k8s.io/v1/runtimeclasses", json=other, params={"dryRun": "All"})
            return "all.test.io" in answer.text

        make(api, everything)
        try:
            eventually(refused)
            # In force, and nobody answers: yet every configuration comes, changes and goes as its owner wants.
            second: Manifest = copy.deepcopy(everything) | {"metadata": {"name": "second"}}
            make(api, second)
            path = f"{CONFIGURATIONS}/second"
            patch = [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7}]
            headers = {"Content-Type": "application/json-patch+json"}
            changed = api.patch(path, json=patch, headers=headers)
            assert changed.status_code == httpx2.codes.OK, changed.text
            assert changed.json()["webhooks"][0]["timeoutSeconds"] == 7
            remove(api, second)
            assert refused()
        finally:
            remove(api, everything)
        eventually(lambda: not refused())


def _deployment(namespace: str, labels: dict[str, str]) -> Manifest:
    """One pod with these labels that fits every Pod Security level."""
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "busybox:1", "securityContext": context}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bootstrap", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def test_a_server_that_can_not_be_trusted_is_one_that_does_not_answer(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    """Conformance reaches its fail-closed webhook like this: it runs, and its caBundle is somebody else's."""
    stranger = certificates.issue("stranger.default.svc", dt.datetime.now(dt.UTC), dt.timedelta(hours=1))
    wrong = two_replicas.reachable(admission.reservation_webhook(two_replicas.settings))
    wrong["metadata"] = {"name": "aaa-stranger"}
    bundle = certificates.bundle([stranger.certificate], dt.datetime.now(dt.UTC))
    wrong["webhooks"][0] |= {"name": "stranger.test.io"}
    wrong["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    make(api, wrong)
    try:
        eventually(lambda: "stranger.test.io" in post(api, as_binder_creates()).text)
        answer = post(api, as_binder_creates())
        assert answer.status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        assert "x509: certificate signed by unknown authority" in answer.json()["message"]
        assert post(api, plain_pod(NAMESPACE, {})).status_code == httpx2.codes.CREATED
    finally:
        remove(api, wrong)
    eventually(lambda: is_mutated_now(api))


@pytest.mark.parametrize(
    ("timeout_seconds", "failure_policy", "allowed", "mutated"),
    [(1, "Fail", False, False), (1, "Ignore", True, False), (10, "Fail", True, True), (10, "Ignore", True, True)],
)
def test_a_slow_answer_counts_within_the_timeout_alone(  # noqa: PLR0913 - a table
    api: httpx2.Client,
    two_replicas: Deployment,
    *,
    timeout_seconds: int,
    failure_policy: str,
    allowed: bool,
    mutated: bool,
) -> None:
    path = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"

    def configure(seconds: int, policy: str) -> None:
        operations = [
            {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": seconds},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy},
        ]
        headers = {"Content-Type": "application/json-patch+json"}
        assert api.patch(path, json=operations, headers=headers).status_code == httpx2.codes.OK

    configure(timeout_seconds, failure_policy)
    try:
        # Each piece that the API server sends is held back: longer than one second, shorter than ten.
        two_replicas.service.delay_seconds = 1.5
        response = httpx2.Response(500)

        def as_configured() -> bool:
            nonlocal response
            response = post(api, as_binder_creates())
            if (response.status_code == httpx2.codes.CREATED) != allowed:
                return False
            return not allowed or is_mutated(response.json()) == mutated

        eventually(as_configured)
        if not allowed:
            assert "context deadline exceeded" in response.text
    finally:
        two_replicas.service.delay_seconds = 0
        configure(5, "Fail")
        eventually(lambda: is_mutated_now(api))


def test_a_change_by_a_later_webhook_brings_the_pod_back_and_adds_nothing_twice(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    pod = as_binder_creates()
    pod["metadata"]["labels"]["gvirtus.io/enabled"] = "true"
    later = _remote_gpus_for_reservation_pods(two_replicas)
    make(api, later)
    try:

        def asked_twice() -> bool:
            before = reviews(two_replicas, "reservation", "changed", "unchanged")
            created = post(api, pod).json()
            [container] = created["spec"]["containers"]
            assert container["securityContext"]["privileged"] is True
            for kind in ("env", "volumeMounts"):
                keys = [entry.get("mountPath") or entry["name"] for entry in container[kind]]
                assert len(keys) == len(set(keys)), f"{kind} was added twice"
            assert "gvirtus.io/properties" in created["metadata"]["annotations"]
            return reviews(two_replicas, "reservation", "changed", "unchanged") - before == 2

        eventually(asked_twice)
    finally:
        remove(api, later)


def _remote_gpus_for_reservation_pods(server: Deployment) -> Json:
    """The stack's leaves these pods out; this one comes after the stack's in the alphabet."""
    later = server.reachable(admission.gvirtus_webhook(server.settings))
    later["metadata"] = {"name": "zzz-later"}
    later["webhooks"][0] |= {"name": "later.test.io", "namespaceSelector": {}}
    later["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(server.bundle()).decode()
    return later
