"""The server's account may do what it must, and nothing more; its logs tell nothing of any pod."""

import json

import httpx2
import pytest

import simulator
from manifests import admission
from testbed.admission.deployment import CONFIGURATIONS, Deployment
from testbed.inventory import connect
from tests.support.admission.pods import is_mutated_now, pods


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", f"/api/v1/namespaces/kai-anywhere/secrets/{admission.NAME}", 200),
        ("GET", "/api/v1/namespaces/kai-anywhere/secrets", 403),
        ("GET", "/api/v1/namespaces/kai-anywhere/secrets/another", 403),
        ("GET", f"/api/v1/namespaces/default/secrets/{admission.NAME}", 403),
        ("DELETE", f"/api/v1/namespaces/kai-anywhere/secrets/{admission.NAME}", 403),
        ("PATCH", f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}", 200),
        ("PATCH", f"{CONFIGURATIONS}/another", 403),
        ("GET", CONFIGURATIONS, 403),
        ("GET", "/api/v1/nodes", 200),
        ("PATCH", "/api/v1/nodes/jetson-1", 403),
        ("GET", pods(), 403),
    ],
)
def test_each_right_ends_where_its_need_ends(
    cluster: simulator.ControlPlane, two_replicas: Deployment, method: str, path: str, expected: int
) -> None:
    with connect(cluster) as client:
        user = f"system:serviceaccount:{two_replicas.settings.admission.namespace}:{admission.NAME}"
        headers = {"Content-Type": "application/merge-patch+json", "Impersonate-User": user}
        body = None if method == "GET" else {"metadata": {"labels": {"a": "b"}}}
        assert client.request(method, path, json=body, headers=headers).status_code == expected


def test_logs_hold_no_content_of_any_pod_and_no_key(api: httpx2.Client, two_replicas: Deployment) -> None:
    assert is_mutated_now(api)
    text = json.dumps(two_replicas.logs())
    assert '"review"' in text
    for secret in ("resourcereservation", "runai-gpu-group", "PRIVATE KEY", "LD_LIBRARY_PATH"):
        assert secret not in text
