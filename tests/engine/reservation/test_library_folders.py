"""Nodes with library folders of their own, on a real API server: overrides and guard take each node's."""

from collections.abc import Iterator

import httpx2
import pytest

import simulator
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import Json, changed, jetson
from testbed.waiting import eventually
from tests.engine.reservation.test_pods import NAMESPACE, as_binder_creates, created, refused

_PLATFORMS = "/usr/lib/aarch64-linux-gnu/nvidia"
_OWN = [_PLATFORMS, "/opt/nvidia/l4t-gpu-libs/openrm"]
_OTHER = "jetson-2"


@pytest.fixture(scope="module")
def api(
    tmp_path_factory: pytest.TempPathFactory, engine_environment: dict[str, str], reused_simulators: ReusedSimulators
) -> Iterator[httpx2.Client]:
    """A cluster with the Jetson stack up, whose second node declares its folders."""
    nodes = {"gpu_memory_mib": 28672, "driver_library_paths": _OWN}
    with reused_simulators.lent() as cluster:
        simulator.up(cluster.folder, nodes={_OTHER: simulator.NodeKind.JETSON})
        settings = stack_settings(changed(jetson(), f"platform.tegra_nodes.{_OTHER}", nodes), cluster)
        Stack(tmp_path_factory.mktemp("stack"), settings, engine_environment).up()
        with connect(cluster) as connected:
            account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/kai-resource-reservation"
            eventually(lambda: connected.get(account).status_code == httpx2.codes.OK)
            yield connected


def _given(pod: Json) -> tuple[str, list[str], list[str]]:
    """The search path, and the folders that are mounted, there and here."""
    [container] = pod["spec"]["containers"]
    [path] = [variable["value"] for variable in container["env"] if variable["name"] == "LD_LIBRARY_PATH"]
    there = [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume]
    here = [
        volume_mount["mountPath"]
        for volume_mount in container["volumeMounts"]
        if "serviceaccount" not in volume_mount["mountPath"]
    ]
    return path, there, here


@pytest.mark.parametrize(("node", "folders"), [("jetson-1", [_PLATFORMS]), (_OTHER, _OWN)])
def test_a_reservation_pod_gets_the_folders_of_its_node(api: httpx2.Client, node: str, folders: list[str]) -> None:
    pod = created(api, as_binder_creates(node), dry_run=True)
    assert _given(pod) == (":".join(folders), [*folders, "/dev"], [*folders, "/dev"])
    again = as_binder_creates(node) | {"spec": pod["spec"]}
    assert _given(created(api, again, dry_run=True)) == _given(pod), "a second round adds nothing"


def test_a_folder_of_another_node_is_refused(api: httpx2.Client) -> None:
    pod = as_binder_creates("jetson-1")
    pod["spec"]["volumes"] = [{"name": "nvidia-libs-2", "hostPath": {"path": _OWN[1], "type": "Directory"}}]
    assert "it has volumes or mounts beyond the overrides'" in refused(api, pod)
    pod["spec"]["nodeName"] = _OTHER
    created(api, pod, dry_run=True)
