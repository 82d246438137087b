"""The server with an authority that the stack publishes: replicas, TLS and API server are real.

They have the files that the kubelet mounts and the rights that the stack gives. How the stack makes an authority and
rotates it is in test_admission.py.
"""

import base64
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import simulator
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.pairs import Pair
from manifests import admission
from testbed.admission.deployment import CONFIGURATIONS, Deployment, deployment, prepare
from testbed.inventory import connect
from testbed.kubelet import mount
from testbed.reused import ReusedSimulators
from testbed.stacks import parse, stack_certificates
from testbed.waiting import eventually
from tests.support.admission.pods import Load, is_mutated_now, served
from tests.support.pods.reservation_cases import NODE

SETTINGS = parse(stack_certificates())
_CONFIGURATION = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"


def _authority() -> Pair:
    return certificates.authority(dt.datetime.now(dt.UTC), dt.timedelta(days=1))


def _files(authority: Pair) -> dict[str, bytes]:
    return {"ca.crt": authority.certificate, "ca.key": authority.key}


def _trust(api: httpx2.Client, *authorities: Pair) -> None:
    value = base64.b64encode(b"".join(authority.certificate for authority in authorities)).decode()
    operations = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]
    headers = {"Content-Type": "application/json-patch+json"}
    assert api.patch(_CONFIGURATION, json=operations, headers=headers).status_code == httpx2.codes.OK


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificate") / "mounted"


@pytest.fixture(scope="module")
def api(reused_simulators: ReusedSimulators) -> Iterator[tuple[simulator.ControlPlane, httpx2.Client]]:
    with reused_simulators.lent() as control_plane, connect(control_plane) as api:
        prepare(api, SETTINGS, NODE)
        yield control_plane, api


@pytest.fixture(scope="module")
def server(
    api: tuple[simulator.ControlPlane, httpx2.Client], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    control_plane, client = api
    with deployment(tmp_path_factory.mktemp("admission") / "server", control_plane, client, SETTINGS) as server:
        server.install({"folder": str(folder)})
        yield server


def test_an_authority_is_exchanged_step_by_step_without_a_failed_request(server: Deployment, folder: Path) -> None:
    old, new = _authority(), _authority()
    mount(folder, _files(old))
    _trust(server.api, old)
    server.start()
    server.start()
    eventually(lambda: is_mutated_now(server.api))
    with Load(server.api) as load:

        def went_on() -> None:
            answered = load.answered
            eventually(lambda: load.answered > answered + 5)

        went_on()
        _trust(server.api, old, new)
        # API servers hear of a webhook configuration by a watch.
        went_on()
        mount(folder, _files(new))
        eventually(lambda: _issuers(server) == {new.leaf.subject})
        _trust(server.api, new)
        went_on()
    assert load.failures == []


def test_its_account_may_see_nodes_and_nothing_of_its_own_webhooks(
    api: tuple[simulator.ControlPlane, httpx2.Client], server: Deployment
) -> None:
    namespace = server.settings.admission.namespace
    user = f"system:serviceaccount:{namespace}:{admission.NAME}"
    with connect(api[0]) as client:
        for method, path, expected in (
            ("GET", "/api/v1/nodes", httpx2.codes.OK),
            ("GET", _CONFIGURATION, httpx2.codes.FORBIDDEN),
            ("PATCH", _CONFIGURATION, httpx2.codes.FORBIDDEN),
            ("GET", f"/api/v1/namespaces/{namespace}/secrets/{admission.NAME}-a", httpx2.codes.FORBIDDEN),
            ("GET", f"/api/v1/namespaces/{namespace}/secrets/{admission.NAME}", httpx2.codes.FORBIDDEN),
        ):
            headers = {"Content-Type": "application/merge-patch+json", "Impersonate-User": user}
            body = None if method == "GET" else {"metadata": {"labels": {"a": "b"}}}
            assert client.request(method, path, json=body, headers=headers).status_code == expected, path


def _issuers(server: Deployment) -> set[object]:
    return {served(replica.port, server.bundle(), server).issuer for replica in server.replicas}
