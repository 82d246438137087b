"""Stacks whose changes to pods are carried by the webhook: what the real engine installs, changes and takes away.

The simulator's pods are records, so the server itself does not run here: see tests/engine/admission.
"""

import json
from pathlib import Path

import httpx2

import simulator
from manifests import admission
from testbed.admission.deployment import CONFIGURATIONS
from testbed.engine import Stack
from testbed.inventory import connect, inventory, mutating_webhooks
from testbed.simulated import stack_settings
from testbed.stacks import Json, changed, gvirtus_webhook, webhook
from testbed.waiting import eventually

NAMESPACE = "kai-anywhere"
_AUTHORITY = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
"""Base64 of a PEM header: the API server reads it only when it calls the webhook."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"


def test_the_stack_installs_the_server_and_takes_everything_away_again(
    cluster: simulator.ControlPlane, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    with connect(cluster) as api:
        stack = Stack(tmp_path / "stack", stack_settings(webhook(), cluster), engine_environment)
        stack.up()
        deployment = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{admission.NAME}").json()
        assert deployment["spec"]["replicas"] == 2
        assert deployment["status"]["availableReplicas"] == 2, "its pods fit the namespace's pod-security level"
        configuration = api.get(f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}").json()
        assert configuration["webhooks"][0]["failurePolicy"] == "Fail"
        assert not api.get(POLICIES).json()["items"], "one carrier at a time"

        # What the server writes is not the stack's: a further run leaves it alone.
        patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": _AUTHORITY}]
        headers = {"Content-Type": "application/json-patch+json"}
        path = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"
        assert api.patch(path, json=patch, headers=headers).status_code == httpx2.codes.OK
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{admission.NAME}"
        held = api.get(secret).json() | {"data": {"tls.key": "a2V5"}}
        assert api.put(secret, json=held).status_code == httpx2.codes.OK
        assert not stack.up().changed
        stack.settings = changed(stack.settings, "admission.timeout_seconds", 3)
        assert "admission-reservation-webhook" in stack.up().changed
        webhook_now = api.get(path).json()["webhooks"][0]
        assert (webhook_now["timeoutSeconds"], webhook_now["clientConfig"]["caBundle"]) == (3, _AUTHORITY)
        assert api.get(secret).json()["data"] == {"tls.key": "a2V5"}

        # The other carrier takes over, and back: nothing of the server is left.
        stack.settings = changed(stack.settings, "cluster.kubernetes_version", "1.36")
        stack.settings = changed(stack.settings, "reservation.carrier", "policy")
        stack.up()
        assert [each["metadata"]["name"] for each in api.get(POLICIES).json()["items"]] == [
            "kai-anywhere-reservation-index",
            "kai-anywhere-reservation-overrides",
        ]
        assert not mutating_webhooks(api)
        eventually(lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}").status_code == httpx2.codes.NOT_FOUND)
        stack.destroy()
        eventually(lambda: not [found for found in inventory(api) if "kai-anywhere" in found])


def test_the_server_is_told_where_backends_answer_and_a_stack_goes_from_carrier_to_carrier(
    cluster: simulator.ControlPlane, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    told = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{admission.GVIRTUS_BACKENDS}"

    def backends() -> Json:
        document: Json = json.loads(api.get(told).json()["data"]["gvirtus-endpoints.json"])
        return document

    def address(backend: str) -> str:
        return str(api.get(f"/api/v1/namespaces/gvirtus-system/services/{backend}").json()["spec"]["clusterIP"])

    with connect(cluster) as api:
        stack = Stack(tmp_path / "stack", stack_settings(gvirtus_webhook(), cluster), engine_environment)
        try:
            stack.up()
            assert backends() == {"gpu-a": f"{address('gpu-a')}:9999", "gpu-b": "gpu-b.gvirtus-system.svc:14833"}
            assert not api.get(POLICIES).json()["items"], "one carrier at a time"
            assert mutating_webhooks(api) == {admission.RESERVATION_WEBHOOK, admission.GVIRTUS_WEBHOOK}
            assert set(stack.up().changes) == {"same"}

            # A backend that moves changes what the server reads, and nothing of the server.
            stack.settings = changed(stack.settings, "gvirtus.backends.gpu-a.port", 34567)
            assert stack.up().changed == {"gvirtus-service-gpu-a", "gvirtus-webhook-backends"}
            assert backends()["gpu-a"] == f"{address('gpu-a')}:34567"

            # The policies take over from the server, which stays for reservation pods.
            stack.settings = changed(stack.settings, "cluster.kubernetes_version", "1.36")
            stack.settings = changed(stack.settings, "gvirtus.carrier", "policy")
            stack.up()
            assert api.get(told).status_code == httpx2.codes.NOT_FOUND
            assert mutating_webhooks(api) == {admission.RESERVATION_WEBHOOK}
            assert {each["metadata"]["name"] for each in api.get(POLICIES).json()["items"]} == {
                "kai-anywhere-gvirtus-injection",
                "kai-anywhere-lupine-injection",
                "kai-anywhere-gvirtus-placement",
            }
        finally:
            stack.destroy()
        ours = ("kai-anywhere", "gvirtus")
        eventually(lambda: not [found for found in inventory(api) if any(mark in found for mark in ours)], within_s=240)
