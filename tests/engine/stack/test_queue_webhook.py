"""The gate before queues, at KAI's emulated webhook, which the API server really calls."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

import simulator
from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.waiting import wait_for, webhook_answers
from manifests.kai import queues
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import Json, jetson, parse
from testbed.waiting import eventually

_CONTROLLER = "/apis/apps/v1/namespaces/kai-scheduler/deployments/queue-controller"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_CONFIGURATIONS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("mutating", "validating")
)
_FAILED = 'failed calling webhook "queue-validation.kai.scheduler"'


@pytest.fixture
def settings(cluster: simulator.ControlPlane) -> Json:
    """A Jetson stack on the simulator."""
    return stack_settings(jetson(), cluster)


@pytest.fixture
def stack(tmp_path: Path, settings: Json, engine_environment: dict[str, str]) -> Iterator[Stack]:
    """That stack, up; removed by the test or here."""
    made = Stack(tmp_path, settings, engine_environment)
    made.up()
    yield made
    if made.resources():
        made.destroy()


def _scale(api: httpx2.Client, replicas: int) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(_CONTROLLER, json={"spec": {"replicas": replicas}}, headers=headers).raise_for_status()


def _configurations(api: httpx2.Client) -> set[str]:
    return {
        item["metadata"]["name"]
        for path in _CONFIGURATIONS
        for item in api.get(path).raise_for_status().json()["items"]
        if "kai" in item["metadata"]["name"]
    }


def test_queues_wait_for_a_webhook_that_does_not_answer_and_nobody_is_left_blocked(
    stack: Stack, settings: Json, api: httpx2.Client
) -> None:
    assert "kai-queue-validation-v2" in _configurations(api)
    manifest = next(iter(queues(parse(settings)).values()))
    condition = webhook_answers(manifest, causes="Because.")
    with closing(Cluster.connect(parse(settings).cluster)) as connection:
        assert condition.missing(connection) is None
        before = api.get(f"{_QUEUES}/{manifest['metadata']['name']}").json()["metadata"]["resourceVersion"]

        _scale(api, 0)
        eventually(lambda: condition.missing(connection) is not None)
        with pytest.raises(ClusterError) as caught:
            wait_for(connection, condition, timeout_seconds=2, report=lambda _: None)
        assert _FAILED in str(caught.value)
        assert "last heard: " in str(caught.value)

        opened = threading.Event()

        def wait() -> None:
            wait_for(connection, condition, timeout_seconds=120, report=lambda _: None)
            opened.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not opened.wait(2)
        _scale(api, 1)
        waiting.join()
        assert opened.is_set()
        after = api.get(f"{_QUEUES}/{manifest['metadata']['name']}").json()["metadata"]["resourceVersion"]
        assert after == before, "a dry run stores nothing"

    stack.destroy()
    assert not {name for name in _configurations(api) if name != "kai-anywhere"}
    mine = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "mine"}, "spec": {}}
    made = api.post(_QUEUES, json=mine)
    assert made.status_code == httpx2.codes.CREATED, made.text
    api.delete(f"{_QUEUES}/mine").raise_for_status()
