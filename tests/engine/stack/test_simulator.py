"""The simulator on the real thing: etcd, API server, controllers, scheduler, kwok and our own loop."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2
import pytest
import yaml
from lightkube import ApiError, Client
from lightkube.core.resource import GlobalResource
from lightkube.generic_resource import create_global_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod
from lightkube.resources.node_v1 import RuntimeClass
from lightkube.types import CascadeType

import simulator
from simulator import api, processes, records
from simulator.control_plane import PROCESSES
from simulator.layout import Layout
from simulator.operands.device_plugin import RESOURCE
from simulator.ports import LOOPBACK, free_ports
from testbed.simulated import start, write_data
from testbed.waiting import eventually

Resource = TypeVar("Resource")
CLUSTER_POLICY = create_global_resource("nvidia.com", "v1", "ClusterPolicy", "clusterpolicies")
NODE_FEATURE_RULE = create_global_resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule", "nodefeaturerules")


@pytest.fixture
def client(cluster: simulator.ControlPlane) -> Iterator[Client]:
    with api.client(cluster.kubeconfig) as connected:
        yield connected


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A simulator that tests may break; each leaves it running. Its path is longer than a socket's may be."""
    folder = tmp_path_factory.mktemp("breakable") / ("long" * 30) / "simulator"
    with start(folder):
        yield folder


def pids(folder: Path) -> dict[str, int]:
    state = records.read(Layout.of(folder).records)
    assert state is not None
    return {name: record.pid for name, record in state.processes.items()}


def running(folder: Path) -> dict[str, int]:
    """How many processes of each kind work on the folder, whatever the records say."""
    return {name: len(list(processes.find(name, Layout.of(folder).folder))) for name in PROCESSES}


def made(resource: type[Resource], content: dict[str, Any]) -> Resource:
    untyped: Any = resource  # lightkube types from_dict as returning its mixin
    return cast("Resource", untyped.from_dict(content))


def deployment(name: str, **labels: str) -> Deployment:
    return made(
        Deployment,
        {
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "example.com/none"}]},
                },
            },
        },
    )


def available(client: Client, name: str, namespace: str) -> bool:
    status = client.get(Deployment, name, namespace=namespace).status
    return bool(status and status.availableReplicas)


def gpus(client: Client, node: str) -> str | None:
    status = client.get(Node, node).status
    return ((status and status.allocatable) or {}).get(RESOURCE)


def labels_of(client: Client, node: str) -> dict[str, str]:
    metadata = client.get(Node, node).metadata
    return (metadata and metadata.labels) or {}


def gone(client: Client, resource: type[GlobalResource], name: str) -> bool:
    try:
        client.get(resource, name)
    except ApiError as error:
        return error.status.code == 404
    return False


def test_every_node_is_ready_and_none_has_a_gpu_yet(cluster: simulator.ControlPlane, client: Client) -> None:
    seen = simulator.status(cluster.folder)
    assert seen.running
    assert {node.name: (node.kind, node.ready, node.gpus) for node in seen.nodes} == {
        "jetson-1": ("jetson", True, 0),
        "x86-1": ("x86", True, 0),
        "cpu-1": ("cpu", True, 0),
    }
    assert gpus(client, "x86-1") is None
    assert seen.version == cluster.version == "v1.36.3"


def test_the_jetson_looks_as_gfd_leaves_it(client: Client) -> None:
    node = client.get(Node, "jetson-1")
    assert node.status
    assert node.status.nodeInfo
    assert node.status.capacity
    assert node.status.capacity["memory"] == "128Gi"
    assert node.status.nodeInfo.kernelVersion == "6.8.12-tegra"
    labels = labels_of(client, "jetson-1")
    assert labels["kubernetes.io/arch"] == "arm64"
    assert not {"nvidia.com/gpu.memory", "nvidia.com/gpu.count"} & labels.keys()
    assert not [label for label in labels if "pci-" in label]


def test_the_pods_of_a_deployment_run_and_go(client: Client) -> None:
    client.create(deployment("runs", app="runs"), namespace="default")
    eventually(lambda: available(client, "runs", "default"))
    client.delete(Deployment, "runs", namespace="default", cascade=CascadeType.BACKGROUND)
    eventually(lambda: not list(client.list(Pod, namespace="default", labels={"app": "runs"})))


def test_a_job_completes(client: Client) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/none"}]}
    job: Any = {"metadata": {"name": "completes"}, "spec": {"template": {"spec": pod}}}
    client.create(made(Job, job), namespace="default")

    def succeeded() -> bool:
        status = client.get(Job, "completes", namespace="default").status
        return status is not None and status.succeeded == 1

    eventually(succeeded)
    client.delete(Job, "completes", namespace="default", cascade=CascadeType.BACKGROUND)


def test_the_operators_pods_are_emulated(client: Client) -> None:
    """GPUs come with the device plugin's pod, on a Jetson only after a NodeFeatureRule, and go with the operator."""
    crds = [
        document
        for path in sorted((simulator.chart_path("gpu-operator") / "crds").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]
    for crd in crds:
        client.create(made(CustomResourceDefinition, crd))
    client.create(made(Namespace, {"metadata": {"name": "gpu-operator"}}))
    client.create(deployment("gpu-operator", app="gpu-operator"), namespace="gpu-operator")
    client.create(deployment("x-node-feature-discovery-master", role="master"), namespace="gpu-operator")
    eventually(lambda: available(client, "gpu-operator", "gpu-operator"))
    config = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
    client.create(
        made(ConfigMap, {"metadata": {"name": "plugin"}, "data": {"sliced": config}}),
        namespace="gpu-operator",
    )
    sections = ("daemonsets", "dcgm", "dcgmExporter", "driver", "gfd", "nodeStatusExporter", "operator", "toolkit")
    policy = {section: {} for section in sections} | {
        "driver": {"enabled": False},
        "devicePlugin": {"config": {"name": "plugin", "default": ""}},
    }

    def create_policy() -> bool:
        try:
            client.create(made(CLUSTER_POLICY, {"metadata": {"name": "cluster-policy"}, "spec": policy}))
        except ApiError as error:
            if error.status.code == 429:  # the storage of a new definition takes a moment
                return False
            raise
        except httpx2.HTTPStatusError:  # so does its path
            return False
        return True

    eventually(create_policy)
    eventually(lambda: gpus(client, "x86-1") == "2")
    assert client.get(RuntimeClass, "nvidia").handler == "nvidia"
    assert gpus(client, "jetson-1") is None
    client.get(DaemonSet, "nvidia-container-toolkit-daemonset", namespace="gpu-operator")
    with pytest.raises(ApiError):
        client.get(DaemonSet, "nvidia-driver-daemonset", namespace="gpu-operator")

    expression = {"nodename": {"op": "In", "value": ["jetson-1"]}}
    rule = {
        "name": "tegra",
        "labels": {"pci-10de.present": "true"},
        "matchFeatures": [{"feature": "system.name", "matchExpressions": expression}],
    }
    client.create(made(NODE_FEATURE_RULE, {"metadata": {"name": "tegra"}, "spec": {"rules": [rule]}}))
    eventually(lambda: gpus(client, "jetson-1") == "1")

    client.patch(Node, "x86-1", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "sliced"}}})
    eventually(lambda: gpus(client, "x86-1") == "8")
    client.patch(Node, "x86-1", {"metadata": {"labels": {"nvidia.com/device-plugin.config": "unknown"}}})
    eventually(lambda: gpus(client, "x86-1") == "0")
    client.patch(Node, "x86-1", {"metadata": {"labels": {"nvidia.com/device-plugin.config": None}}})
    eventually(lambda: gpus(client, "x86-1") == "2")

    client.delete(NODE_FEATURE_RULE, "tegra")
    eventually(lambda: gpus(client, "jetson-1") == "0")
    assert labels_of(client, "jetson-1")["nvidia.com/gpu.present"] == "false"
    assert "feature.node.kubernetes.io/pci-10de.present" not in labels_of(client, "jetson-1")

    client.delete(CLUSTER_POLICY, "cluster-policy")
    # The garbage collector does this too, once it has seen the new kinds: every 30 s, and so perhaps before us.
    with suppress(ApiError):
        client.delete(RuntimeClass, "nvidia")
    eventually(lambda: gone(client, RuntimeClass, "nvidia"))
    client.delete(Namespace, "gpu-operator")
    eventually(lambda: gpus(client, "x86-1") == "0")
    eventually(lambda: gone(client, Namespace, "gpu-operator"))
    for crd in crds:
        client.delete(CustomResourceDefinition, crd["metadata"]["name"])
    for node in ("x86-1", "jetson-1"):
        nvidia = {name: None for name in labels_of(client, node) if ".deploy." in name or name.endswith("gpu.present")}
        client.patch(Node, node, {"metadata": {"labels": nvidia}})


def test_a_second_start_reuses_every_process(own_folder: Path) -> None:
    before = pids(own_folder)
    plane = simulator.up(own_folder)
    assert pids(own_folder) == before
    assert plane.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert Layout.of(plane.folder).etcd_socket.parent.stat().st_mode & 0o777 == 0o700, "nobody else asks etcd"


@pytest.mark.parametrize("victim", PROCESSES)
def test_a_killed_process_is_started_again_and_nothing_else_is(own_folder: Path, victim: str) -> None:
    plane = simulator.up(own_folder)
    before = pids(own_folder)
    with api.client(plane.kubeconfig) as client:
        name = f"kept-{victim}"
        client.create(made(ConfigMap, {"metadata": {"name": name}}), namespace="default")
    os.kill(before[victim], signal.SIGKILL)
    eventually(lambda: not simulator.status(own_folder).running)

    again = simulator.up(own_folder)

    after = pids(own_folder)
    # The API server goes with its store, see control_plane.py.
    replaced = {"etcd", "kube-apiserver"} if victim == "etcd" else {victim}
    assert {process for process in PROCESSES if after[process] != before[process]} == replaced
    assert again.server == plane.server
    with api.client(again.kubeconfig) as client:
        client.get(ConfigMap, name, namespace="default")
    assert simulator.status(own_folder).running


def test_the_jobs_that_waited_for_kwok_all_complete(own_folder: Path) -> None:
    """It is told twice of each pod that is there at its start, the second time of one that has run meanwhile."""
    plane = simulator.up(own_folder)
    os.kill(pids(own_folder)["kwok"], signal.SIGKILL)
    eventually(lambda: not simulator.status(own_folder).running)
    count = 60  # of 180, 38 were refused a second address, and one never ended
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/none"}]}
    spec: Any = {"completions": count, "parallelism": count, "template": {"spec": pod}}
    with api.client(plane.kubeconfig) as client:
        client.create(made(Job, {"metadata": {"name": "waited"}, "spec": spec}), namespace="default")

        def pods() -> list[Pod]:
            return list(client.list(Pod, namespace="default", labels={"job-name": "waited"}))

        eventually(lambda: len([pod for pod in pods() if pod.spec and pod.spec.nodeName]) == count)

        simulator.up(own_folder)

        eventually(lambda: {pod.status and pod.status.phase for pod in pods()} == {"Succeeded"})
        client.delete(Job, "waited", namespace="default", cascade=CascadeType.BACKGROUND)
    assert "may specify no more than one IP" not in Layout.of(own_folder).log("kwok").read_text(encoding="utf-8")


def test_all_killed_at_once_come_back_with_the_data(own_folder: Path) -> None:
    plane = simulator.up(own_folder)
    with api.client(plane.kubeconfig) as client:
        before = client.get(Namespace, "kube-system").metadata
    for pid in pids(own_folder).values():
        os.kill(pid, signal.SIGKILL)
    assert simulator.up(own_folder) == plane, "the same port too, though dying processes hold it for a moment"
    with api.client(plane.kubeconfig) as client:
        after = client.get(Namespace, "kube-system").metadata
    assert before
    assert after
    assert after.uid == before.uid
    assert simulator.status(own_folder).running


def test_a_taken_port_is_named_with_its_owner(own_folder: Path) -> None:
    # One that no outgoing connection is given meanwhile.
    [port] = free_ports(1)
    taken = rf"Port {port} is taken by .*pid {os.getpid()}\)"
    with socket.create_server((LOOPBACK, port)), pytest.raises(simulator.SimulatorError, match=taken):
        simulator.up(own_folder, port=port)
    assert simulator.up(own_folder, port=port).server.endswith(f":{port}"), "the port is free now"


def test_down_leaves_no_process_and_keeps_the_data_and_the_api_server_moves_when_its_port_was_taken_meanwhile(
    own_folder: Path,
) -> None:
    before = simulator.up(own_folder)
    with api.client(before.kubeconfig) as client:
        client.create(made(ConfigMap, {"metadata": {"name": "kept"}}), namespace="default")
    simulator.down(own_folder)
    assert set(running(own_folder).values()) == {0}
    assert not simulator.status(own_folder).running
    assert Layout.of(own_folder).etcd.is_dir()
    simulator.down(own_folder)  # once more does nothing
    said: list[str] = []
    port = before.server.rpartition(":")[2]
    with socket.create_server((LOOPBACK, int(port))):
        plane = simulator.up(own_folder, report=said.append)
    assert plane.server != before.server
    assert any(f"port {port} is taken" in line for line in said)
    with api.client(plane.kubeconfig) as client:
        client.create(deployment("moved", app="moved"), namespace="default")
        eventually(lambda: available(client, "moved", "default"))
        client.get(ConfigMap, "kept", namespace="default")


class _Taker:
    """Takes the API server's port while etcd starts: seconds after it was chosen."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.ports: list[int] = []
        self._folder = folder
        self._servers = ExitStack()

    def __call__(self, line: str) -> None:
        self.said.append(line)
        if line.startswith("etcd ready") and not self.ports:
            server = yaml.safe_load(Layout.of(self._folder).kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
            self.ports.append(int(server.rpartition(":")[2]))
            self._servers.enter_context(socket.create_server((LOOPBACK, self.ports[0])))

    def give_back(self) -> None:
        self._servers.close()


@pytest.fixture
def taker(tmp_path: Path) -> Iterator[_Taker]:
    folder = tmp_path / "simulator"
    write_data(folder)
    taker = _Taker(folder)
    yield taker
    taker.give_back()
    simulator.reset(folder)


def test_a_start_that_loses_a_port_to_another_process_takes_another(tmp_path: Path, taker: _Taker) -> None:
    plane = simulator.up(tmp_path / "simulator", report=taker)
    assert (
        "kube-apiserver stopped right after its start: its port was taken meanwhile; it gets another one" in taker.said
    )
    assert not plane.server.endswith(f":{taker.ports[0]}")
    assert plane.server in plane.kubeconfig.read_text()
    assert set(running(plane.folder).values()) == {1}


def test_a_start_whose_port_the_user_named_says_who_took_it(tmp_path: Path, taker: _Taker) -> None:
    folder, [port] = tmp_path / "simulator", free_ports(1)
    with pytest.raises(simulator.SimulatorError, match=rf"Port {port} is taken by .*pid {os.getpid()}\)"):
        simulator.up(folder, port=port, report=taker)
    assert set(running(folder).values()) == {0}
    taker.give_back()
    assert simulator.up(folder, port=port, report=taker).server.endswith(f":{port}")


def test_a_further_node_is_added_and_its_labels_are_not_overwritten(own_folder: Path) -> None:
    plane = simulator.up(own_folder, nodes={"spark-1": simulator.NodeKind.SPARK})
    with api.client(plane.kubeconfig) as client:
        client.patch(Node, "spark-1", {"metadata": {"labels": {"nvidia.com/gpu.count": "7"}}})
        simulator.up(own_folder, nodes={"spark-1": simulator.NodeKind.SPARK})
        assert labels_of(client, "spark-1")["nvidia.com/gpu.count"] == "7"
    with pytest.raises(simulator.SimulatorError, match="spark-1 already exists as spark"):
        simulator.up(own_folder, nodes={"spark-1": simulator.NodeKind.CPU})


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "simulator", *arguments, f"--folder={folder}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_start_killed_halfway_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "simulator"
    monkeypatch.setenv("TMPDIR", str(elsewhere := tmp_path / ("long" * 30)))  # longer than a socket's path may be
    elsewhere.mkdir()
    with command(folder, "up") as first:
        assert first.stderr
        assert any("etcd ready" in line for line in first.stderr)
        first.kill()
    # As if it had died before it could write anything down: only the arguments tell whose processes these are.
    Layout.of(folder).records.unlink()
    assert running(folder)["etcd"] == 1
    said: list[str] = []
    simulator.up(folder, report=said.append)
    assert any("an interrupted start had left it" in line for line in said)
    assert set(running(folder).values()) == {1}
    simulator.reset(folder)
    assert not folder.exists()


def test_of_two_starts_at_once_the_second_reuses(tmp_path: Path) -> None:
    folder = tmp_path / "simulator"
    with command(folder, "up") as first, command(folder, "up") as second:
        said = [process.communicate()[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert sum("waiting for it to end" in text for text in said) == 1
    assert sum("nodes created" in text for text in said) == 1
    assert set(running(folder).values()) == {1}
    (folder / "mine.txt").write_text("not the simulator's")
    simulator.reset(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert set(running(folder).values()) == {0}


def test_a_process_that_dies_at_its_start_shows_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "simulator"
    folder.mkdir()
    (folder / "etcd").mkdir(mode=0o700)
    (folder / "etcd" / "member").write_text("a file where etcd wants a folder")
    with pytest.raises(simulator.SimulatorError, match=r"etcd stopped right after its start(?s:.*)logs/etcd\.log"):
        simulator.up(folder)
    simulator.reset(folder)


def test_free_ports_are_different_ones() -> None:
    assert len(set(free_ports(3))) == 3


def test_no_free_port_is_one_that_the_kernel_gives_to_outgoing_connections() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not [port for port in free_ports(200) if first <= port <= last]


def test_the_port_that_the_user_named_is_given_to_no_other_server() -> None:
    [port] = free_ports(1)
    others = free_ports(10_000, besides=port)
    assert port not in others
    assert len(others) > 9_000


def test_kai_is_not_run_where_it_was_emulated(own_folder: Path, tmp_path: Path) -> None:
    before = pids(own_folder)
    with pytest.raises(simulator.SimulatorError, match="has emulated KAI so far"):
        simulator.up(own_folder, kai_programs=str(tmp_path))
    assert pids(own_folder) == before
    assert simulator.status(own_folder).kai_programs is None
