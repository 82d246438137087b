"""A stack whose changes to pods are carried by the webhook: what the real engine installs, changes and takes away.

One stack, which the tests below take through its life in their order. The simulator's pods are records, so the server
itself does not run here: see tests/engine/admission.
"""

import base64
import json
from collections.abc import Callable

import httpx2
import pytest

from manifests import admission
from testbed.admission.deployment import CONFIGURATIONS
from testbed.engine import Stack
from testbed.inventory import inventory, mutating_webhooks
from testbed.stacks import Json, changed, gvirtus_webhook
from testbed.waiting import eventually

NAMESPACE = "kai-anywhere"
_AUTHORITY = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
"""Base64 of a PEM header: the API server reads it only when it calls the webhook."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
_CONFIGURATION = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{admission.NAME}"
_TOLD = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{admission.GVIRTUS_BACKENDS}"


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """The stack with everything that the server can carry, up."""
    made = new_stack(gvirtus_webhook())
    made.up()
    return made


def test_the_stack_installs_the_server_and_leaves_what_the_server_writes_alone(
    stack: Stack, api: httpx2.Client
) -> None:
    deployment = api.get(_DEPLOYMENT).json()
    assert deployment["spec"]["replicas"] == 2
    assert deployment["status"]["availableReplicas"] == 2, "its pods fit the namespace's pod-security level"
    configuration = api.get(_CONFIGURATION).json()
    assert configuration["webhooks"][0]["failurePolicy"] == "Fail"
    assert mutating_webhooks(api) == {admission.RESERVATION_WEBHOOK, admission.GVIRTUS_WEBHOOK}
    assert not api.get(POLICIES).json()["items"], "one carrier at a time"

    patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": _AUTHORITY}]
    headers = {"Content-Type": "application/json-patch+json"}
    assert api.patch(_CONFIGURATION, json=patch, headers=headers).status_code == httpx2.codes.OK
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{admission.NAME}"
    held = api.get(secret).json() | {"data": {"tls.key": "a2V5"}}
    assert api.put(secret, json=held).status_code == httpx2.codes.OK
    assert set(stack.up().changes) == {"same"}
    stack.settings = changed(stack.settings, "admission.timeout_seconds", 3)
    assert "admission-reservation-webhook" in stack.up().changed
    webhook_now = api.get(_CONFIGURATION).json()["webhooks"][0]
    assert (webhook_now["timeoutSeconds"], webhook_now["clientConfig"]["caBundle"]) == (3, _AUTHORITY)
    assert api.get(secret).json()["data"] == {"tls.key": "a2V5"}


def test_the_server_is_told_where_backends_answer(stack: Stack, api: httpx2.Client) -> None:
    def backends() -> Json:
        document: Json = json.loads(api.get(_TOLD).json()["data"]["gvirtus-endpoints.json"])
        return document

    def address(backend: str) -> str:
        return str(api.get(f"/api/v1/namespaces/gvirtus-system/services/{backend}").json()["spec"]["clusterIP"])

    assert backends() == {"gpu-a": f"{address('gpu-a')}:9999", "gpu-b": f"{address('gpu-b')}:14833"}
    # A backend that moves changes what the server reads, and nothing of the server.
    stack.settings = changed(stack.settings, "gvirtus.backends.gpu-a.port", 34567)
    assert stack.up().changed == {"gvirtus-service-gpu-a", "gvirtus-webhook-backends"}
    assert backends()["gpu-a"] == f"{address('gpu-a')}:34567"


def test_the_stack_makes_an_authority_once_and_rotates_it_by_name(stack: Stack, api: httpx2.Client) -> None:
    """In place of the server's own, from which this is the way to it too; with such: test_admission_certificates.py."""

    def up(*authorities: str) -> set[str]:
        kind = {"kind": "stack", "authorities": list(authorities)}
        stack.settings = changed(stack.settings, "admission.certificates", kind)
        return set(stack.up().changed)

    def held(name: str) -> Json:
        secret = api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{admission.NAME}-{name}")
        return {} if secret.status_code == httpx2.codes.NOT_FOUND else secret.json()["data"]

    def trusted() -> bytes:
        [hook] = api.get(_CONFIGURATION).json()["webhooks"]
        return base64.b64decode(hook["clientConfig"]["caBundle"])

    def certificate(name: str) -> bytes:
        return base64.b64decode(held(name)["ca.crt"])

    up("a")
    first = held("a")
    assert trusted() == certificate("a")
    assert up("a") == set(), "a further run makes no other one"
    up("a", "b")
    assert held("a") == first
    assert trusted() == certificate("a") + certificate("b")
    assert "admission-deployment" in up("b", "a")
    volumes = api.get(_DEPLOYMENT).json()["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": f"{admission.NAME}-b", "defaultMode": 420} in [volume.get("secret") for volume in volumes]
    up("b")
    assert trusted() == certificate("b")
    assert held("a") == {}
    files = [path for path in (stack.folder / "state").rglob("*") if path.is_file()]
    state = "".join(path.read_text(encoding="utf-8") for path in files)
    assert f"{admission.NAME}-b" in state
    for key in (first["ca.key"], held("b")["ca.key"]):
        assert key not in state, "encrypted there"
    assert "PRIVATE KEY" not in state


def test_a_stack_goes_from_carrier_to_carrier(stack: Stack, api: httpx2.Client) -> None:
    # The policies take over from the server, which stays for reservation pods.
    stack.settings = changed(stack.settings, "cluster.kubernetes_version", "1.36")
    stack.settings = changed(stack.settings, "gvirtus.carrier", "policy")
    stack.up()
    assert api.get(_TOLD).status_code == httpx2.codes.NOT_FOUND
    assert mutating_webhooks(api) == {admission.RESERVATION_WEBHOOK}
    of_remote_gpus = {
        "kai-anywhere-gvirtus-injection",
        "kai-anywhere-lupine-injection",
        "kai-anywhere-gvirtus-placement",
    }
    assert _policies(api) == of_remote_gpus

    # Then from the server for those too: nothing of it is left, so its namespace is given to nobody in that run.
    without_server = changed(stack.settings, "reservation.carrier", "policy")
    metrics = {"enabled": True, "image": "registry.example.com/metrics:0.1.0", "namespace": NAMESPACE}
    stack.settings = changed(without_server, "monitoring", metrics)
    assert "want it as 'monitoring-namespace'" in stack.up(expect=None).output
    assert api.get(_DEPLOYMENT).status_code == httpx2.codes.OK
    stack.settings = without_server
    stack.up()
    assert _policies(api) - of_remote_gpus == {"kai-anywhere-reservation-index", "kai-anywhere-reservation-overrides"}
    assert not mutating_webhooks(api)
    eventually(lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}").status_code == httpx2.codes.NOT_FOUND)


def test_destroy_takes_everything_away_again(stack: Stack, api: httpx2.Client) -> None:
    stack.destroy()
    ours = ("kai-anywhere", "gvirtus")
    eventually(lambda: not [name for name in inventory(api) if any(mark in name for mark in ours)], within_seconds=240)


def _policies(api: httpx2.Client) -> set[str]:
    return {item["metadata"]["name"] for item in api.get(POLICIES).json()["items"]}
