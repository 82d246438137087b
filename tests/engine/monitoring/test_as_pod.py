"""The exporter as the simulator runs it: a pod that is a process, asked through its Service by the API server."""

from collections.abc import Iterator, Mapping

import httpx2
import pytest
from lightkube import codecs
from prometheus_client.parser import text_string_to_metric_families

from manifests.monitoring import objects as manifests
from simulator import api
from simulator.layout import Layout
from simulator.pods import launcher
from simulator.programs import OPERANDS
from testbed.inventory import connect
from testbed.simulated import kill, start
from testbed.stacks import changed, monitoring, parse
from testbed.waiting import eventually

pytestmark = [
    pytest.mark.skipif(launcher.unavailable() is not None, reason=f"no programs here: {launcher.unavailable()}"),
]

_SETTINGS = parse(changed(monitoring(), "monitoring.interval_seconds", 5))
_PLACE = f"/api/v1/namespaces/{_SETTINGS.monitoring.namespace}"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A simulator whose pods run, with the exporter as the stack makes it, and one GPU on jetson-1."""
    folder = tmp_path_factory.mktemp("exporter") / "simulator"
    with start(folder, kai_programs=tmp_path_factory.mktemp("programs")) as control_plane:
        # It would say that a node without a device plugin has no GPU.
        kill(control_plane, OPERANDS)
        with connect(control_plane) as connected:
            _advertise(connected)
            with api.client(Layout.of(folder).kubeconfig) as client:
                for stack_object in manifests.objects(_SETTINGS).values():
                    client.create(codecs.from_dict(stack_object.manifest))
            yield connected


def _advertise(connected: httpx2.Client) -> None:
    """What a device plugin and the stack's labels would say."""
    labels = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1"}
    node = "/api/v1/nodes/jetson-1"
    connected.patch(node, json={"metadata": {"labels": labels}}, headers=_MERGE).raise_for_status()
    there = {"capacity": {_GPU: "1"}, "allocatable": {_GPU: "1"}}
    connected.patch(f"{node}/status", json={"status": there}, headers=_MERGE).raise_for_status()


def _samples(connected: httpx2.Client) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """What the exporter says, through the API server and its Service; nothing before it is ready."""
    answer = connected.get(f"{_PLACE}/services/{manifests.NAME}:metrics/proxy/metrics")
    if not answer.is_success:
        return {}
    return {
        family.name: {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in family.samples
        }
        for family in text_string_to_metric_families(answer.text)
    }


def _in_use(connected: httpx2.Client) -> float:
    """GPUs of jetson-1 that pods have."""
    return _samples(connected)["kai_anywhere_node_gpus_in_use"][("jetson-1",)]


def _pod(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "registry.example.com/work:1", "resources": {"limits": {_GPU: "1"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_its_metrics_say_what_the_scheduler_placed(running: httpx2.Client) -> None:
    eventually(lambda: "kai_anywhere_node_gpus" in _samples(running), within_seconds=120)
    assert _samples(running)["kai_anywhere_node_gpus"][("jetson-1",)] == 1
    assert _in_use(running) == 0

    eventually(lambda: running.get("/api/v1/namespaces/default/serviceaccounts/default").is_success)
    for name in ("first", "second"):
        running.post("/api/v1/namespaces/default/pods", json=_pod(name)).raise_for_status()
    placed = "/api/v1/namespaces/default/pods"
    eventually(lambda: _nodes(running, placed) == ["", "jetson-1"], within_seconds=60)
    eventually(lambda: _in_use(running) == 1, within_seconds=60)

    pods = running.get(placed).json()["items"]
    taken = next(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))
    running.delete(f"{placed}/{taken}", params={"gracePeriodSeconds": "0"}).raise_for_status()
    other = "second" if taken == "first" else "first"
    eventually(lambda: running.get(f"{placed}/{other}").json()["spec"].get("nodeName") == "jetson-1", within_seconds=60)
    assert _in_use(running) == 1


def _nodes(connected: httpx2.Client, path: str) -> list[str]:
    return sorted(item["spec"].get("nodeName", "") for item in connected.get(path).json()["items"])


def test_it_is_a_process_with_its_own_account_and_rights(running: httpx2.Client) -> None:
    [pod] = running.get(f"{_PLACE}/pods").json()["items"]
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["serviceAccountName"] == manifests.NAME
    said = _samples(running)
    assert said["kai_anywhere_unreadable"] == {}
    assert said["kai_anywhere_exporter_reads"][("read",)] > 0
