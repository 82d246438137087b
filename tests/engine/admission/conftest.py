"""One API server with the admission server before it, for every test here."""

from collections.abc import Iterator

import httpx2
import pytest

import simulator
from config.reservation import Privilege
from manifests import reservation
from testbed.admission.deployment import Deployment, deployment, make, prepare, remove
from testbed.admission.objects import ENDPOINTS, stack
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.stacks import Json, jetson, parse, webhook
from testbed.waiting import eventually
from tests.support.admission.pods import (
    LIFETIME_SECONDS,
    PROPAGATION_SECONDS,
    is_mutated,
    is_mutated_now,
    outcome,
    post,
)
from tests.support.pods.reservation_cases import CASES, NODE, as_binder_creates, case_pod


@pytest.fixture(scope="package")
def cluster(reused_simulators: ReusedSimulators) -> Iterator[simulator.ControlPlane]:
    with reused_simulators.lent() as control_plane:
        yield control_plane


@pytest.fixture(scope="package")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        prepare(connected, parse(webhook()), NODE)
        yield connected


@pytest.fixture(scope="package")
def by_policy(api: httpx2.Client) -> dict[str, Json | None]:
    """What the carrier `policy` makes of every case, before there is a webhook."""
    settings = parse(jetson())
    objects = [
        reservation.overrides_policy(settings, Privilege.PRIVILEGED),
        reservation.overrides_binding(settings, Privilege.PRIVILEGED),
    ]
    for manifest in objects:
        make(api, manifest)
    eventually(lambda: is_mutated(post(api, as_binder_creates()).json()))
    results = {case.__name__: outcome(post(api, case_pod(case))) for case in CASES}
    for manifest in reversed(objects):
        remove(api, manifest)
    eventually(lambda: not is_mutated(post(api, as_binder_creates()).json()))
    return results


@pytest.fixture(scope="package")
def server(
    api: httpx2.Client,
    cluster: simulator.ControlPlane,
    by_policy: dict[str, Json | None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Two replicas whose certificates live shortly, and the webhooks of both mutations."""
    assert by_policy
    folder = tmp_path_factory.mktemp("admission") / "server"
    with deployment(folder, cluster, api, parse(stack())) as made:
        made.install({"lifetime_seconds": LIFETIME_SECONDS, "propagation_seconds": PROPAGATION_SECONDS})
        made.write_backends(ENDPOINTS)
        made.start()
        made.start()
        eventually(lambda: is_mutated_now(api))
        yield made


@pytest.fixture
def two_replicas(server: Deployment) -> Deployment:
    """The server with both replicas up, whatever a test before did to them."""
    server.service.delay_seconds = 0
    server.replicas = [replica for replica in server.replicas if replica.process.poll() is None]
    while len(server.replicas) < 2:
        server.start()
    return server
