"""The exporter as a process beside a real API server, as its service account, with its ClusterRole alone."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import simulator
from manifests.monitoring import objects as manifests
from testbed.inventory import connect
from testbed.shared_gpus import RESERVATIONS, Manifest, pod, queue, reservation, share, waiting
from testbed.stacks import ROOT, monitoring, parse
from testbed.waiting import eventually

_MIB = 1024 * 1024
_NAMESPACE = parse(monitoring()).monitoring.namespace
_CRDS = ROOT / "simulator/charts/kai-scheduler/crds/scheduling.run.ai.yaml"
_KAI = "/apis/scheduling.run.ai"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def _make(api: httpx2.Client, path: str, manifest: Manifest) -> None:
    response = api.post(path, json=manifest)
    assert response.status_code == httpx2.codes.CREATED, response.text


def _namespace(api: httpx2.Client, name: str) -> None:
    _make(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    eventually(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").is_success)


@pytest.fixture(scope="module")
def shared(api: httpx2.Client) -> httpx2.Client:
    """A Jetson of which two pods have shares, while a third waits; KAI's kinds and a queue."""
    labels = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1"}
    assert api.patch("/api/v1/nodes/jetson-1", json={"metadata": {"labels": labels}}, headers=_MERGE).is_success
    for definition in yaml.safe_load_all(_CRDS.read_text(encoding="utf-8")):
        _make(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    kai = {"queues": "v2", "podgroups": "v2alpha2", "bindrequests": "v1alpha2"}
    eventually(lambda: all(api.get(f"{_KAI}/{version}/{plural}").is_success for plural, version in kai.items()))
    made = queue("robots", quota=1, limit=2)
    made |= {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
    _make(api, f"{_KAI}/v2/queues", made)
    for name in ("robots", RESERVATIONS):
        _namespace(api, name)
    limits = {"nvidia.com/gpu": "1"}
    for line in (
        reservation("g"),
        share("a", "g"),
        share("b", "g", mib=20000),
        waiting("c"),
        pod("bare", limits=limits),
    ):
        _make_pod(api, line)
    return api


def _make_pod(api: httpx2.Client, made: Manifest) -> None:
    """A pod as the API server takes it; KWOK says that it runs."""
    metadata = {key: made["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    _make(api, f"/api/v1/namespaces/{metadata['namespace']}/pods", {"metadata": metadata, "spec": made["spec"]})


@dataclass(frozen=True)
class Exporter:
    """The process.

    Attributes:
        process: it.
        port: where it answers.
    """

    process: "subprocess.Popen[str]"
    port: int

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def samples(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """By name, each by its labels' values in the order of their names."""
        return {
            family.name: {
                tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in family.samples
            }
            for family in text_string_to_metric_families(self.ask("/metrics")[1])
        }


def _token(api: httpx2.Client) -> str:
    path = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{manifests.NAME}/token"
    answer = api.post(path, json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert answer.status_code == httpx2.codes.CREATED, answer.text
    token: str = answer.json()["status"]["token"]
    return token


@pytest.fixture(scope="module")
def account(shared: httpx2.Client) -> Mapping[str, Manifest]:
    """The exporter's namespace, account and rights, as the stack makes them."""
    made = {name: stack_object.manifest for name, stack_object in manifests.objects(parse(monitoring())).items()}
    for name in ("namespace", "service-account", "cluster-role", "cluster-role-binding"):
        manifest = made[name]
        _make(shared, _PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace")), manifest)
    return made


@contextmanager
def _running(folder: Path, cluster: simulator.ControlPlane, token: str) -> Iterator[Exporter]:
    administrator: Any = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    [entry] = administrator["clusters"]
    if "certificate-authority" in entry["cluster"]:
        entry["cluster"]["certificate-authority"] = str(
            cluster.kubeconfig.parent / entry["cluster"]["certificate-authority"]
        )
    (folder / "token").write_text(token, encoding="ascii")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [entry],
                "users": [{"name": "exporter", "user": {"tokenFile": str(folder / "token")}}],
                "contexts": [{"name": "lab", "context": {"cluster": entry["name"], "user": "exporter"}}],
                "current-context": "lab",
            }
        ),
        encoding="utf-8",
    )
    log = folder / "exporter.log"
    said = ["--interval-seconds", "1", "--host", "127.0.0.1", "--port", "0", "--kubeconfig", str(kubeconfig)]
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "agents.metrics", *said],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            text=True,
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )
    try:
        eventually(lambda: "listening" in log.read_text(encoding="utf-8") or process.poll() is not None)
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        [port] = [line["port"] for line in lines if line["event"] == "listening"]
        yield Exporter(process, port)
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def exporter(
    tmp_path: Path, cluster: simulator.ControlPlane, shared: httpx2.Client, account: Mapping[str, Manifest]
) -> Iterator[Exporter]:
    """The exporter of that account, once it has read the cluster."""
    assert account
    with _running(tmp_path, cluster, _token(shared)) as running:
        eventually(lambda: running.ask("/readyz")[0] == httpx2.codes.OK)
        yield running


def test_it_says_the_shares_the_free_memory_and_who_waits(exporter: Exporter) -> None:
    eventually(lambda: exporter.samples()["kai_anywhere_pods_pending"] == {("robots", "nobody"): 1})
    said = exporter.samples()
    assert said["kai_anywhere_node_info"][("arm64", "jetson-1", "", "kai")] == 1
    assert said["kai_anywhere_gpu_group_memory_bytes"] == {("g", "jetson-1"): 131000 * _MIB}
    assert said["kai_anywhere_gpu_group_memory_allocated_bytes"] == {("g", "jetson-1"): 50000 * _MIB}
    assert said["kai_anywhere_gpu_group_memory_free_bytes"] == {("g", "jetson-1"): 81000 * _MIB}
    assert said["kai_anywhere_gpu_group_reservation_answered"] == {("g", "jetson-1"): 1}
    assert said["kai_anywhere_pod_gpu_memory_bytes"] == {
        ("g", "robots", "jetson-1", "a", "robots"): 30000 * _MIB,
        ("g", "robots", "jetson-1", "b", "robots"): 20000 * _MIB,
    }
    assert said["kai_anywhere_queue_quota_gpus"] == {("robots",): 1}
    assert said["kai_anywhere_queue_limit_gpus"] == {("robots",): 2}
    # The whole GPU of the pod `bare`, which KAI would not have placed there, is the second of one.
    assert said["kai_anywhere_node_gpus_in_use"][("jetson-1",)] == 2
    assert said["kai_anywhere_node_gpus"][("jetson-1",)] == 1
    assert ("cpu-1",) not in said["kai_anywhere_node_gpus"]
    assert said["kai_anywhere_unreadable"] == {}


def test_it_follows_what_happens(exporter: Exporter, shared: httpx2.Client) -> None:
    _make_pod(shared, share("late", "g", mib=1000))
    eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 3})
    path = "/api/v1/namespaces/robots/pods/late"
    assert shared.delete(path, params={"gracePeriodSeconds": "0"}).is_success
    eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 2})


def test_a_pod_that_asks_for_more_than_any_machine_has_ends_no_exporter(
    exporter: Exporter, shared: httpx2.Client
) -> None:
    _make_pod(shared, pod("greedy", node=None, limits={"nvidia.com/gpu.shared": "1e200"}))
    _make_pod(shared, share("late", "g", mib=1000))
    try:
        eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 3})
        assert exporter.process.poll() is None
    finally:
        for name in ("greedy", "late"):
            assert shared.delete(
                f"/api/v1/namespaces/robots/pods/{name}", params={"gracePeriodSeconds": "0"}
            ).is_success
    eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 2})


@pytest.mark.parametrize("time", ["0001-01-01T00:00:01+01:00", "9999-12-31T23:59:59-05:00"])
def test_a_pod_with_a_time_that_its_owner_made_up_hides_no_other(
    exporter: Exporter, shared: httpx2.Client, time: str
) -> None:
    """The API server keeps it, and says it in UTC: in the year 0, or 10000."""
    _make_pod(shared, share("late", "g", mib=1000))
    path = "/api/v1/namespaces/robots/pods/late"
    try:
        pod = shared.get(path).json()
        for entry in pod["metadata"]["managedFields"]:
            entry.update(manager="somebody", time=time)
        pod["metadata"]["labels"]["changed"] = "true"
        # KWOK may say meanwhile that it runs.
        del pod["metadata"]["resourceVersion"]
        assert shared.put(path, json=pod).is_success
        written = [entry["time"] for entry in shared.get(path).json()["metadata"]["managedFields"]]
        assert any(line.startswith(("0000-", "10000-")) for line in written)
        eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 3})
        assert exporter.samples()["kai_anywhere_unreadable"] == {}
    finally:
        assert shared.delete(path, params={"gracePeriodSeconds": "0"}).is_success
    eventually(lambda: exporter.samples()["kai_anywhere_gpu_group_pods"] == {("g", "jetson-1"): 2})


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/pods", 200),
        ("GET", f"{_KAI}/v2/queues", 200),
        ("GET", f"{_KAI}/v2alpha2/podgroups", 200),
        ("GET", f"{_KAI}/v1alpha2/bindrequests", 200),
        ("GET", "/api/v1/nodes/jetson-1", 403),
        ("GET", "/api/v1/pods?watch=true", 403),
        ("GET", "/api/v1/namespaces/robots/pods/a", 403),
        ("GET", "/api/v1/namespaces/robots/pods/a/log", 403),
        ("GET", "/api/v1/secrets", 403),
        ("GET", f"/api/v1/namespaces/{_NAMESPACE}/secrets", 403),
        ("GET", "/api/v1/configmaps", 403),
        ("DELETE", "/api/v1/namespaces/robots/pods/a", 403),
        ("DELETE", f"{_KAI}/v2/queues/robots", 403),
    ],
)
def test_its_rights_end_where_its_need_ends(
    cluster: simulator.ControlPlane, shared: httpx2.Client, method: str, path: str, expected: int
) -> None:
    with connect(cluster, _token(shared)) as client:
        assert client.request(method, path).status_code == expected


def test_what_it_may_not_read_any_more_is_said_and_nothing_is_made_up(
    exporter: Exporter, shared: httpx2.Client, account: Mapping[str, Manifest]
) -> None:
    role = account["cluster-role"]
    path = f"{_PATHS['ClusterRole']}/{manifests.NAME}"
    fewer = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    assert shared.patch(path, json={"rules": fewer}, headers=_MERGE).is_success
    try:
        eventually(lambda: ("pods",) in exporter.samples()["kai_anywhere_unreadable"])
        said = exporter.samples()
        assert "kai_anywhere_pods_pending" not in said
        assert said["kai_anywhere_node_gpu_memory_free_bytes"] == {}
    finally:
        assert shared.patch(path, json={"rules": role["rules"]}, headers=_MERGE).is_success
    eventually(lambda: exporter.samples()["kai_anywhere_unreadable"] == {})
