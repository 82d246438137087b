"""All of KAI in containers, with its own programs and hooks: what reservation pods find, and what doctor says of it.

By hand: KAI's programs are those of the folder KAI_PROGRAMS, `resourcereservation` among them; its own chart of the
same version is KAI_CHART (docs/simulator.md). The GPU is a library in NVML's place (`tests.support.pods.board`).
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import simulator
import toolchain
from manifests import reservation
from manifests.reservation_index import WRITTEN_BY_KAI
from simulator import DEFAULT_NODES
from simulator.programs import OPERANDS
from testbed.engine import ASKS_NOBODY, Stack
from testbed.inventory import connect
from testbed.simulated import kill, stack_settings
from testbed.stacks import ROOT, Json, changed, x86
from testbed.waiting import eventually
from tests.cluster.conftest import Images
from tests.support.gvirtus.cases import post
from tests.support.pods import board, kai_images
from tests.support.pods.board import Board
from tests.support.pods.real_node import NAME, PAUSE_IMAGE, RealNode
from tests.support.pods.runs import PATIENT_SECONDS, delete, explained

_PROGRAMS = Path(os.environ.get("KAI_PROGRAMS", "/nowhere"))
_CHART = Path(os.environ.get("KAI_CHART", "/nowhere"))
_MISSING = [
    what
    for what, there in (
        ("KAI_PROGRAMS with all of KAI's programs", all((_PROGRAMS / name).is_file() for name in kai_images.PROGRAMS)),
        ("KAI_CHART with KAI's chart of the same version", (_CHART / "crds").is_dir()),
    )
    if not there
]

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(bool(_MISSING), reason=f"needs {' and '.join(_MISSING)} (docs/simulator.md)"),
]

_RESERVED = f"/api/v1/namespaces/{reservation.NAMESPACE}/pods"
_PODS = "/api/v1/namespaces/default/pods"
_UUID = "54c53ba5-2d3b-5e8a-9d9d-7a21d6a0a1b1"
"""Of the GPU, as the library tells it."""
_MEMORY_MIB = 8000
"""Of the GPU: below what any machine has, since a Jetson shares its own."""


@pytest.fixture(scope="module")
def bare(cluster: simulator.ControlPlane, node: RealNode, images: Images) -> RealNode:
    """The node alone in its cluster, with KAI's images; nobody emulates an operator or another node any more."""
    for process in (OPERANDS, "kwok"):
        kill(cluster, process)
    for name in DEFAULT_NODES:
        node.api.delete(f"/api/v1/nodes/{name}").raise_for_status()
    for archive in kai_images.build(images.builder, _PROGRAMS, _CHART):
        node.import_image(archive)
    return node


@pytest.fixture(scope="module")
def gpu(bare: RealNode) -> Iterator[Board]:
    """The node's GPU."""
    with board.board(bare) as made:
        yield made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where pulumi and its plugins are found."""
    home = tmp_path_factory.mktemp("pulumi-home")
    return toolchain.environment(toolchain.ENGINE) | ASKS_NOBODY | {"PULUMI_HOME": str(home)}


@contextmanager
def _stack(
    folder: Path, settings: Json, cluster: simulator.ControlPlane, environment: dict[str, str]
) -> Iterator[Stack]:
    stack = Stack(folder, kai_images.settings_of(stack_settings(settings, cluster), _CHART), environment)
    stack.up()
    try:
        yield stack
    finally:
        stack.destroy()


@contextmanager
def _arm64(cluster: simulator.ControlPlane) -> Iterator[None]:
    """The node says that it is arm64, as every Jetson is, whatever its kubelet says every ten seconds."""
    over = threading.Event()

    def say() -> None:
        change = {"status": {"nodeInfo": {"architecture": "arm64"}}}
        with connect(cluster) as api:
            while not over.wait(0.1):
                api.patch(
                    f"/api/v1/nodes/{NAME}/status",
                    json=change,
                    headers={"Content-Type": "application/merge-patch+json"},
                )

    thread = threading.Thread(target=say)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _fraction(name: str) -> Json:
    container = {"name": "main", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kai.scheduler/queue": "default-queue"},
            "annotations": {"gpu-fraction": "0.5"},
        },
        "spec": {"schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@contextmanager
def _fractions(api: httpx2.Client, *names: str) -> Iterator[list[str]]:
    paths = [post(api, _fraction(name)) for name in names]
    try:
        yield paths
    finally:
        for path in paths:
            delete(api, path)
        eventually(lambda: not api.get(_RESERVED).json()["items"], within_seconds=PATIENT_SECONDS)


def _assert_shared(api: httpx2.Client, gpu: str) -> None:
    """Two pods run on the GPU that one reservation pod names."""
    with _fractions(api, "one", "two") as paths:
        for path in paths:
            try:
                eventually(lambda path=path: api.get(path).json()["status"]["phase"] == "Running", within_seconds=60)  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(explained(api, path)) from error
        [reserving] = api.get(_RESERVED).json()["items"]
        assert reserving["metadata"]["annotations"][WRITTEN_BY_KAI] == gpu


def test_kais_reservation_pod_is_told_of_the_gpu_that_pods_then_share(
    cluster: simulator.ControlPlane, gpu: Board, bare: RealNode, environment: dict[str, str], tmp_path: Path
) -> None:
    """On a server, where a container toolkit brings device and library."""
    bare.label({"nvidia.com/gpu.memory": str(_MEMORY_MIB), "nvidia.com/gpu.count": "1"})
    gpu.injects = True
    try:
        with _stack(tmp_path / "stack", x86(), cluster, environment):
            _assert_shared(bare.api, _UUID)
    finally:
        gpu.reset()
        bare.label({"nvidia.com/gpu.memory": None, "nvidia.com/gpu.count": None})


def test_on_a_jetson_the_overrides_bring_library_and_device(
    cluster: simulator.ControlPlane, gpu: Board, bare: RealNode, environment: dict[str, str], tmp_path: Path
) -> None:
    assert not gpu.injects
    settings = changed(board.stack(), "platform.tegra_nodes", {NAME: board.stack()["platform"]["tegra_nodes"][NAME]})
    settings = changed(settings, f"platform.tegra_nodes.{NAME}.gpu_memory_mib", _MEMORY_MIB)
    with _arm64(cluster), _stack(tmp_path / "stack", settings, cluster, environment):
        # The library's UUID became the index, which is all that a Jetson's toolkit knows.
        _assert_shared(bare.api, "0")


def test_doctor_says_that_there_is_no_library_while_kai_makes_one_reservation_pod_after_the_other(
    cluster: simulator.ControlPlane, gpu: Board, bare: RealNode, environment: dict[str, str], tmp_path: Path
) -> None:
    assert not gpu.injects
    bare.label({"nvidia.com/gpu.memory": str(_MEMORY_MIB), "nvidia.com/gpu.count": "1"})
    doctor = [sys.executable, "-m", "operations", "doctor", "--stack", "x86", "--context", "kai-anywhere-simulator"]
    try:
        with _stack(tmp_path / "stack", x86(), cluster, environment), _fractions(bare.api, "one"):
            eventually(lambda: bare.api.get(_RESERVED).json()["items"], within_seconds=60)
            for _ in range(2):  # of the first pod, and of its successor after 40 s

                def said() -> bool:
                    variables = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
                    done = subprocess.run(doctor, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
                    return "KA0504" in done.stdout and "ERROR_LIBRARY_NOT_FOUND" in done.stdout

                eventually(said, within_seconds=30)
                [pod] = bare.api.get(_RESERVED).json()["items"]
                path = f"{_RESERVED}/{pod['metadata']['name']}"
                eventually(
                    lambda path=path: bare.api.get(path).status_code == httpx2.codes.NOT_FOUND,  # type: ignore[misc]
                    within_seconds=PATIENT_SECONDS,
                )
                eventually(lambda: bare.api.get(_RESERVED).json()["items"], within_seconds=PATIENT_SECONDS)
    finally:
        bare.label({"nvidia.com/gpu.memory": None, "nvidia.com/gpu.count": None})
