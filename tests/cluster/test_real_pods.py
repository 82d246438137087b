"""Real pods: what the stack gives them reaches their processes, on a node with a real kubelet.

One file, since all of it shares the node: only one can be on a machine, and a file's tests run one after another.
"""

import copy
import platform
import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cluster.access.client import Cluster
from config.gvirtus import FRONTEND_ALLOWED, BackendKind
from manifests import admission, reservation
from manifests.gvirtus import backends as gvirtus
from manifests.gvirtus import frontends as gvirtus_frontends
from manifests.gvirtus import policy as gvirtus_policy
from manifests.gvirtus.backends import BACKEND_ALLOWED
from manifests.gvirtus.frontends import roles_rule
from manifests.objects import manifests
from operations import scratch
from operations.privilege_probe import ladder, run
from operations.privilege_probe.ladder import VIDEO, Symptom
from operations.privilege_probe.report import FOUND, NOT_HELD, NOT_RUN, Result
from operations.privilege_probe.run import Probe
from simulator import DEFAULT_NODES, ControlPlane
from testbed.admission.deployment import CONFIGURATIONS
from testbed.simulated import stack_settings
from testbed.stacks import Json, changed, gvirtus_webhook, parse
from testbed.waiting import eventually
from tests.cluster.conftest import Images, Remote
from tests.support.gvirtus.cases import TEAM, create, created, post
from tests.support.pods import board, nfd
from tests.support.pods.board import NULL_DEVICE, RESOURCE, Board
from tests.support.pods.real_node import NAME, RealNode, is_ready, patch
from tests.support.pods.remote import application, assert_an_application_is_served, assert_others_get_nothing
from tests.support.pods.reservation_cases import as_binder_creates
from tests.support.pods.runs import PATIENT_SECONDS, available, delete, run_to_end
from tests.support.pods.stand_ins_image import RESERVATION_IMAGE, STAND_INS_IMAGE
from tests.support.processes import command_lines

pytestmark = pytest.mark.engine

NAMESPACE = "kai-anywhere"
GPU_ADDRESS = "0000:01:00.0"


class TestNode:
    """The real node itself."""

    def test_a_real_kubelet_is_ready_beside_the_simulated_nodes(self, node: RealNode) -> None:
        nodes = {item["metadata"]["name"]: item for item in node.api.get("/api/v1/nodes").json()["items"]}
        assert set(nodes) == {NAME, *DEFAULT_NODES}
        assert all(map(is_ready, nodes.values()))
        real = nodes[NAME]
        assert "kwok.x-k8s.io/node" not in real["metadata"].get("annotations", {})
        assert real["status"]["nodeInfo"]["kernelVersion"] == platform.release()


class TestPolicies:
    """Remote GPUs with the carrier `policy`: the API server injects, the process reads and connects."""

    @pytest.fixture(scope="class")
    @classmethod
    def api(cls, node: RealNode, remote: Remote) -> Iterator[httpx2.Client]:
        """The cluster with the policies in force."""
        settings, section = remote.settings, remote.gvirtus
        made: list[str] = []
        try:
            made.append(post(node.api, gvirtus_policy.injection_policy(settings, section, BackendKind.GVIRTUS)))
            made.append(post(node.api, gvirtus_policy.injection_binding(settings, section, BackendKind.GVIRTUS)))
            eventually(lambda: injected(node.api))
            yield node.api
        finally:
            for path in reversed(made):
                delete(node.api, path)
            eventually(lambda: not injected(node.api))

    def test_an_application_reads_the_injected_file_and_reaches_the_backend(
        self, api: httpx2.Client, remote: Remote
    ) -> None:
        assert_an_application_is_served(api, remote.address)

    def test_an_application_without_the_label_gets_nothing(self, api: httpx2.Client) -> None:
        assert_others_get_nothing(api)


class TestAdmissionServer:
    """The server from its own image, with the stack's objects. No MutatingAdmissionPolicy exists meanwhile."""

    @pytest.fixture(scope="class")
    @classmethod
    def api(cls, node: RealNode, remote: Remote, images: Images) -> httpx2.Client:
        """The cluster with the server installed as the stack does it: then it is told of backends."""
        connected = node.api
        settings = parse(changed(gvirtus_webhook(), "admission.image", images.agents))
        patch(connected, "/api/v1/nodes/jetson-1", {"metadata": {"labels": {"kai-anywhere.io/platform": "tegra"}}})
        post(connected, reservation.reservation_namespace(settings))
        account = {"name": reservation.SERVICE_ACCOUNT, "namespace": reservation.NAMESPACE}
        post(connected, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        made = {key: post(connected, manifest) for key, manifest in manifests(admission.objects(settings)).items()}
        available(connected, made["deployment"])
        data = admission.gvirtus_backends_data(gvirtus.endpoints(remote.gvirtus, {"gpu-a": remote.address}))
        post(connected, admission.gvirtus_backends(settings) | {"data": data})
        # The kubelet brings it to both replicas in its own time.
        for pod in servers(connected):
            eventually(partial(_lets_in, pod), within_seconds=PATIENT_SECONDS)
        return connected

    def test_every_replica_runs_on_the_real_node_and_is_ready(self, api: httpx2.Client) -> None:
        pods = servers(api)
        assert [pod["spec"]["nodeName"] for pod in pods] == [NAME, NAME]
        assert [ask(pod, "/readyz")[0] for pod in pods] == [200, 200]
        assert [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]] == [0, 0]

    def test_its_processes_have_no_rights_and_can_write_nothing(self, api: httpx2.Client) -> None:
        processes = running(b"python3\0-m\0agents.admission\0")
        assert len(processes) == len(servers(api))
        for process in processes:
            lines = (process / "status").read_text(encoding="utf-8").splitlines()
            status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            assert set(status["Uid"].split()) == {str(admission.USER)}
            assert int(status["CapBnd"], 16) == 0
            assert status["NoNewPrivs"] == "1"
            assert status["Seccomp"] == "2", "filtered"
            mounts = [line.split() for line in (process / "mounts").read_text(encoding="utf-8").splitlines()]
            [options] = [options for _, place, _, options, *_ in mounts if place == "/"]
            assert "ro" in options.split(",")

    def test_the_certificate_that_the_api_server_trusts_is_published_by_the_pod(self, api: httpx2.Client) -> None:
        for name in (admission.RESERVATION_WEBHOOK, admission.GVIRTUS_WEBHOOK):
            [webhook] = api.get(f"{CONFIGURATIONS}/{name}").json()["webhooks"]
            assert webhook["clientConfig"]["caBundle"]
            assert webhook["clientConfig"]["service"]["port"] == 443

    def test_a_reservation_pod_of_a_jetson_gets_its_overrides_through_the_service(self, api: httpx2.Client) -> None:
        pod: Any = created(api, as_binder_creates())
        assert pod["spec"]["containers"][0]["securityContext"]["privileged"] is True
        other: Any = created(api, as_binder_creates("x86-1"))
        assert "privileged" not in other["spec"]["containers"][0].get("securityContext", {})

    def test_an_application_reads_the_injected_file_and_reaches_the_backend(
        self, api: httpx2.Client, remote: Remote
    ) -> None:
        assert_an_application_is_served(api, remote.address)

    def test_an_application_without_the_label_gets_nothing(self, api: httpx2.Client) -> None:
        assert_others_get_nothing(api)

    def test_a_backend_that_there_is_not_is_refused_by_the_pod(self, api: httpx2.Client) -> None:
        pod = application(labelled=True)
        pod["metadata"]["annotations"] = {"gvirtus.io/backend": "nowhere"}
        answer = create(api, pod)
        assert not answer.is_success
        assert "there is no GPU backend 'nowhere'" in answer.text


class TestFrontends:
    """The device of a frontend: the stack's DaemonSet, its image a stand-in that takes its arguments."""

    @pytest.fixture(scope="class")
    @classmethod
    def api(cls, node: RealNode, remote: Remote) -> Iterator[httpx2.Client]:
        """The cluster with the device plugin, whose node has the frontend's label."""
        frontends = remote.gvirtus.frontends
        assert frontends is not None
        assert node.allocatable(RESOURCE) is None
        plugin: Any = copy.deepcopy(gvirtus_frontends.device_plugin(remote.settings, frontends))
        plugin["spec"]["template"]["spec"]["containers"][0]["image"] = STAND_INS_IMAGE
        made: list[str] = []
        try:
            made.append(post(node.api, gvirtus_frontends.frontends_namespace()))
            made.append(post(node.api, plugin))
            node.label({FRONTEND_ALLOWED: "true"})
            available(node.api, made[-1])
            eventually(lambda: node.allocatable(RESOURCE) == "2", within_seconds=PATIENT_SECONDS)
            yield node.api
        finally:
            node.label({FRONTEND_ALLOWED: None})
            for path in reversed(made):
                delete(node.api, path)

    def test_a_pod_that_asks_for_a_device_gets_one_that_it_may_write(self, api: httpx2.Client) -> None:
        printed = run_to_end(api, with_devices(1))["told"]
        assert printed["device"] == [*NULL_DEVICE]
        assert printed["written"] == 1

    def test_a_pod_that_asks_for_none_gets_none(self, api: httpx2.Client) -> None:
        assert "device" not in run_to_end(api, application(labelled=False))["told"]

    def test_a_pod_that_asks_for_more_than_there_are_waits(self, api: httpx2.Client) -> None:
        path = post(api, with_devices(3))
        try:

            def refused() -> bool:
                conditions = api.get(path).json()["status"].get("conditions", [])
                return any(f"Insufficient {RESOURCE}" in condition.get("message", "") for condition in conditions)

            eventually(refused)
            assert "nodeName" not in api.get(path).json()["spec"]
        finally:
            delete(api, path)

    @pytest.mark.usefixtures("api")
    def test_the_device_goes_with_the_label(self, node: RealNode) -> None:
        node.label({FRONTEND_ALLOWED: None})
        eventually(lambda: node.allocatable(RESOURCE) == "0", within_seconds=PATIENT_SECONDS)
        node.label({FRONTEND_ALLOWED: "true"})
        eventually(lambda: node.allocatable(RESOURCE) == "2", within_seconds=PATIENT_SECONDS)


class TestRoles:
    """Who is a frontend and who a backend: the stack's rule, judged by Node Feature Discovery itself."""

    @pytest.fixture(scope="class")
    @classmethod
    def machine(
        cls, node: RealNode, remote: Remote, images: Images, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[nfd.Machine]:
        """The node's machine, watched by NFD with the stack's rule."""
        node.import_image(nfd.build(images.builder))
        made = nfd.Machine(tmp_path_factory.mktemp("machine"))
        with nfd.node_feature_discovery(node, made, roles_rule(remote.gvirtus)):
            yield made

    def test_a_node_without_a_gpu_is_a_frontend(self, machine: nfd.Machine, node: RealNode) -> None:
        assert not list(machine.folder.glob("bus/pci/devices/*"))
        eventually(lambda: roles(node) == {FRONTEND_ALLOWED}, within_seconds=PATIENT_SECONDS)

    def test_a_gpu_makes_it_a_backend_for_as_long_as_it_is_there(self, machine: nfd.Machine, node: RealNode) -> None:
        machine.plug(GPU_ADDRESS, vendor="0x10de", device_class="0x030200")
        eventually(lambda: roles(node) == {BACKEND_ALLOWED}, within_seconds=PATIENT_SECONDS)
        machine.unplug(GPU_ADDRESS)
        eventually(lambda: roles(node) == {FRONTEND_ALLOWED}, within_seconds=PATIENT_SECONDS)


class TestPrivilegeProbe:
    """`kai-anywhere probe-privilege` where its pods really run: each symptom is one that a container had.

    Real are the pod of each rung, what the kubelet and containerd say of it, the loader's search for NVML's library and
    the kernel's verdict on the device file that this opens. The library is a mock, and a stand-in says KAI's part.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def plugged(cls, node: RealNode) -> Iterator[Board]:
        """The board in the real node."""
        if shutil.which("cc") is None:
            pytest.skip("NVML's mock needs a C compiler")
        with board.board(node) as made:
            yield made

    @pytest.fixture
    def jetson(self, plugged: Board, monkeypatch: pytest.MonkeyPatch) -> Board:
        """The board as a container toolkit leaves it that gives containers nothing, and a probe that looks often."""
        plugged.reset()
        for module in (run, scratch):
            monkeypatch.setattr(module, "POLL_SECONDS", 0.2)
        return plugged

    @pytest.mark.usefixtures("jetson")
    def test_where_nothing_is_injected_the_library_then_the_device_is_missing(self, cluster: ControlPlane) -> None:
        result = probe(board.stack(), cluster)
        assert complaints(result) == {
            "plain": "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
            "runtime-class": "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
            "variables": "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
            "libraries": "unable to initialize NVML: Driver Not Loaded",
            "libraries-groups": "unable to initialize NVML: Driver Not Loaded",
            "libraries-root": "unable to initialize NVML: Driver Not Loaded",
        }
        assert symptoms(result) == [*3 * [Symptom.NO_LIBRARY], *3 * [Symptom.CLOSED], Symptom.HELD]
        assert (result.status, result.needed) == (FOUND, True)
        assert result.settings_to_write == {"reservation": {"privilege_by_node": {NAME: "privileged"}}}

    def test_a_device_of_a_group_opens_for_pods_of_this_group(self, jetson: Board, cluster: ControlPlane) -> None:
        jetson.injects = True
        jetson.opens_for(VIDEO)
        result = probe(board.stack(), cluster)
        assert complaints(result) == {
            "plain": "unable to initialize NVML: Insufficient Permissions",
            "runtime-class": "unable to initialize NVML: Insufficient Permissions",
        }
        assert symptoms(result) == [Symptom.CLOSED, Symptom.CLOSED, Symptom.HELD]
        assert result.settings_to_write == {
            "reservation": {"privilege_by_node": {NAME: "none"}, "supplemental_groups": [VIDEO]}
        }

    def test_where_all_is_injected_no_workaround_is_needed(self, jetson: Board, cluster: ControlPlane) -> None:
        jetson.injects = True
        result = probe(board.stack(), cluster)
        assert symptoms(result) == [Symptom.HELD, Symptom.HELD]
        assert (result.status, result.needed) == (FOUND, False)

    def test_no_rung_makes_one_gpu_of_two(self, jetson: Board, cluster: ControlPlane) -> None:
        jetson.injects, jetson.gpus = True, 2
        result = probe(board.stack(), cluster)
        assert complaints(result) == {"plain": "found 2 devices, 1 was expected"}
        assert (symptoms(result), result.status) == ([Symptom.SEVERAL], NOT_HELD)

    @pytest.mark.usefixtures("jetson")
    def test_what_the_kubelet_and_containerd_say_is_known(
        self, node: RealNode, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        libraries = f"platform.tegra_nodes.{NAME}.driver_library_paths"
        no_folder = changed(board.stack(), libraries, ["/run/board/missing"])
        monkeypatch.setattr(ladder, "LADDER", [rung for rung in ladder.LADDER if rung.name == "libraries"])
        assert symptoms(probe(no_folder, cluster)) == [Symptom.NO_FOLDER]

        never = changed(board.stack(), "kai.images", {"pull_policy": "Never"})
        result = probe(never, cluster, image="localhost/nowhere:1")
        assert (symptoms(result), result.status) == ([Symptom.NO_IMAGE], NOT_RUN)

        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "unconfigured"}}
        post(node.api, runtime | {"handler": reservation.RUNTIME_CLASS})
        monkeypatch.setattr(ladder, "RUNTIME_CLASS", "unconfigured")
        assert symptoms(probe(board.stack(), cluster)) == [Symptom.NO_RUNTIME]


def _lets_in(server: Json) -> bool:
    """Whether a replica answers that a pod with a remote GPU may be made."""
    return bool(review(server, application(labelled=True))["allowed"])


def probe(stack: Json, cluster: ControlPlane, *, image: str = RESERVATION_IMAGE) -> Result:
    """What the probe of the real node finds."""
    settings = parse(stack_settings(stack, cluster))
    with closing(Cluster.connect(settings.cluster)) as connected:
        return Probe(connected, settings, NAME, image, (VIDEO,), lambda _: None).run()


def symptoms(result: Result) -> list[Symptom]:
    return [attempt.symptom for attempt in result.attempts]


def complaints(result: Result) -> dict[str, str]:
    """The last line of each pod that failed, without what KAI's program says before an error."""
    return {
        attempt.rung.name: attempt.evidence[-1].removeprefix("Error while running the app: ")
        for attempt in result.attempts
        if attempt.symptom is not Symptom.HELD
    }


def injected(api: httpx2.Client) -> bool:
    """Whether a pod gets anything."""
    answer = create(api, application(labelled=True))
    return answer.is_success and "gvirtus.io/properties" in answer.json()["metadata"].get("annotations", {})


def servers(api: httpx2.Client) -> list[Json]:
    """The server's pods."""
    pods: list[Json] = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods").json()["items"]
    return pods


def ask(pod: Json, path: str) -> tuple[int, str]:
    """GET on a server's health port."""
    response = httpx2.get(f"http://{pod['status']['podIP']}:{admission.HEALTH_PORT}{path}", trust_env=False, timeout=30)
    return response.status_code, response.text


def review(pod: Json, of: Json) -> Json:
    """What one replica answers an API server that creates a pod; its certificate is looked at elsewhere."""
    request = {"uid": "1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": TEAM}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | {"object": of}}
    url = f"https://{pod['status']['podIP']}:{admission.PORT}/mutate/gvirtus"
    response: Json = httpx2.post(url, json=body, trust_env=False, timeout=30, verify=False).json()["response"]
    return response


def running(command: bytes) -> list[Path]:
    """The folders below /proc of all processes with a command line."""
    return [folder for folder, line in command_lines() if line == command]


def with_devices(count: int) -> Json:
    pod = application(labelled=False)
    pod["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: str(count)}}
    pod["spec"]["nodeSelector"] = {FRONTEND_ALLOWED: "true"}
    return pod


def roles(node: RealNode) -> set[str]:
    """The labels of ours that the node has as `true`."""
    labels = node.object()["metadata"]["labels"]
    return {label for label in (BACKEND_ALLOWED, FRONTEND_ALLOWED) if labels.get(label) == "true"}
