"""A gate opens at once in a preview, and on `up` when the cluster is ready; the cluster is a real HTTP server."""

import threading
import time
from pathlib import Path

import pulumi
import pytest
from pulumi_kubernetes.core.v1 import ConfigMap

from cluster import waiting
from components import gates
from components.gates import gate, tell_of_hooks
from config.cluster import ClusterSettings, Distribution
from testbed.stacks import changed, jetson
from testbed.waiting import eventually
from tests.support.api_server import (
    QUEUE,
    QUEUE_CONTROLLER,
    RELEASES,
    RUNTIME_CLASS,
    ApiServer,
    deployment,
    node,
)
from tests.support.recording_monitor import Graph, record
from tests.unit.components.programs import preview, up

_KAI = "kai-scheduler"
_HOOKS = f"/apis/batch/v1/namespaces/{_KAI}/jobs"
_RUNTIME_CLASS = waiting.runtime_class("nvidia", operator_namespace="gpu-operator")


@pytest.fixture(autouse=True)
def _short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)


def _gated(kubeconfig: str, *, preview: bool, timeout_seconds: int = 10) -> Graph:
    """Two ConfigMaps with a gate between them."""
    settings = ClusterSettings(distribution=Distribution.K3S, kubeconfig=kubeconfig)

    def program() -> None:
        first = ConfigMap("first")
        opened = gate(first, [_RUNTIME_CLASS], settings, timeout_seconds=timeout_seconds)
        ConfigMap("second", opts=pulumi.ResourceOptions(depends_on=[opened]))

    return record(program, preview=preview)


def test_a_preview_asks_nobody(tmp_path: Path) -> None:
    graph = _gated(str(tmp_path / "no-kubeconfig"), preview=True)
    assert graph.by_key["ConfigMap:second"].dependencies == {"ConfigMap:first"}


def test_a_program_that_only_gives_back_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAI_ANYWHERE_DESTROYS", "true")
    graph = _gated(str(tmp_path / "no-kubeconfig"), preview=False)
    assert graph.by_key["ConfigMap:second"].dependencies == {"ConfigMap:first"}


@pytest.mark.parametrize("deployed", [False, True])
def test_a_preview_of_the_program_asks_nobody(api: ApiServer, config_path: str, *, deployed: bool) -> None:
    preview(changed(jetson(), "cluster.kubeconfig", config_path), deployed=deployed)
    assert api.asked == []


def test_an_up_waits_until_the_condition_holds(api: ApiServer, config_path: str) -> None:
    answer = api.answers.pop(RUNTIME_CLASS)

    def appear() -> None:
        eventually(lambda: len(api.asked) >= 2, within_seconds=60)
        api.answers[RUNTIME_CLASS] = answer

    appearing = threading.Thread(target=appear)
    appearing.start()
    graph = _gated(config_path, preview=False)
    appearing.join()
    assert graph.by_key["ConfigMap:second"].dependencies == {"ConfigMap:first"}
    assert len(api.asked) > 2


def test_a_gate_that_stays_shut_fails_with_the_causes_and_nothing_behind_it_is_made(
    api: ApiServer, config_path: str
) -> None:
    del api.answers[RUNTIME_CLASS]
    made: list[str] = []
    settings = ClusterSettings(distribution=Distribution.K3S, kubeconfig=config_path)

    def program() -> None:
        opened = gate(ConfigMap("first"), [_RUNTIME_CLASS], settings, timeout_seconds=1)
        second = ConfigMap("second", opts=pulumi.ResourceOptions(depends_on=[opened]))
        second.id.apply(made.append)

    with pytest.raises(pulumi.RunError, match="Waited 1 s for RuntimeClass 'nvidia' without success") as caught:
        record(program, preview=False)
    assert "Likely causes" in str(caught.value)
    assert made == []


def test_a_gate_without_a_cluster_fails_with_that_reason(tmp_path: Path) -> None:
    with pytest.raises(pulumi.RunError, match="No kubeconfig at"):
        _gated(str(tmp_path / "gone"), preview=False)


def test_kai_comes_after_the_operators_pods_and_gpus_and_queues_after_kais_pods_and_their_webhook(
    api: ApiServer, config_path: str
) -> None:
    runtime_class, controller = api.answers.pop(RUNTIME_CLASS), api.answers.pop(QUEUE_CONTROLLER)
    pods = {name: f"{path}/deployments" for name, path in RELEASES.items()}
    for name, path in pods.items():
        api.serve(path, {"items": [deployment(name, release=name, available=0, rolled_out=False)]})
    api.serve("/api/v1/nodes", {"items": [node("jetson-1", gpus=0)]})
    api.object_to(QUEUE, 500, 'failed calling webhook "queue-validation.kai.scheduler"')
    ready: dict[str, float] = {}

    def after_asked_for(path: str) -> None:
        while path not in {request.path for request in api.asked}:
            time.sleep(0.01)
        time.sleep(0.05)
        ready[path] = time.monotonic()

    def roll_out(name: str) -> None:
        after_asked_for(pods[name])
        api.serve(pods[name], {"items": [deployment(name, release=name)]})

    def make_ready() -> None:
        roll_out("gpu-operator")
        after_asked_for(RUNTIME_CLASS)
        api.answers[RUNTIME_CLASS] = runtime_class
        after_asked_for("/api/v1/nodes")
        api.serve("/api/v1/nodes", {"items": [node("jetson-1")]})
        roll_out("kai-scheduler")
        after_asked_for(QUEUE_CONTROLLER)
        api.answers[QUEUE_CONTROLLER] = controller
        after_asked_for(QUEUE)
        del api.applies[QUEUE]

    thread = threading.Thread(target=make_ready, daemon=True)
    thread.start()
    graph = up(jetson(), config_path)
    thread.join()
    release = graph.by_key["Release:kai-scheduler"].at
    operator = graph.by_key["Release:gpu-operator"].at
    assert operator < ready[pods["gpu-operator"]] < ready[RUNTIME_CLASS] < ready["/api/v1/nodes"] < release
    queues = [registered.at for key, registered in graph.by_key.items() if key.startswith("Queue:")]
    assert len(queues) == 4
    assert release < ready[pods["kai-scheduler"]] < ready[QUEUE_CONTROLLER] < ready[QUEUE] < min(queues)


def test_a_stack_without_queues_waits_for_kais_pods_too(api: ApiServer, config_path: str) -> None:
    path = f"{RELEASES['kai-scheduler']}/deployments"
    api.serve(path, {"items": [deployment("kai-operator", release="kai-scheduler", available=0, rolled_out=False)]})
    settings = changed(changed(jetson(), "kai.queues", {}), "kai.default_queue", False)

    def roll_out() -> None:
        eventually(lambda: path in {request.path for request in api.asked}, within_seconds=60)
        assert QUEUE_CONTROLLER not in {request.path for request in api.asked}
        api.serve(path, {"items": [deployment("kai-operator", release="kai-scheduler")]})

    rolling = threading.Thread(target=roll_out)
    rolling.start()
    graph = up(settings, config_path)
    rolling.join()
    assert not [key for key in graph.by_key if key.startswith("Queue:")]
    assert QUEUE_CONTROLLER in {request.path for request in api.asked}
    assert QUEUE not in {request.path for request in api.asked}, "without a queue there is none to ask about"


def test_an_up_names_the_hook_that_helm_waits_for_until_the_release_is_there(
    api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "REPORT_SECONDS", 0.02)
    lines: list[tuple[str, object]] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, resource, **_: lines.append((text, resource)))
    hook = {
        "name": "crd-upgrader",
        "namespace": "kai-scheduler",
        "annotations": {"helm.sh/hook": "pre-install"},
        "managedFields": [{"manager": "pulumi-resource-kubernetes"}],
    }
    api.fail(_HOOKS, 500)
    for what in ("pods", "events"):
        api.serve(f"/api/v1/namespaces/{_KAI}/{what}", {"items": []})
    installed = api.answers.pop(RUNTIME_CLASS)
    settings = ClusterSettings(distribution=Distribution.K3S, kubeconfig=config_path)

    def goes_on() -> None:
        eventually(lambda: _HOOKS in {request.path for request in api.asked}, within_seconds=60)
        api.serve(_HOOKS, {"items": [{"metadata": hook}]})
        eventually(lambda: any("Job" in text for text, _ in lines), within_seconds=60)
        api.answers[RUNTIME_CLASS] = installed

    def program() -> None:
        above = ConfigMap("above")
        opened = gate(above, [_RUNTIME_CLASS], settings, timeout_seconds=120)
        tell_of_hooks(ConfigMap("release", opts=pulumi.ResourceOptions(depends_on=[opened])), above, _KAI, settings)

    going_on = threading.Thread(target=goes_on)
    going_on.start()
    record(program, preview=False)
    going_on.join()
    text, about = lines[-1]
    assert text == "waiting for Job 'crd-upgrader' in namespace 'kai-scheduler', a hook of a Helm release (0 s)"
    assert isinstance(about, ConfigMap)
    eventually(lambda: not [thread for thread in threading.enumerate() if "tell" in thread.name])
