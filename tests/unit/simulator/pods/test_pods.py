"""What is said of pods that are processes, what is emulated for reservation pods, and where connections go."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from simulator.layout import STAGES
from simulator.nodes import NodeKind, manifest
from simulator.pki import Pki
from simulator.pods import egress, reservation, stages, status
from simulator.pods.images import REAL
from simulator.pods.loop import is_real
from simulator.pods.runner import Runner

NODES = {name: manifest(name, kind) for name, kind in (("x86-1", NodeKind.X86), ("jetson-1", NodeKind.JETSON))}


def pod(name: str = "p", image: str = "binder", node: str = "x86-1", **said: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {
        "metadata": {"name": name, "namespace": "kai", "labels": {"app": name}, **said},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": f"ghcr.io/kai/{image}:v1", "ports": []}],
        },
        "status": {"phase": "Running"},
    }


def reserving(name: str, node: str = "x86-1", **said: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return pod(name, "resourcereservation", node, **said)


def test_a_reservation_pod_is_told_a_gpu_that_no_other_of_its_node_has() -> None:
    pods = [reserving("a"), reserving("b"), reserving("c"), reserving("j", "jetson-1"), pod()]
    first = [(pod["metadata"]["name"], gpu) for pod, gpu in reservation.answers(pods, NODES)]
    assert [name for name, _ in first] == ["a", "b", "j"], "x86-1 has two GPUs"
    assert len({gpu for _, gpu in first}) == 3
    reserved = reserving("a", annotations={reservation.ANNOTATION: first[0][1]})
    assert [gpu for _, gpu in reservation.answers([reserved, reserving("c")], NODES)] == [first[1][1]]
    assert not list(reservation.answers([reserved], NODES))


def test_nothing_is_played_for_pods_that_do_not_run_that_go_or_that_a_real_node_has() -> None:
    waiting = {**reserving("a"), "status": {"phase": "Pending"}}
    going = reserving("b", deletionTimestamp="2026-01-01T00:00:00Z")
    assert not list(reservation.answers([waiting, going, reserving("c", "real-1")], NODES))


def test_only_kais_images_are_real_and_its_reservation_pods_are_not() -> None:
    assert is_real(pod(image="binder"))
    assert not is_real(pod(image="resourcereservation"))
    assert not is_real(pod(image="gpu-operator"))


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    "image", ["r:5000/kai/binder:v1@sha256:00", "binder", "r/kai/crd-upgrader:v1", "r/gpu-operator"]
)
def test_kwok_names_images_as_we_do(image: str) -> None:
    text = json.dumps({"spec": {"containers": [{"image": image}]}})
    answer = subprocess.run(["jq", stages._NAME], input=text, check=True, text=True, capture_output=True)
    assert (json.loads(answer.stdout) in REAL) == is_real(json.loads(text))


def test_kwok_leaves_real_pods_alone_and_keeps_nodes(tmp_path: Path) -> None:
    stages.render(STAGES, tmp_path / "stages")
    written = {path.name: yaml.safe_load(path.read_text()) for path in (tmp_path / "stages").iterdir()}
    assert written.keys() == {path.name for path in STAGES.glob("*.yaml")}
    for name, stage in written.items():
        original = yaml.safe_load((STAGES / name).read_text())
        if stage["spec"]["resourceRef"]["kind"] == "Pod":
            condition = stage["spec"]["selector"]["matchExpressions"].pop()
            assert condition == {"jq": {"key": stages._NAME, "operator": "NotIn", "values": list(REAL)}}
        assert stage == original


def test_a_status_says_what_the_process_does() -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    ready = status.patch(pod(), status.State(running, ready=True, restarts=1), "10.245.0.1")["status"]
    assert ready["phase"] == "Running"
    assert {entry["type"]: entry["status"] for entry in ready["conditions"]} == {
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    assert ready["containerStatuses"][0]["restartCount"] == 1
    new = status.patch(pod(), status.State.waiting("ErrImagePull", "no program"), "10.245.0.1")["status"]
    assert new["phase"] == "Pending"
    assert not new["containerStatuses"][0]["ready"]


def test_a_condition_keeps_the_time_since_when_it_holds() -> None:
    old = {"type": "Ready", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    seen = {**pod(), "status": {"conditions": [old]}}

    def since(*, ready: bool) -> str:
        patch = status.patch(seen, status.State({"running": {}}, ready=ready), "10.245.0.1")
        return next(
            str(condition["lastTransitionTime"])
            for condition in patch["status"]["conditions"]
            if condition["type"] == "Ready"
        )

    assert since(ready=False) == "2020-01-01T00:00:00Z"
    assert since(ready=True) != "2020-01-01T00:00:00Z"


def test_the_status_of_a_signal_is_a_shells() -> None:
    assert status.terminated(-9, "then")["terminated"]["exitCode"] == 137
    assert status.terminated(0, "then")["terminated"]["reason"] == "Completed"


class _Runner:
    def __init__(self, name: str, ip: str, address: str | None, *, ready: bool) -> None:
        self.pod = pod(name)
        self.ip, self.address, self.ready = ip, address, ready


def runner(name: str, ip: str, address: str | None, *, ready: bool = True) -> Runner:
    return cast("Runner", _Runner(name, ip, address, ready=ready))


def service(ip: str, selector: dict[str, str] | None, namespace: str = "kai") -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 9443}, {"port": 8080}]
    return {
        "metadata": {"name": "s", "namespace": namespace},
        "spec": {"clusterIP": ip, "selector": selector, "ports": ports},
    }


@pytest.mark.parametrize(
    ("host", "port", "there"),
    [
        ("10.96.0.2", 443, ("127.64.0.2", 9443)),
        ("10.96.0.2", 8080, ("127.64.0.2", 8080)),
        ("10.96.0.2", 80, None),
        ("10.96.0.3", 443, None),
        ("10.96.0.4", 443, None),
        ("10.245.0.2", 8081, ("127.64.0.2", 8081)),
        ("10.245.0.3", 8081, None),
        ("192.0.2.1", 443, ("192.0.2.1", 443)),
    ],
)
def test_a_connection_goes_to_a_ready_process_behind_the_service(
    host: str, port: int, there: tuple[str, int] | None
) -> None:
    services = [
        service("10.96.0.2", {"app": "a"}),
        service("10.96.0.3", {"app": "a"}, namespace="other"),
        service("10.96.0.4", None),
    ]
    runners = [
        runner("a", "10.245.0.1", "127.64.0.1", ready=False),
        runner("a", "10.245.0.2", "127.64.0.2"),
        runner("b", "10.245.0.3", None),
    ]
    assert egress.destination(host, port, services, runners, has_network=False) == there


def test_services_of_real_nodes_are_reached_over_their_network() -> None:
    services = [service("10.96.0.2", {"app": "a"}), service("10.96.0.3", {"app": "real"})]
    runners = [runner("a", "10.245.0.1", "127.64.0.1", ready=False)]
    assert egress.destination("10.96.0.3", 443, services, runners, has_network=True) == ("10.96.0.3", 443)
    assert egress.destination("10.96.0.2", 443, services, runners, has_network=True) is None, "a process, not ready"


def test_the_api_server_shows_a_certificate_to_the_proxy(tmp_path: Path) -> None:
    (selection,) = yaml.safe_load(egress.configuration(Pki(tmp_path), 1234))["egressSelections"]
    assert selection["name"] == "cluster", "what goes to clients and to etcd takes no proxy"
    tcp = selection["connection"]["transport"]["tcp"]
    assert tcp["url"] == "https://127.0.0.1:1234"
    assert tcp["tlsConfig"].keys() == {"caBundle", "clientCert", "clientKey"}
