"""The admission server as a real process with real TLS, called by a real API server.

Only two things are not as in a cluster: the replicas are processes, and the Service before them is on loopback.
"""

import base64
import copy
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import httpx2
import pytest
import yaml

import simulator
from manifests import admission, reservation
from tests.support.admission import CONFIGURATIONS, Deployment, deployment, make, prepare, remove
from tests.support.inventory import connect
from tests.support.simulated import start
from tests.support.stacks import ROOT, Json, parse, webhook
from tests.support.waiting import eventually

pytestmark = pytest.mark.engine

NAMESPACE = reservation.NAMESPACE
NODE = "jetson-1"
BACKENDS = {
    "backends": {
        "near": {"host": "10.96.0.10", "port": "9999", "kind": "gvirtus"},
        "far": {"host": "10.96.0.11", "port": "9998", "kind": "gvirtus"},
        "lupine": {"host": "lupine.gvirtus.svc", "port": "14833", "kind": "lupine"},
    },
    "default": "near",
}
LIFETIME_S = 45
PROPAGATION_S = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[simulator.ControlPlane]:
    with start(tmp_path_factory.mktemp("cluster") / "simulator") as control_plane:
        yield control_plane


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        prepare(connected, parse(webhook()), NODE)
        yield connected


def pods(namespace: str = NAMESPACE) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def as_binder_creates(node: str | None = NODE) -> Json:
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    if node is None:
        del pod["spec"]["nodeName"]
    else:
        pod["spec"]["nodeName"] = node
    return pod


def post(api: httpx2.Client, pod: Json, *, dry_run: bool = True) -> httpx2.Response:
    path = pods(pod["metadata"].get("namespace", NAMESPACE))
    return api.post(path, json=pod, params={"dryRun": "All"} if dry_run else {})


def _container(pod: Json) -> Json:
    container: Json = pod["spec"]["containers"][0]
    return container


def _no_env(pod: Json) -> None:
    del _container(pod)["env"]


def _same_env(pod: Json) -> None:
    _container(pod)["env"].insert(0, {"name": "LD_LIBRARY_PATH", "value": "/elsewhere"})


def _same_env_in_another_order(pod: Json) -> None:
    names = ("A", "LD_LIBRARY_PATH", "B", "NVIDIA_DRIVER_CAPABILITIES", "C")
    _container(pod)["env"] = [{"name": name, "value": "x"} for name in names]


def _same_volume(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "dev-nvidia", "hostPath": {"path": "/dev/other"}}]


def _another_kind_of_volume(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "dev-nvidia", "emptyDir": {}}]


def _same_mount(pod: Json) -> None:
    pod["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
    _container(pod)["volumeMounts"] = [{"name": "mine", "mountPath": "/dev", "readOnly": True}]


def _init_container(pod: Json) -> None:
    pod["spec"]["initContainers"] = [{"name": "before", "image": "busybox:1"}]


def _sidecar(pod: Json) -> None:
    pod["spec"]["initContainers"] = [{"name": "beside", "image": "busybox:1", "restartPolicy": "Always"}]


def _second_container(pod: Json) -> None:
    pod["spec"]["containers"].insert(0, {"name": "other", "image": "busybox:1", "command": ["sh", "-c", "a && b"]})


def _read_only_root(pod: Json) -> None:
    _container(pod)["securityContext"]["readOnlyRootFilesystem"] = True


def _no_security_context(pod: Json) -> None:
    del _container(pod)["securityContext"]


def _generated_name(pod: Json) -> None:
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "gpu-reservation-"


def _arguments_only(pod: Json) -> None:
    _container(pod)["args"] = ["--verbose"]


def _another_container_only(pod: Json) -> None:
    _container(pod)["name"] = "other"


def _another_label(pod: Json) -> None:
    pod["metadata"]["labels"]["app"] = "other"


def _unlisted_node(pod: Json) -> None:
    pod["spec"]["nodeName"] = "x86-1"


def _no_node(pod: Json) -> None:
    del pod["spec"]["nodeName"]


def _as_kai_makes_it(_: Json) -> None:
    pass


CASES: list[Callable[[Json], None]] = [
    _as_kai_makes_it,
    _no_env,
    _same_env,
    _same_env_in_another_order,
    _same_volume,
    _another_kind_of_volume,
    _same_mount,
    _init_container,
    _sidecar,
    _second_container,
    _read_only_root,
    _no_security_context,
    _generated_name,
    _arguments_only,
    _another_container_only,
    _another_label,
    _unlisted_node,
    _no_node,
]
CHANGED = {case.__name__ for case in CASES[:14]} - {"_another_kind_of_volume"}
REFUSED = {"_another_kind_of_volume", "_another_container_only"}


def case_pod(case: Callable[[Json], None]) -> Json:
    pod = as_binder_creates()
    case(pod)
    return pod


def outcome(response: httpx2.Response) -> Json | None:
    """The pod's specification without random names, or None for a refusal."""
    if response.status_code != httpx2.codes.CREATED:
        assert response.status_code in {httpx2.codes.FORBIDDEN, httpx2.codes.UNPROCESSABLE_CONTENT}, response.text
        return None
    spec = json.dumps(response.json()["spec"])
    for volume in response.json()["spec"]["volumes"]:
        if volume["name"].startswith("kube-api-access-"):
            spec = spec.replace(volume["name"], "kube-api-access-XXXXX")
    result: Json = json.loads(spec)
    return result


def is_mutated(pod: Json) -> bool:
    return any(container.get("securityContext", {}).get("privileged", False) for container in pod["spec"]["containers"])


@pytest.fixture(scope="module")
def by_policy(api: httpx2.Client) -> dict[str, Json | None]:
    """What the carrier `policy` makes of every case, before there is a webhook; and of its own result once more."""
    settings = parse(webhook())
    fragment = reservation.tegra_fragment(settings.platform)  # type: ignore[arg-type]  # a Tegra stack
    objects = [reservation.overrides_policy(fragment), reservation.overrides_binding()]
    for manifest in objects:
        make(api, manifest)
    eventually(lambda: is_mutated(post(api, as_binder_creates()).json()))
    results = {case.__name__: outcome(post(api, case_pod(case))) for case in CASES}
    for manifest in reversed(objects):
        remove(api, manifest)
    eventually(lambda: not is_mutated(post(api, as_binder_creates()).json()))
    return results


@pytest.fixture(scope="module")
def server(
    api: httpx2.Client,
    cluster: simulator.ControlPlane,
    by_policy: dict[str, Json | None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Two replicas whose certificates live shortly, and the webhooks of both mutations."""
    assert by_policy
    settings = parse(webhook())
    folder = tmp_path_factory.mktemp("admission") / "server"
    with deployment(folder, cluster, api, settings) as made:
        configurations = admission.webhooks(settings) | {"gvirtus-webhook": admission.gvirtus_webhook(settings)}
        made.install({"lifetime_seconds": LIFETIME_S, "propagation_seconds": PROPAGATION_S}, webhooks=configurations)
        made.write_backends(BACKENDS)
        made.start()
        made.start()
        eventually(lambda: is_mutated_now(api))
        yield made


def is_mutated_now(api: httpx2.Client) -> bool:
    response = post(api, as_binder_creates())
    return response.status_code == httpx2.codes.CREATED and is_mutated(response.json())


@pytest.fixture
def two_replicas(server: Deployment) -> Deployment:
    """The server with both replicas up, whatever a test before did to them."""
    server.service.delay_s = 0
    server.replicas = [replica for replica in server.replicas if replica.process.poll() is None]
    while len(server.replicas) < 2:
        server.start()
    return server


class TestReservationPods:
    """The same pods as by the carrier `policy`."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_").replace("_", "-"))
    def test_both_carriers_make_the_same_pod(
        self,
        api: httpx2.Client,
        two_replicas: Deployment,
        by_policy: dict[str, Json | None],
        case: Callable[[Json], None],
    ) -> None:
        assert two_replicas.replicas
        expected = by_policy[case.__name__]
        found = outcome(post(api, case_pod(case)))
        assert found == expected
        assert (found is None) == (case.__name__ in REFUSED)
        if found is not None:
            assert is_mutated({"spec": found}) == (case.__name__ in CHANGED)

    def test_a_second_pass_changes_nothing(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        assert two_replicas.replicas
        first = post(api, as_binder_creates()).json()
        again = as_binder_creates() | {"spec": first["spec"]}
        assert outcome(post(api, again)) == outcome(post(api, as_binder_creates()))

    def test_kai_may_patch_the_pod_and_remove_its_finalizer(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        assert two_replicas.replicas
        pod = as_binder_creates()
        pod["metadata"]["finalizers"] = ["test/wait"]
        created = post(api, pod, dry_run=False).json()
        path = f"{pods()}/{created['metadata']['name']}"
        headers = {"Content-Type": "application/merge-patch+json"}
        for change in ({"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}, {"labels": {"a": "b"}}):
            answer = api.patch(path, json={"metadata": change}, headers=headers)
            assert answer.status_code == httpx2.codes.OK, answer.text
        api.delete(path, params={"gracePeriodSeconds": "0"})
        answer = api.patch(path, json={"metadata": {"finalizers": None}}, headers=headers)
        assert answer.status_code == httpx2.codes.OK, answer.text
        eventually(lambda: api.get(path).status_code == httpx2.codes.NOT_FOUND)

    def test_a_node_that_loses_its_label_gets_no_more_overrides(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        assert two_replicas.replicas
        headers = {"Content-Type": "application/merge-patch+json"}

        def label(value: str | None) -> None:
            body = {"metadata": {"labels": {"kai-anywhere.io/platform": value}}}
            assert api.patch(f"/api/v1/nodes/{NODE}", json=body, headers=headers).status_code == httpx2.codes.OK

        label(None)
        try:
            eventually(lambda: _all_of(4, lambda: not is_mutated_now(api)))
        finally:
            label("tegra")
            eventually(lambda: _all_of(4, lambda: is_mutated_now(api)))

    def test_a_webhook_that_sends_pods_of_another_namespace_brings_them_no_privilege(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        wide = two_replicas.reachable(admission.reservation_webhook(two_replicas.settings))
        wide["metadata"] = {"name": "too-wide"}
        wide["webhooks"][0] |= {"name": "wide.test.io", "namespaceSelector": {}}
        wide["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(two_replicas.bundle()).decode()
        make(api, wide)
        try:
            before = sum(_reviews(each, "reservation", "unchanged") for each in two_replicas.replicas)
            pod = as_binder_creates()
            pod["metadata"]["namespace"] = "default"
            del pod["spec"]["serviceAccountName"]

            def arrived() -> bool:
                response = post(api, pod)
                assert response.status_code == httpx2.codes.CREATED, response.text
                assert not is_mutated(response.json())
                return sum(_reviews(each, "reservation", "unchanged") for each in two_replicas.replicas) > before

            eventually(arrived)
        finally:
            remove(api, wide)


def _all_of(count: int, condition: Callable[[], bool]) -> bool:
    """Whether a condition holds several times in a row, so that both replicas were asked."""
    return all(condition() for _ in range(count))


def _reviews(replica: Any, mutation: str, result: str) -> float:  # noqa: ANN401 - a Replica
    sample = f'kai_anywhere_admission_reviews_total{{mutation="{mutation}",outcome="{result}"}}'
    value: float = replica.metric(sample)
    return value


class TestGvirtusPods:
    """Pods that ask for a remote GPU."""

    def pod(self, **annotations: str) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "app-",
                "namespace": "default",
                "labels": {"gvirtus.io/enabled": "true"},
                "annotations": annotations,
            },
            "spec": {
                "initContainers": [{"name": "before", "image": "busybox:1"}],
                "containers": [
                    {"name": "app", "image": "busybox:1", "command": ["sh", "-c", "a && b"]},
                    {"name": "own", "image": "busybox:1", "env": [{"name": "GVIRTUS_CONFIG", "value": "/mine.json"}]},
                ],
            },
        }

    def test_every_container_reads_the_address_of_the_default_backend(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        assert two_replicas.replicas
        answer = post(api, self.pod())
        created = answer.json()
        properties = json.loads(created["metadata"]["annotations"]["gvirtus.io/properties"])
        [communicator] = properties["communicator"]
        assert communicator["endpoint"] == {
            "suite": "tcp/ip",
            "protocol": "tcp",
            "server_address": "10.96.0.10",
            "port": "9999",
        }
        mount = {
            "name": "gvirtus-config",
            "mountPath": "/run/gvirtus/properties.json",
            "subPath": "properties.json",
            "readOnly": True,
        }
        app, own = created["spec"]["containers"]
        for container in (app, *created["spec"]["initContainers"]):
            assert {"name": "GVIRTUS_CONFIG", "value": mount["mountPath"]} in container["env"]
            assert mount in container["volumeMounts"]
        assert own["env"] == [{"name": "GVIRTUS_CONFIG", "value": "/mine.json"}]
        assert mount not in own["volumeMounts"]
        assert "own sets GVIRTUS_CONFIG itself" in answer.headers["Warning"]

    def test_an_annotation_selects_the_backend_and_lupine_is_one_variable(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        assert two_replicas.replicas
        far = post(api, self.pod(**{"gvirtus.io/backend": "far"})).json()
        assert "10.96.0.11" in far["metadata"]["annotations"]["gvirtus.io/properties"]
        lupine = post(api, self.pod(**{"gvirtus.io/backend": "lupine"})).json()
        app = lupine["spec"]["containers"][0]
        assert app["env"] == [{"name": "LUPINE_SERVER", "value": "lupine.gvirtus.svc:14833"}]
        assert not [volume for volume in lupine["spec"]["volumes"] if volume["name"] == "gvirtus-config"]

    def test_an_unknown_backend_is_refused_with_the_names(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        assert two_replicas.replicas
        answer = post(api, self.pod(**{"gvirtus.io/backend": "fra"}))
        assert answer.status_code == httpx2.codes.UNPROCESSABLE_CONTENT
        message = answer.json()["message"]
        assert "no GPU backend 'fra'" in message
        assert "far, lupine, near" in message

    def test_new_backends_are_known_without_a_restart(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        pod = self.pod(**{"gvirtus.io/backend": "new"})
        changed = copy.deepcopy(BACKENDS)
        changed["backends"]["new"] = {"host": "10.96.0.12", "port": "9999", "kind": "gvirtus"}  # type: ignore[index]
        two_replicas.write_backends(changed)
        try:
            assert post(api, pod).status_code == httpx2.codes.CREATED
        finally:
            two_replicas.write_backends(BACKENDS)
        assert post(api, pod).status_code == httpx2.codes.UNPROCESSABLE_CONTENT


class TestWhenItIsDown:
    """Fail closed for what it is for; nothing else is touched."""

    def test_reservation_pods_are_refused_and_everything_else_goes_on(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        two_replicas.kill()
        answer = post(api, as_binder_creates())
        assert answer.status_code == httpx2.codes.INTERNAL_SERVER_ERROR
        assert "failed calling webhook" in answer.json()["message"]
        deployed = admission.objects(two_replicas.settings)["deployment"]["spec"]["template"]
        own = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(deployed)}
        own["metadata"] |= {"name": "own", "namespace": two_replicas.settings.admission.namespace}
        for pod in (
            own,
            _plain_pod("kube-system", {"gvirtus.io/enabled": "true", "app": "kai-resource-reservation"}),
            _plain_pod("default", {"app": "kai-resource-reservation"}),
            _plain_pod(NAMESPACE, {}),
        ):
            answer = post(api, pod)
            assert answer.status_code == httpx2.codes.CREATED, answer.text
        two_replicas.start()
        eventually(lambda: is_mutated_now(api))

    def test_no_webhook_can_hinder_its_own_removal(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        two_replicas.kill()
        everything = two_replicas.reachable(admission.reservation_webhook(two_replicas.settings))
        everything["metadata"] = {"name": "everything"}
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"}
        named = {"kubernetes.io/metadata.name": "no-such-namespace"}
        everything["webhooks"][0] |= {"name": "all.test.io", "rules": [rule], "objectSelector": {}}
        everything["webhooks"][0] |= {"namespaceSelector": {"matchLabels": named}, "matchConditions": []}
        make(api, everything)
        remove(api, everything)

    @pytest.mark.parametrize(
        ("timeout_s", "failure_policy", "allowed", "mutated"),
        [(1, "Fail", False, False), (1, "Ignore", True, False), (10, "Fail", True, True), (10, "Ignore", True, True)],
    )
    def test_a_slow_answer_counts_within_the_timeout_alone(  # noqa: PLR0913 - a table
        self,
        api: httpx2.Client,
        two_replicas: Deployment,
        *,
        timeout_s: int,
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

        configure(timeout_s, failure_policy)
        try:
            # Each piece that the API server sends is held back: longer than one second, shorter than ten.
            two_replicas.service.delay_s = 1.5
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
            two_replicas.service.delay_s = 0
            configure(5, "Fail")
            eventually(lambda: is_mutated_now(api))

    def test_a_pod_without_a_node_is_not_even_sent(self, api: httpx2.Client, two_replicas: Deployment) -> None:
        two_replicas.kill()
        assert post(api, as_binder_creates(node=None)).status_code == httpx2.codes.CREATED
        assert post(api, as_binder_creates()).status_code == httpx2.codes.INTERNAL_SERVER_ERROR


def _plain_pod(namespace: str, labels: dict[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "plain-", "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
    }


def test_a_change_by_a_later_webhook_brings_the_pod_back_and_adds_nothing_twice(
    api: httpx2.Client, two_replicas: Deployment
) -> None:
    later = two_replicas.reachable(admission.gvirtus_webhook(two_replicas.settings))
    later["metadata"] = {"name": "zzz-later"}
    # Those of the stack exclude the reservation pods' namespace; this one comes after ours in the alphabet.
    later["webhooks"][0] |= {"name": "later.test.io", "namespaceSelector": {}}
    later["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(two_replicas.bundle()).decode()
    pod = as_binder_creates()
    pod["metadata"]["labels"]["gvirtus.io/enabled"] = "true"
    make(api, later)
    try:

        def reviews() -> float:
            return sum(
                _reviews(each, "reservation", result)
                for each in two_replicas.replicas
                for result in ("changed", "unchanged")
            )

        def asked_twice() -> bool:
            before = reviews()
            created = post(api, pod).json()
            [container] = created["spec"]["containers"]
            assert container["securityContext"]["privileged"] is True
            for kind in ("env", "volumeMounts"):
                keys = [entry.get("mountPath") or entry["name"] for entry in container[kind]]
                assert len(keys) == len(set(keys)), f"{kind} was added twice"
            assert "gvirtus.io/properties" in created["metadata"]["annotations"]
            return reviews() - before == 2

        eventually(asked_twice)
    finally:
        remove(api, later)


class TestItsRights:
    """Its account may do what it must, and nothing more."""

    def status(self, server: Deployment, cluster: simulator.ControlPlane, method: str, path: str) -> int:
        with connect(cluster) as client:
            client.headers["Authorization"] = f"Bearer {server.token()}"
            body = {"metadata": {"labels": {"a": "b"}}}
            headers = {"Content-Type": "application/merge-patch+json"}
            user = f"system:serviceaccount:{server.settings.admission.namespace}:{admission.NAME}"
            headers["Impersonate-User"] = user
            return client.request(method, path, json=None if method == "GET" else body, headers=headers).status_code

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
        self, cluster: simulator.ControlPlane, two_replicas: Deployment, method: str, path: str, expected: int
    ) -> None:
        assert self.status(two_replicas, cluster, method, path) == expected


class TestItsEnd:
    """Graceful, or not at all."""

    def test_a_replica_that_is_asked_to_end_answers_until_nobody_asks(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        leaving = two_replicas.replicas[0]
        with _Load(api) as load:
            eventually(lambda: load.answered > 20)
            two_replicas.service.backends = [leaving.port, two_replicas.replicas[1].port]
            codes: list[int] = []
            ending = threading.Thread(target=lambda: codes.append(leaving.stop()))
            ending.start()
            eventually(lambda: leaving.ask("/readyz")[0] in {0, httpx2.codes.SERVICE_UNAVAILABLE})
            # What a cluster does with a replica that is not ready.
            two_replicas.service.backends = [two_replicas.replicas[1].port]
            ending.join()
            answered = load.answered
            eventually(lambda: load.answered > answered + 20)
        assert codes == [0]
        assert load.failures == []

    def test_both_killed_in_a_burst_lose_no_pod_and_let_none_through_unmutated(
        self, api: httpx2.Client, two_replicas: Deployment
    ) -> None:
        count = 200
        names = [f"burst-{number}" for number in range(count)]
        created = threading.Semaphore(0)
        refusals = []

        def create(name: str) -> None:
            pod = as_binder_creates()
            pod["metadata"]["name"] = name
            deadline = time.monotonic() + 240
            while time.monotonic() < deadline:
                answer = post(api, pod, dry_run=False)
                if answer.status_code in {httpx2.codes.CREATED, httpx2.codes.CONFLICT}:
                    created.release()
                    return
                refusals.append(answer.status_code)
                time.sleep(0.2)

        with ThreadPoolExecutor(4) as workers:
            burst = [workers.submit(create, name) for name in names]
            for _ in range(count // 4):
                assert created.acquire(timeout=240)
            two_replicas.kill()
            eventually(lambda: refusals)
            two_replicas.start()
            two_replicas.start()
            for each in burst:
                each.result()
        listed = {pod["metadata"]["name"]: pod for pod in api.get(pods()).json()["items"]}
        try:
            assert set(names) <= listed.keys(), "a pod was lost"
            assert all(is_mutated(listed[name]) for name in names), "a pod came through unmutated"
        finally:
            api.delete(pods(), params={"gracePeriodSeconds": "0"})
            eventually(lambda: not api.get(pods()).json()["items"])


class _Load:
    """Pods created one after the other, dry-run, until the block ends."""

    def __init__(self, api: httpx2.Client) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._api = api
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = post(self._api, as_binder_creates())
            if answer.status_code != httpx2.codes.CREATED or not is_mutated(answer.json()):
                self.failures.append(answer.text)
            self.answered += 1


def test_certificates_rotate_under_load_without_a_failed_request(api: httpx2.Client, two_replicas: Deployment) -> None:
    """Fresh handshakes against each replica with what caBundle says at that moment, as an API server makes them."""
    server = two_replicas
    first = server.bundle()
    certificates: set[bytes] = set()
    handshakes = 0
    with _Load(api) as load:
        rotated_at = None
        deadline = time.monotonic() + 5 * LIFETIME_S
        while rotated_at is None or first_authorities(first) & first_authorities(server.bundle()):
            assert time.monotonic() < deadline, "no rotation"
            bundle = server.bundle()
            for replica in server.replicas:
                certificates.add(_served(replica.port, bundle, server))
                handshakes += 1
            if first_authorities(bundle) - first_authorities(first):
                rotated_at = time.monotonic()
        bundle = server.bundle()
        for replica in server.replicas:
            certificates.add(_served(replica.port, bundle, server))
    assert len(certificates) >= 2, "the certificate was never exchanged"
    assert handshakes > 10
    assert load.answered > 10
    assert load.failures == []
    served = {_served(replica.port, server.bundle(), server) for replica in server.replicas}
    assert len(served) == 1, "the replicas agree through the Secret"


def first_authorities(bundle: bytes) -> set[bytes]:
    end = b"-----END CERTIFICATE-----\n"
    return {part for part in bundle.split(end) if part.strip()}


def _served(port: int, bundle: bytes, server: Deployment) -> bytes:
    """Handshake and one request; the certificate that was presented."""
    context = ssl.create_default_context(cadata=bundle.decode("ascii"))
    name = f"{admission.NAME}.{server.settings.admission.namespace}.svc"
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    raw = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    raw.connect()
    try:
        assert raw.sock is not None
        connection.sock = context.wrap_socket(raw.sock, server_hostname=name)
        presented = connection.sock.getpeercert(binary_form=True)
        connection.request("POST", "/mutate/reservation", body=b"{}", headers={"Content-Type": "application/json"})
        assert connection.getresponse().status == httpx2.codes.BAD_REQUEST
        assert isinstance(presented, bytes)
        return presented
    finally:
        connection.close()


def test_logs_hold_no_content_of_any_pod_and_no_key(two_replicas: Deployment) -> None:
    text = json.dumps(two_replicas.logs())
    assert '"review"' in text
    for secret in ("resourcereservation", "runai-gpu-group", "PRIVATE KEY", "LD_LIBRARY_PATH", "/mine.json"):
        assert secret not in text
