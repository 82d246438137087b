"""Any pod may reach the server, and any tenant may create pods: neither ends it, nor keeps others from creating theirs.

The time limits here are those of the webhook. How much slower others are is measured by `make bench-admission`.
"""

import json
import re
import threading
import time
from pathlib import Path

import httpx2
import pytest

import simulator
from manifests import admission
from manifests.objects import manifests
from testbed.admission.attacks import ATTACKS, CONNECTIONS, attack
from testbed.admission.deployment import Deployment, Replica
from testbed.inventory import connect
from testbed.waiting import eventually
from tests.support.admission.pods import Load, plain_pod, post

_SECONDS = 60.0
"""At most: an attack lasts until the pods were answered."""
_PODS = 30
"""Pods that others create while an attack runs: some seconds of it."""
_FEW_PODS = 10
"""The same beside a tenant whose pods take the API server itself long."""
_PAUSE_SECONDS = 0.05
"""Between them: without one, these pods and not the attack would have the processor."""
_TENANT = "default"


def _limit_mib(server: Deployment) -> int:
    """What the kubelet kills the server for."""
    deployment = manifests(admission.objects(server.settings))["deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    limit: str = container["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    return int(limit.removesuffix("Mi"))


def _peak_mib(replica: Replica) -> float:
    status = Path(f"/proc/{replica.process.pid}/status").read_text(encoding="ascii")
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(peak) / 1024


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_on_the_port_neither_ends_the_server_nor_keeps_others_from_their_pods(
    api: httpx2.Client, two_replicas: Deployment, kind: str
) -> None:
    server = two_replicas
    attacked = server.replicas[0]
    server.service.backends = [attacked.port]
    try:
        with attack(kind, attacked.port, seconds=_SECONDS) as over, Load(api, pause_seconds=_PAUSE_SECONDS) as load:
            eventually(lambda: load.answered >= _PODS)
            begin = time.monotonic()
            assert attacked.ask("/healthz") == (httpx2.codes.OK, "ok\n")
            assert time.monotonic() - begin < 5, "the probe's own limit"
            counts = over()
    finally:
        server.service.backends = [replica.port for replica in server.replicas]
    assert counts.total() >= CONNECTIONS / 4, "there was an attack"
    assert load.failures == []
    assert attacked.process.poll() is None
    logs = server.logs()
    assert [line for line in logs if line["level"] == "error"] == [], "a defect of ours"
    assert "SSL connection is closed" not in json.dumps(logs), "anybody could fill the disk with it"
    assert _peak_mib(attacked) < _limit_mib(server)


def test_a_tenant_who_creates_pods_of_thousands_of_containers_is_refused_and_keeps_nobody_waiting(
    api: httpx2.Client, cluster: simulator.ControlPlane, two_replicas: Deployment
) -> None:
    enormous = plain_pod(_TENANT, {"gvirtus.io/enabled": "true"})
    enormous["spec"]["containers"] = [{"name": f"c{number}", "image": "a:1"} for number in range(2000)]
    answers: list[httpx2.Response] = []
    stop = threading.Event()

    def create() -> None:
        with connect(cluster) as tenant:
            while not stop.is_set():
                answers.append(post(tenant, enormous))

    creators = [threading.Thread(target=create) for _ in range(4)]
    for creator in creators:
        creator.start()
    try:
        with Load(api) as load:
            eventually(lambda: load.answered >= _FEW_PODS and len(answers) >= len(creators))
    finally:
        stop.set()
        for creator in creators:
            creator.join()
    assert load.failures == []
    assert {answer.status_code for answer in answers} == {httpx2.codes.UNPROCESSABLE_CONTENT}
    assert "spec.containers has 2000 entries" in answers[0].json()["message"]
    assert all(_peak_mib(replica) < _limit_mib(two_replicas) for replica in two_replicas.replicas)
