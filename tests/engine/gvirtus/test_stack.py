"""A stack with remote GPUs on the real engine and a real API server, from the first `up` to `destroy`."""

import copy
from collections.abc import Callable

import httpx2
import pytest

import simulator
from simulator.nodes import KIND_ANNOTATION
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.stacks import Json, changed, gvirtus, without
from testbed.waiting import eventually

BACKENDS = "/api/v1/namespaces/gvirtus-system"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
PATIENT_SECONDS = 240.0
"""Controllers, KWOK and emulated operators come one after the other."""


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> set[str]:
    """What the cluster holds before the stack."""
    return inventory(api)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack], before: set[str]) -> Stack:
    """The stack, up; what a test changed, it takes out of the settings, and the next `up` out of the cluster."""
    assert before
    made = new_stack(gvirtus())
    assert made.up().changes["create"] > 30
    return made


def remote_pod(**annotations: str) -> Json:
    """A pod that asks for a remote GPU, and for a frontend's device."""
    container = {"name": "main", "image": "app:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    notes = {name.replace("__", ".io/"): value for name, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "remote", "labels": {"gvirtus.io/enabled": "true"}, "annotations": notes},
        "spec": {"containers": [container]},
    }


def created(api: httpx2.Client, pod: Json, *, dry_run: bool = False) -> Json:
    response = api.post(PODS, json=pod, params={"dryRun": "All"} if dry_run else {})
    assert response.status_code == httpx2.codes.CREATED, response.text
    answer: Json = response.json()
    return answer


def address(api: httpx2.Client, backend: str) -> str:
    return str(api.get(f"{BACKENDS}/services/{backend}").json()["spec"]["clusterIP"])


def gpus(api: httpx2.Client, node: str) -> int:
    return int(api.get(f"/api/v1/nodes/{node}").json()["status"]["allocatable"].get("nvidia.com/gpu", 0))


def labels(api: httpx2.Client, node: str) -> dict[str, str]:
    labels: dict[str, str] = api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"]
    return labels


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    assert set(stack.up().changes) == {"same"}


@pytest.mark.usefixtures("stack")
def test_every_backend_runs_with_a_gpu_of_its_own(api: httpx2.Client) -> None:
    pods = {p["metadata"]["labels"]["gvirtus.io/backend"]: p for p in api.get(f"{BACKENDS}/pods").json()["items"]}
    assert pods.keys() == {"gpu-a", "gpu-b"}
    assert pods["gpu-a"]["spec"]["nodeName"] == "x86-1"
    assert pods["gpu-b"]["spec"]["nodeName"] in {"x86-1", "jetson-1"}
    for pod in pods.values():
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert pod["spec"]["runtimeClassName"] == "nvidia"


@pytest.mark.usefixtures("stack")
def test_roles_are_what_was_detected(api: httpx2.Client) -> None:
    backend = {"gvirtus.io/backend.allowed": "true"}
    expected = {"jetson-1": backend, "x86-1": backend, "cpu-1": {"gvirtus.io/frontend.allowed": "true"}}

    def roles() -> dict[str, dict[str, str]]:
        return {n: {k: v for k, v in labels(api, n).items() if k.startswith("gvirtus.io/")} for n in expected}

    eventually(lambda: roles() == expected, within_seconds=PATIENT_SECONDS)


@pytest.mark.usefixtures("stack")
def test_the_frontend_advertises_devices_and_nodes_with_gpus_get_no_second_plugin(api: httpx2.Client) -> None:
    eventually(lambda: gpus(api, "cpu-1") == 4, within_seconds=PATIENT_SECONDS)
    pods = api.get("/api/v1/namespaces/gvirtus-frontends/pods").json()["items"]
    assert [p["spec"]["nodeName"] for p in pods] == ["cpu-1"]
    assert (gpus(api, "x86-1"), gpus(api, "jetson-1")) == (2, 1)


@pytest.mark.usefixtures("stack")
def test_a_pod_gets_the_services_real_address_and_runs_on_the_frontend(api: httpx2.Client) -> None:
    eventually(lambda: gpus(api, "cpu-1") == 4, within_seconds=PATIENT_SECONDS)
    pod = created(api, remote_pod())
    try:
        properties = pod["metadata"]["annotations"]["gvirtus.io/properties"]
        assert f'"server_address":"{address(api, "gpu-a")}"' in properties
        assert '"port":"9999"' in properties
        path = f"{PODS}/remote"
        eventually(lambda: api.get(path).json()["spec"].get("nodeName") == "cpu-1", within_seconds=PATIENT_SECONDS)
    finally:
        api.delete(f"{PODS}/remote", params={"gracePeriodSeconds": "0"})
        eventually(lambda: api.get(f"{PODS}/remote").status_code == httpx2.codes.NOT_FOUND)


@pytest.mark.usefixtures("stack")
def test_an_ordinary_pod_waits_for_a_real_gpu_while_the_frontend_has_free_devices(api: httpx2.Client) -> None:
    eventually(lambda: gpus(api, "cpu-1") == 4, within_seconds=PATIENT_SECONDS)
    pod = remote_pod()
    del pod["metadata"]["labels"]
    names = [f"ordinary-{index}" for index in range(3)]
    for name in names:
        copied = copy.deepcopy(pod)
        copied["metadata"]["name"] = name
        created(api, copied)
    try:

        def scheduled() -> set[str]:
            items = api.get(PODS).json()["items"]
            return {p["spec"]["nodeName"] for p in items if "nodeName" in p["spec"] and p["metadata"]["name"] in names}

        def decided() -> bool:
            """Every pod has a node, or the scheduler said that there is none."""
            items = [p for p in api.get(PODS).json()["items"] if p["metadata"]["name"] in names]
            conditions = [
                c for p in items for c in p.get("status", {}).get("conditions", []) if c["type"] == "PodScheduled"
            ]
            return len(conditions) == len(names)

        eventually(decided, within_seconds=PATIENT_SECONDS)
        # Three GPUs, two of them with backends: one pod fits.
        assert scheduled() < {"x86-1", "jetson-1"}
        assert len(scheduled()) == 1
    finally:
        for name in names:
            api.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})
        eventually(lambda: not api.get(PODS).json()["items"])


def test_the_outputs_tell_where_backends_answer(stack: Stack, api: httpx2.Client) -> None:
    [top] = [r for r in stack.resources() if r["type"] == "kai-anywhere:index:KaiAnywhere"]
    assert top["outputs"]["gvirtus_backends"] == {
        "gpu-a": f"{address(api, 'gpu-a')}:9999",
        "gpu-b": f"{address(api, 'gpu-b')}:14833",
    }


def test_another_image_changes_that_backend_alone_and_not_its_address(stack: Stack, api: httpx2.Client) -> None:
    before, old = stack.settings, address(api, "gpu-a")
    stack.settings = changed(before, "gvirtus.backends.gpu-a.image", "gvirtus/gvirtus:other")
    try:
        assert stack.up().changed == {"gvirtus-backend-gpu-a"}
        assert address(api, "gpu-a") == old
        [pod] = api.get(f"{BACKENDS}/pods", params={"labelSelector": "gvirtus.io/backend=gpu-a"}).json()["items"]
        assert pod["spec"]["containers"][0]["image"] == "gvirtus/gvirtus:other"
    finally:
        stack.settings = before


def test_a_backend_taken_out_is_unknown_to_pods_and_one_put_in_is_known(stack: Stack, api: httpx2.Client) -> None:
    before = stack.settings
    less = without(before, "gvirtus.backends.gpu-b")
    more = {"image": "gvirtus/gvirtus:1", "node": "jetson-1", "port": 34567}
    stack.settings = changed(less, "gvirtus.backends.gpu-c", more)
    try:
        stack.up()
        assert {
            p["metadata"]["name"] for p in api.get(POLICIES).json()["items"] if "lupine" in p["metadata"]["name"]
        } == set()

        def answer(backend: str) -> httpx2.Response:
            return api.post(PODS, json=remote_pod(gvirtus__backend=backend), params={"dryRun": "All"})

        eventually(lambda: answer("gpu-c").status_code == httpx2.codes.CREATED, within_seconds=PATIENT_SECONDS)
        made = answer("gpu-c").json()["metadata"]["annotations"]["gvirtus.io/properties"]
        assert f'"server_address":"{address(api, "gpu-c")}","port":"34567"' in made
        eventually(
            lambda: answer("gpu-b").status_code == httpx2.codes.UNPROCESSABLE_CONTENT, within_seconds=PATIENT_SECONDS
        )
        assert "there is no GPU backend 'gpu-b'" in answer("gpu-b").json()["message"]
    finally:
        stack.settings = before


def test_a_backend_with_another_name_takes_over_the_only_gpu_of_its_node(stack: Stack, api: httpx2.Client) -> None:
    before = stack.settings
    backend = {"image": "gvirtus/gvirtus:1", "node": "jetson-1"}

    def on(node: str) -> set[str]:
        pods = api.get(f"{BACKENDS}/pods", params={"fieldSelector": f"spec.nodeName={node}"}).json()["items"]
        return {p["metadata"]["labels"]["gvirtus.io/backend"] for p in pods}

    try:
        for name in ("old", "new"):
            # `up` would end with an error while the new one waits for what Pulumi deletes at its end.
            one = changed(without(before, "gvirtus.backends.gpu-b"), f"gvirtus.backends.{name}", backend)
            stack.settings = changed(one, "gvirtus.timeout_seconds", 60)
            stack.up()
        eventually(lambda: on("jetson-1") == {"new"}, within_seconds=PATIENT_SECONDS)
    finally:
        stack.settings = before


@pytest.mark.usefixtures("stack")
def test_a_frontend_that_gets_a_gpu_loses_its_role_and_its_devices(api: httpx2.Client) -> None:
    def becomes(kind: simulator.NodeKind) -> None:
        body = {"metadata": {"annotations": {KIND_ANNOTATION: kind.value}}}
        api.patch("/api/v1/nodes/cpu-1", json=body, headers=MERGE).raise_for_status()

    eventually(lambda: gpus(api, "cpu-1") == 4, within_seconds=PATIENT_SECONDS)
    becomes(simulator.NodeKind.X86)
    try:
        eventually(lambda: "gvirtus.io/frontend.allowed" not in labels(api, "cpu-1"), within_seconds=PATIENT_SECONDS)
        eventually(
            lambda: labels(api, "cpu-1").get("gvirtus.io/backend.allowed") == "true", within_seconds=PATIENT_SECONDS
        )
        eventually(lambda: gpus(api, "cpu-1") == 0, within_seconds=PATIENT_SECONDS)
    finally:
        becomes(simulator.NodeKind.CPU)
        eventually(lambda: gpus(api, "cpu-1") == 4, within_seconds=PATIENT_SECONDS)


def test_destroy_leaves_nothing_behind(stack: Stack, api: httpx2.Client, before: set[str]) -> None:
    stack.destroy()
    assert [r["type"] for r in stack.resources()] == []
    eventually(lambda: left_behind(api, before) == set(), within_seconds=PATIENT_SECONDS)
    eventually(lambda: gpus(api, "cpu-1") == 0, within_seconds=PATIENT_SECONDS)
