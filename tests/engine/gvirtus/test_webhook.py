"""Pods that ask for remote GPUs on a real API server: the running server gives what its pure function says.

The server is two real processes with real TLS, and there is no MutatingAdmissionPolicy. What holds for the carrier
`policy` too stands in tests/support/gvirtus/contract.py.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest

import simulator
from manifests import admission, reservation
from manifests.admission_objects import deny_binding
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus import policy as gvirtus_policy
from manifests.gvirtus.injection import NOT_YET, PATH, VOLUME
from testbed.admission.deployment import Deployment, deployment, make, prepare, remove
from testbed.inventory import connect
from testbed.stacks import gvirtus_webhook, parse
from testbed.waiting import eventually
from tests.support.gvirtus.cases import (
    LOCKED,
    RESTRICTED,
    TEAM,
    create,
    created,
    generated_name,
    init_and_sidecar,
    namespace,
    own_file,
    pod,
    post,
    stack_of,
    template,
    unlabelled,
)
from tests.support.gvirtus.contract import ENDPOINTS, CarrierTests, assert_injected
from tests.support.pods.reservation_cases import as_binder_creates

SETTINGS = parse(stack_of(gvirtus_webhook()))
assert SETTINGS.gvirtus is not None
REMOTE = SETTINGS.gvirtus
PATIENT_SECONDS = 240.0
"""A Job whose pods were refused tries again later and later."""


@dataclass(frozen=True)
class Early:
    """What happened before the server was told of any backend.

    Attributes:
        answer: to a pod that asks for a remote GPU.
        plain: to one that does not.
        job: path of a Job whose pods were refused.
    """

    answer: httpx2.Response
    plain: httpx2.Response
    job: str


@pytest.fixture(scope="module")
def server(
    cluster: simulator.ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx2.Client, Deployment]]:
    """The server as the stack installs it before KAI: it runs, and nobody has told it of backends."""
    with connect(cluster) as connected:
        prepare(connected, SETTINGS, "jetson-1")
        for manifest in (
            gvirtus.backends_namespace(REMOTE),
            namespace(TEAM, {}),
            namespace(RESTRICTED, {"pod-security.kubernetes.io/enforce": "restricted"}),
            gvirtus_policy.requests_policy(SETTINGS, REMOTE),
            deny_binding(gvirtus_policy.REQUESTS),
        ):
            post(connected, manifest)
        for owner in (TEAM, RESTRICTED):
            account = f"/api/v1/namespaces/{owner}/serviceaccounts/default"
            eventually(lambda path=account: connected.get(path).status_code == httpx2.codes.OK)  # type: ignore[misc]
        with deployment(tmp_path_factory.mktemp("admission") / "server", cluster, connected, SETTINGS) as made:
            made.install()
            made.start()
            made.start()
            yield connected, made


@pytest.fixture(scope="module")
def early(server: tuple[httpx2.Client, Deployment]) -> Early:
    connected, _ = server
    eventually(lambda: NOT_YET in create(connected, pod()).text)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "early", "namespace": TEAM}}
    path = post(connected, job | {"spec": {"template": template(), "backoffLimit": 0}})
    events = f"/api/v1/namespaces/{TEAM}/events"
    selector = {"fieldSelector": "involvedObject.name=early,reason=FailedCreate"}
    eventually(lambda: connected.get(events, params=selector).json()["items"])
    return Early(create(connected, pod()), create(connected, unlabelled(pod())), path)


@pytest.fixture(scope="module")
def api(server: tuple[httpx2.Client, Deployment], early: Early) -> httpx2.Client:
    """The cluster once the kubelet has shown the ConfigMap to both replicas, which run on."""
    assert early.job
    connected, made = server
    made.write_backends(ENDPOINTS)
    eventually(lambda: create(connected, pod()).status_code == httpx2.codes.CREATED)
    return connected


class TestWebhook(CarrierTests):
    """The carrier `webhook`, which adds no node selector."""


class TestBeforeItKnowsAnyBackend:
    """Fail closed, with a word on what to do."""

    def test_a_pod_is_refused_and_told_to_come_again(self, early: Early) -> None:
        assert early.answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE
        message = early.answer.json()["message"]
        assert message == f'admission webhook "gvirtus.kai-anywhere.io" denied the request: {NOT_YET}'

    def test_a_pod_that_asks_for_nothing_is_welcome(self, early: Early) -> None:
        assert early.plain.status_code == httpx2.codes.CREATED, early.plain.text

    def test_a_job_of_that_time_runs_later_without_anybodys_help(self, api: httpx2.Client, early: Early) -> None:
        eventually(lambda: api.get(early.job).json()["status"].get("succeeded") == 1, within_seconds=PATIENT_SECONDS)
        pods = f"/api/v1/namespaces/{TEAM}/pods"
        [made] = api.get(pods, params={"labelSelector": "job-name=early"}).json()["items"]
        assert_injected(made)


def test_a_container_that_keeps_its_own_file_is_named_in_a_warning(api: httpx2.Client) -> None:
    warning = create(api, own_file()).headers["Warning"]
    assert "main sets GVIRTUS_CONFIG itself" in warning
    assert "other" not in warning
    assert "Warning" not in create(api, pod()).headers


@pytest.mark.parametrize("owner", gvirtus_policy.namespaces_left_alone(SETTINGS))
def test_the_operators_namespaces_are_left_alone(api: httpx2.Client, owner: str) -> None:
    names = {item["metadata"]["name"] for item in api.get("/api/v1/namespaces").json()["items"]}
    made = [] if owner in names else [post(api, namespace(owner, {}))]
    account = f"/api/v1/namespaces/{owner}/serviceaccounts/default"
    eventually(lambda: api.get(account).status_code == httpx2.codes.OK)
    new_pod = pod(securityContext=LOCKED)
    new_pod["metadata"]["namespace"] = owner
    assert "annotations" not in created(api, new_pod)["metadata"]
    for path in made:
        api.delete(path)


def test_a_changed_address_reaches_new_pods_without_a_restart(
    api: httpx2.Client, server: tuple[httpx2.Client, Deployment]
) -> None:
    _, made = server
    moved = ENDPOINTS | {"gpu-a": "10.96.9.9:9999"}

    def new_pods_have(host: str) -> bool:
        return host in created(api, generated_name())["metadata"]["annotations"]["gvirtus.io/properties"]

    running = [replica.process.pid for replica in made.replicas]
    made.write_backends(moved)
    try:
        assert all(new_pods_have("10.96.9.9") for _ in range(4)), "both replicas read the file at each pod"
    finally:
        made.write_backends(ENDPOINTS)
    assert all(new_pods_have("10.96.7.7") for _ in range(4))
    assert [replica.process.pid for replica in made.replicas if replica.process.poll() is None] == running


def test_a_webhook_that_asks_the_server_again_adds_nothing_twice(
    api: httpx2.Client, server: tuple[httpx2.Client, Deployment]
) -> None:
    _, made = server
    later = made.reachable(admission.gvirtus_webhook(SETTINGS))
    later["metadata"] = {"name": "zzz-later"}
    later["webhooks"][0] |= {"name": "later.test.io"}
    later["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(made.bundle()).decode()

    def reviews(outcome: str) -> float:
        sample = f'kai_anywhere_admission_reviews_total{{mutation="gvirtus",outcome="{outcome}"}}'
        return sum(replica.metric(sample) for replica in made.replicas)

    def asked_again() -> bool:
        """Whether both webhooks sent the pod: the first review adds, and the second one has nothing to add."""
        added, unchanged = reviews("changed"), reviews("unchanged")
        result = created(api, init_and_sidecar())
        assert [v["name"] for v in result["spec"]["volumes"]].count(VOLUME) == 1
        for container in (*result["spec"]["containers"], *result["spec"]["initContainers"]):
            assert [e["name"] for e in container["env"]] == ["GVIRTUS_CONFIG"]
            assert [m["mountPath"] for m in container["volumeMounts"]].count(PATH) == 1
        return (reviews("changed") - added, reviews("unchanged") - unchanged) == (1, 1)

    assert not asked_again()
    make(api, later)
    try:
        eventually(asked_again)
    finally:
        remove(api, later)
        eventually(lambda: not asked_again())


def test_while_no_replica_answers_labelled_pods_alone_are_refused(
    api: httpx2.Client, server: tuple[httpx2.Client, Deployment]
) -> None:
    _, made = server
    made.kill()
    try:
        answer = create(api, pod())
        assert answer.status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        assert 'failed calling webhook "gvirtus.kai-anywhere.io"' in answer.json()["message"]
        created(api, unlabelled(pod()))
    finally:
        made.start()
        made.start()
    eventually(lambda: create(api, pod()).status_code == httpx2.codes.CREATED)


def test_a_damaged_list_of_backends_hinders_neither_the_servers_start_nor_reservation_pods(
    api: httpx2.Client, server: tuple[httpx2.Client, Deployment]
) -> None:
    _, made = server
    made.kill()
    made.write_backends({"backends": "none"})
    try:
        made.start()
        eventually(lambda: "settings are wrong" in create(api, pod()).text)
        assert create(api, pod()).status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        pods = f"/api/v1/namespaces/{reservation.NAMESPACE}/pods"
        answer = api.post(pods, json=as_binder_creates(), params={"dryRun": "All"})
        assert answer.status_code == httpx2.codes.CREATED, answer.text
        assert answer.json()["spec"]["containers"][0]["securityContext"]["privileged"] is True
    finally:
        made.write_backends(ENDPOINTS)
        made.start()
    eventually(lambda: create(api, pod()).status_code == httpx2.codes.CREATED)
    assert [line for line in made.logs() if line["event"] == "a mounted file is wrong"]
