"""An authority that the stack publishes: server, TLS, API server and engine are real."""

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
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.kubelet import mount
from testbed.simulated import stack_settings, start
from testbed.stacks import Json, changed, parse, stack_certificates, webhook
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


class TestServer:
    """The replicas, with the files that the kubelet mounts and the rights that the stack gives."""

    @pytest.fixture(scope="class")
    @staticmethod
    def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("certificate") / "mounted"

    @pytest.fixture(scope="class")
    @staticmethod
    def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[simulator.ControlPlane, httpx2.Client]]:
        with start(tmp_path_factory.mktemp("cluster") / "simulator") as control_plane, connect(control_plane) as api:
            prepare(api, SETTINGS, NODE)
            yield control_plane, api

    @pytest.fixture(scope="class")
    @staticmethod
    def server(
        api: tuple[simulator.ControlPlane, httpx2.Client], folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Deployment]:
        control_plane, client = api
        with deployment(tmp_path_factory.mktemp("admission") / "server", control_plane, client, SETTINGS) as server:
            server.install({"folder": str(folder)})
            yield server

    def test_an_authority_is_exchanged_step_by_step_without_a_failed_request(
        self, server: Deployment, folder: Path
    ) -> None:
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
        self, api: tuple[simulator.ControlPlane, httpx2.Client], server: Deployment
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


def test_the_stack_makes_an_authority_once_and_rotates_it_by_name(
    cluster: simulator.ControlPlane, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    with connect(cluster) as api:
        settings = stack_settings(webhook(), cluster)
        stack = Stack(tmp_path / "stack", settings, engine_environment)

        def up(*authorities: str) -> set[str]:
            kind = {"kind": "stack", "authorities": list(authorities)}
            stack.settings = changed(settings, "admission.certificates", kind)
            return set(stack.up().changed)

        def held(name: str) -> Json:
            found = api.get(f"/api/v1/namespaces/kai-anywhere/secrets/{admission.NAME}-{name}")
            return {} if found.status_code == httpx2.codes.NOT_FOUND else found.json()["data"]

        def trusted() -> bytes:
            [hook] = api.get(_CONFIGURATION).json()["webhooks"]
            return base64.b64decode(hook["clientConfig"]["caBundle"])

        def certificate(name: str) -> bytes:
            return base64.b64decode(held(name)["ca.crt"])

        try:
            up("a")
            first = held("a")
            assert trusted() == certificate("a")
            assert up("a") == set(), "a further run makes no other one"
            up("a", "b")
            assert held("a") == first
            assert trusted() == certificate("a") + certificate("b")
            assert "admission-deployment" in up("b", "a")
            mounted = api.get(f"/apis/apps/v1/namespaces/kai-anywhere/deployments/{admission.NAME}").json()
            volumes = mounted["spec"]["template"]["spec"]["volumes"]
            assert {"secretName": f"{admission.NAME}-b", "defaultMode": 420} in [each.get("secret") for each in volumes]
            up("b")
            assert trusted() == certificate("b")
            assert held("a") == {}
            files = [path for path in (stack.folder / "state").rglob("*") if path.is_file()]
            state = "".join(path.read_text(encoding="utf-8") for path in files)
            assert f"{admission.NAME}-b" in state
            for key in (first["ca.key"], held("b")["ca.key"]):
                assert key not in state, "encrypted there"
            assert "PRIVATE KEY" not in state
        finally:
            stack.destroy()
