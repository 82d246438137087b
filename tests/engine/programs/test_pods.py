"""Pods that are processes, on the real API server: the programs are small ones of the tests."""

import base64
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme
from lightkube import ApiError, Client, codecs
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod

import simulator
from manifests import admission, reservation
from manifests.objects import manifests
from simulator import api, processes, records
from simulator.layout import Layout
from simulator.pods import launcher
from simulator.programs import PODS
from testbed.admission.deployment import prepare, remove
from testbed.admission.objects import reservation_pod
from testbed.inventory import connect
from testbed.simulated import start
from testbed.stacks import parse, webhook
from testbed.waiting import eventually
from tests.support import pod_program

pytestmark = [
    pytest.mark.skipif(launcher.unavailable() is not None, reason=f"no programs here: {launcher.unavailable()}"),
]

CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 (the container's)
AUTHORITY = trustme.CA()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("binder", "queuecontroller"):
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{Path(pod_program.__file__).read_text()}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pods") / "simulator"
    with start(folder, kai_programs=programs):
        yield folder
    assert running(folder) == [], "reset leaves nothing"
    assert not folder.exists()


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with api.client(Layout.of(folder).kubeconfig) as connected:
        certificate = AUTHORITY.issue_cert("judge.default.svc")
        create(
            connected,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("judge")},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata("certificate"),
                "stringData": {
                    "tls.crt": certificate.cert_chain_pems[0].bytes().decode(),
                    "tls.key": certificate.private_key_pem.bytes().decode(),
                },
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata("settings"),
                "data": {"config.yaml": "settings of the test"},
            },
        )
        yield connected


def metadata(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "default"}


def create(client: Client, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        client.create(codecs.from_dict(manifest))


def deployment(name: str, *arguments: str, image: str = "binder", replicas: int = 1) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": f"registry.test:5000/kai/{image}:v1@sha256:{'0' * 64}",
        "args": list(arguments),
        "env": [
            {"name": "SAID", "value": "by the Deployment"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "certificate", "mountPath": CERTIFICATES},
            {"name": "settings", "mountPath": "/etc/config/config.yaml", "subPath": "config.yaml"},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "serviceAccountName": "judge",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                    "volumes": [
                        {"name": "certificate", "secret": {"secretName": "certificate"}},
                        {"name": "settings", "configMap": {"name": "settings"}},
                    ],
                },
            },
        },
    }


def pods(client: Client, name: str) -> list[dict[str, Any]]:
    return [pod.to_dict() for pod in client.list(Pod, namespace="default", labels={"app": name})]


def statuses(client: Client, name: str) -> list[dict[str, Any]]:
    return [(pod.get("status") or {}).get("containerStatuses", [{}])[0] for pod in pods(client, name)]


def is_ready(client: Client, name: str, count: int = 1) -> bool:
    return [status.get("ready") for status in statuses(client, name)] == [True] * count


def running(folder: Path) -> list[psutil.Process]:
    """The programs that run for pods of this simulator, by what only they have in their environment."""
    lines = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("KUBECONFIG", "").startswith(f"{folder}{os.sep}"):
                lines.append(process)
        except psutil.Error:
            continue
    return lines


def commands(folder: Path) -> list[list[str]]:
    """Their command lines."""
    lines = []
    for process in running(folder):
        with suppress(psutil.Error):
            lines.append(process.cmdline())
    return lines


def log(folder: Path, pod: dict[str, Any]) -> str:
    return (Layout.of(folder).pod_logs / f"default_{pod['metadata']['name']}.log").read_text()


@pytest.fixture(scope="module")
def judge(client: Client) -> str:
    """Two pods with the same ports, of two images, behind one Service."""
    create(
        client,
        deployment("judge", "serve", "/etc/config/config.yaml"),
        deployment("other", "serve", image="queuecontroller"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata("judge"),
            "spec": {"selector": {"app": "judge"}, "ports": [{"port": 443, "targetPort": 9443}]},
        },
    )
    eventually(lambda: is_ready(client, "judge") and is_ready(client, "other"))
    return "judge"


def test_a_deployment_is_a_process_with_what_its_pod_has(client: Client, folder: Path, judge: str) -> None:
    (pod,) = pods(client, judge)
    said = log(folder, pod)
    assert f"user system:serviceaccount:default:judge {pod['metadata']['name']}" in said, "a token of its own"
    assert "secrets 403" in said, "RBAC judges it: nobody gave it anything"
    assert "file settings of the test" in said
    assert f"variables by the Deployment {pod['metadata']['name']}" in said
    deployed = client.get(Deployment, judge, namespace="default")
    assert deployed.status
    assert deployed.status.availableReplicas == 1


def test_pods_with_the_same_ports_are_neighbours(client: Client, folder: Path, judge: str) -> None:
    listening = {
        connection.laddr
        for process in running(folder)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert sorted(port for _, port in listening) == [8081, 8081, 9443, 9443]
    hosts = {host.removeprefix("::ffff:") for host, _ in listening}
    assert len(hosts) == 2
    assert all(host.startswith("127.") for host in hosts), "nothing listens for other machines"
    assert not hosts & {"127.0.0.1"}, "nor where other programs are"
    ips = {pod["status"]["podIP"] for name in (judge, "other") for pod in pods(client, name)}
    assert len(ips) == 2


@pytest.mark.usefixtures("judge")
def test_other_pods_stay_records(client: Client, folder: Path) -> None:
    before = len(running(folder))
    create(client, deployment("emulated", "crash", image="web"))
    eventually(lambda: is_ready(client, "emulated"))
    assert len(running(folder)) == before
    client.delete(Deployment, "emulated", namespace="default")


def test_a_webhook_is_reached_through_its_service_while_a_pod_is_ready(client: Client, judge: str) -> None:
    webhook = {
        "name": "judge.default.svc",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {
            "service": {"namespace": "default", "name": judge, "path": "/"},
            "caBundle": base64.b64encode(AUTHORITY.cert_pem.bytes()).decode(),
        },
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    }
    create(
        client,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "judge"},
            "webhooks": [webhook],
        },
    )

    def answer(name: str) -> str:
        try:
            client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")), dry_run=True)
        except ApiError as error:
            return str(error.status.message)
        return "created"

    eventually(lambda: "said by the program" in answer("refused"))
    assert answer("welcome") == "created"
    client.patch(Deployment, judge, {"spec": {"replicas": 0}}, namespace="default")
    eventually(lambda: not pods(client, judge))
    assert "no endpoints available" in answer("welcome"), "as where nobody is behind a Service"
    client.patch(Deployment, judge, {"spec": {"replicas": 1}}, namespace="default")
    eventually(lambda: is_ready(client, judge))
    assert answer("welcome") == "created"


def test_a_program_that_ends_is_started_again_ever_later(client: Client, folder: Path) -> None:
    create(client, deployment("crashing", "crash"))
    eventually(lambda: [status.get("restartCount", 0) >= 2 for status in statuses(client, "crashing")] == [True])
    (status,) = statuses(client, "crashing")
    assert not status["ready"]
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert "crashed as it was told to" in log(folder, pods(client, "crashing")[0])
    client.delete(Deployment, "crashing", namespace="default")
    eventually(lambda: not pods(client, "crashing"))


def test_an_image_without_a_program_says_so(client: Client, programs: Path) -> None:
    create(client, deployment("missing", image="scheduler"))
    eventually(lambda: statuses(client, "missing") and statuses(client, "missing")[0].get("state"))
    (status,) = statuses(client, "missing")
    assert status["state"]["waiting"]["reason"] == "ErrImagePull"
    assert f"{programs} has no program scheduler" in status["state"]["waiting"]["message"]
    client.delete(Deployment, "missing", namespace="default")


@pytest.mark.usefixtures("judge")
def test_a_program_that_does_not_end_when_asked_is_killed(client: Client, folder: Path) -> None:
    before = {process.pid for process in running(folder)}
    create(client, deployment("stubborn", "stubborn"))
    eventually(lambda: is_ready(client, "stubborn"))
    (process,) = (candidate for candidate in running(folder) if candidate.pid not in before)
    client.delete(Deployment, "stubborn", namespace="default")
    eventually(lambda: not pods(client, "stubborn"))
    assert not process.is_running()


def test_a_program_that_hangs_is_killed_and_started_again(client: Client, folder: Path) -> None:
    manifest = deployment("hanging", "hang", "/etc/config/config.yaml")
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    probe = {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1, "failureThreshold": 10}
    container["livenessProbe"] = {**probe, "initialDelaySeconds": 10}
    create(client, manifest)
    eventually(lambda: [status.get("restartCount") for status in statuses(client, "hanging")] == [1])
    eventually(lambda: is_ready(client, "hanging"))
    (status,) = statuses(client, "hanging")
    assert status["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL, "it does not hear SIGTERM"
    assert status["restartCount"] == 1, "the second one works"
    (pod,) = pods(client, "hanging")
    said = Layout.of(folder).log(PODS).read_text()
    assert f"default/{pod['metadata']['name']}: its liveness probe fails, it is stopped" in said
    client.delete(Deployment, "hanging", namespace="default")
    eventually(lambda: not pods(client, "hanging"))


def test_of_two_replicas_that_elect_a_leader_one_leads_until_it_ends(client: Client, folder: Path) -> None:
    account = {"kind": "ServiceAccount", **metadata("judge")}
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete"]}
    rights = "rbac.authorization.k8s.io"
    create(
        client,
        {"apiVersion": f"{rights}/v1", "kind": "Role", "metadata": metadata("elect"), "rules": [rule]},
        {
            "apiVersion": f"{rights}/v1",
            "kind": "RoleBinding",
            "metadata": metadata("elect"),
            "roleRef": {"apiGroup": rights, "kind": "Role", "name": "elect"},
            "subjects": [account],
        },
    )
    manifest = deployment("electing", "elect", replicas=2)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    del container["readinessProbe"]
    create(client, manifest)

    def leaders() -> list[str]:
        names = []
        for pod in pods(client, "electing"):
            with suppress(FileNotFoundError):  # it is new
                if log(folder, pod) == "leads in default\n":
                    names.append(pod["metadata"]["name"])
        return names

    eventually(lambda: is_ready(client, "electing", 2) and leaders())
    (first,) = leaders()
    client.delete(Pod, first, namespace="default")
    eventually(lambda: leaders() and first not in leaders())
    assert len(leaders()) == 1
    client.delete(Deployment, "electing", namespace="default")
    eventually(lambda: not pods(client, "electing"))


def test_our_admission_server_adds_to_reservation_pods(client: Client, folder: Path) -> None:
    settings = parse(webhook())
    server = manifests(admission.objects(settings))
    own = "agents.admission"
    with connect(simulator.up(folder)) as http:
        prepare(http, settings, "jetson-1")
        create(client, *server.values())

        def given() -> object:
            path = f"/api/v1/namespaces/{reservation.NAMESPACE}/pods"
            pod = http.post(path, json=reservation_pod(), params={"dryRun": "All"}).json()
            return pod.get("spec", {}).get("containers", [{}])[0].get("securityContext", {}).get("privileged")

        eventually(given)
        assert [command for command in commands(folder) if own in command] == [[sys.executable, "-m", own]] * 2
        for name in ("reservation-webhook", "namespace"):
            remove(http, server[name])
    eventually(lambda: not [command for command in commands(folder) if own in command])


def test_a_killed_simulator_takes_its_programs_along_and_the_next_start_has_them_again(
    client: Client, folder: Path, judge: str
) -> None:
    old = {process.pid for process in running(folder)}
    assert old
    state = records.read(Layout.of(folder).records)
    assert state is not None
    os.kill(state.processes[PODS].pid, signal.SIGKILL)
    eventually(lambda: not running(folder), within_seconds=10)
    assert not simulator.status(folder).running
    simulator.up(folder)
    eventually(lambda: len(running(folder)) == 2)
    assert not {process.pid for process in running(folder)} & old
    # Until then, the status is what the killed one wrote.
    eventually(lambda: statuses(client, judge)[0]["restartCount"] == 1)
    eventually(lambda: is_ready(client, judge))


def test_down_leaves_no_process_and_up_has_them_again(folder: Path, judge: str) -> None:
    assert running(folder)
    address = Layout.of(folder).kubeconfig.read_text(encoding="utf-8")
    simulator.down(folder)
    assert running(folder) == []
    assert list(processes.find(PODS, Layout.of(folder).folder)) == []
    assert not Layout.of(folder).pods.exists(), "no token is left"
    simulator.up(folder)
    assert Layout.of(folder).kubeconfig.read_text(encoding="utf-8") == address, "the same port"
    with api.client(Layout.of(folder).kubeconfig) as client:
        eventually(lambda: is_ready(client, judge))
