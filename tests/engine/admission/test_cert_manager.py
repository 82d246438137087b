"""Certificates from cert-manager. It is emulated; API server, server, TLS and the objects of the stack are real."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from manifests import admission
from manifests.objects import manifests
from testbed.admission.deployment import CONFIGURATIONS, Deployment, deployment, prepare
from testbed.inventory import connect
from testbed.kubelet import mount
from testbed.reused import ReusedSimulators
from testbed.stacks import Json, cert_manager, parse
from testbed.waiting import eventually
from tests.support.admission.cert_manager import GROUP, CertManager
from tests.support.admission.pods import Load, is_mutated_now, post, served
from tests.support.pods.reservation_cases import NODE, as_binder_creates

SETTINGS = parse(cert_manager())
_CERTIFICATES = f"/apis/{GROUP}/v1/namespaces/{SETTINGS.admission.namespace}/certificates"
_CONFIGURATION = f"{CONFIGURATIONS}/{admission.RESERVATION_WEBHOOK}"


@dataclass(frozen=True)
class World:
    """A cluster with cert-manager and the server.

    Attributes:
        api: the cluster.
        manager: cert-manager.
        server: two replicas.
        folder: where the kubelet mounts the certificate.
    """

    api: httpx2.Client
    manager: CertManager
    server: Deployment
    folder: Path

    def renew(self) -> None:
        """The certificate is signed anew and mounted."""
        mount(self.folder, self.manager.issue())

    def serials(self) -> set[int]:
        """Of the certificates that the replicas present to who trusts caBundle."""
        bundle = self.server.bundle()
        return {served(replica.port, bundle, self.server).serial_number for replica in self.server.replicas}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, reused_simulators: ReusedSimulators) -> Iterator[World]:
    with reused_simulators.lent() as control_plane, connect(control_plane) as api:
        prepare(api, SETTINGS, NODE)
        manager = CertManager(api, "cluster-ca")
        manager.install()
        folder = tmp_path_factory.mktemp("certificate") / "mounted"
        with deployment(tmp_path_factory.mktemp("admission") / "server", control_plane, api, SETTINGS) as server:
            server.install({"folder": str(folder)})
            made = World(api, manager, server, folder)
            made.renew()
            assert manager.inject() == 1
            server.start()
            server.start()
            eventually(lambda: is_mutated_now(api))
            yield made


def _misspelled(spec: Json) -> None:
    spec["secretname"] = spec.pop("secretName")


def _unknown_usage(spec: Json) -> None:
    spec["usages"] = ["serve"]


@pytest.mark.parametrize(("change", "refused"), [(None, None), (_misspelled, "secretname"), (_unknown_usage, "serve")])
def test_the_certificate_has_the_fields_of_cert_managers_api(
    world: World, change: Callable[[Json], None] | None, refused: str | None
) -> None:
    certificate = manifests(admission.objects(SETTINGS))["certificate"]
    certificate["metadata"]["name"] = "another"
    if change is not None:
        change(certificate["spec"])
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = world.api.post(_CERTIFICATES, json=certificate, params=params)
    assert (answer.status_code == httpx2.codes.CREATED) == (refused is None), answer.text
    assert refused is None or refused in answer.text


def test_a_renewed_certificate_is_served_without_a_restart_and_without_a_failed_request(world: World) -> None:
    before, bundle = world.serials(), world.server.bundle()
    processes = [replica.process.pid for replica in world.server.replicas]
    with Load(world.api) as load:
        eventually(lambda: load.answered > 20)
        world.renew()
        eventually(lambda: not world.serials() & before)
        answered = load.answered
        eventually(lambda: load.answered > answered + 20)
    assert load.failures == []
    assert len(world.serials()) == 1, "both replicas serve the one certificate"
    assert world.server.bundle() == bundle, "the authority is the same, and the server writes nothing"
    assert [replica.process.pid for replica in world.server.replicas if replica.process.poll() is None] == processes


def test_a_certificate_that_does_not_fit_is_not_served(world: World) -> None:
    before = world.serials()
    files = world.manager.issue()
    mount(world.folder, files | {"tls.key": world.manager.issue()["tls.key"]})
    try:
        text = "the key does not belong to the certificate"
        eventually(lambda: any(text in line.get("error", "") for line in world.server.logs()))
        assert world.serials() == before
        assert is_mutated_now(world.api)
    finally:
        world.renew()
    eventually(lambda: not world.serials() & before)


def test_replicas_are_ready_once_the_authority_is_injected(world: World) -> None:
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    headers = {"Content-Type": "application/json-patch+json"}
    assert world.api.patch(_CONFIGURATION, json=patch, headers=headers).status_code == httpx2.codes.OK
    try:
        for replica in world.server.replicas:
            eventually(lambda: replica.ask("/readyz") == (503, "caBundle not published\n"))  # noqa: B023
        eventually(lambda: "failed to verify certificate" in post(world.api, as_binder_creates()).text)
    finally:
        assert world.manager.inject() == 1
    for replica in world.server.replicas:
        eventually(lambda: replica.ask("/readyz")[0] == httpx2.codes.OK)  # noqa: B023
    eventually(lambda: is_mutated_now(world.api))


def test_while_a_new_authority_is_ahead_of_the_mounted_files_pods_are_refused(world: World) -> None:
    """cert-manager publishes no two authorities at once: fail closed, until the kubelet has refreshed the files."""
    world.manager.renew_authority()
    files = world.manager.issue()
    world.manager.inject()
    eventually(lambda: "certificate signed by unknown authority" in post(world.api, as_binder_creates()).text)
    mount(world.folder, files)
    eventually(lambda: is_mutated_now(world.api))
