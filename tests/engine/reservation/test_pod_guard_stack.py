"""A stack that guards its whole cluster: its own releases, operands and reservation pods live under the guard."""

import copy
from collections.abc import Callable, Iterator

import httpx2
import pytest
import yaml

import simulator
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.stacks import ROOT, Json, changed, gvirtus, jetson
from testbed.waiting import eventually

RESERVATION = "kai-resource-reservation"
BINDER = "system:serviceaccount:kai-scheduler:binder"
_DRY = {"dryRun": "All"}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """The Jetson stack with scope cluster, up."""
    stack = new_stack(changed(jetson(), "pod_guard.scope", "cluster"))
    stack.up()
    return stack


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane, stack: Stack) -> Iterator[httpx2.Client]:
    with connect(cluster) as connected:
        account = f"/api/v1/namespaces/{RESERVATION}/serviceaccounts/kai-resource-reservation"
        eventually(lambda: connected.get(account).is_success)
        eventually(lambda: not create(connected, privileged("default")).is_success)
        yield connected
    assert stack.name


def create(api: httpx2.Client, pod: Json, user: str | None = None) -> httpx2.Response:
    headers = {} if user is None else {"Impersonate-User": user}
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    return api.post(path, json=pod, params=_DRY, headers=headers)


def privileged(namespace: str) -> Json:
    container = {"name": "main", "image": "busybox:1", "securityContext": {"privileged": True}}
    return {"metadata": {"name": "probe", "namespace": namespace}, "spec": {"containers": [container]}}


def reservation_pod(node: str) -> Json:
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    return changed(pod, "spec.nodeName", node)


@pytest.mark.parametrize("namespace", ["default", RESERVATION])
def test_a_privileged_pod_is_refused_everywhere(api: httpx2.Client, namespace: str) -> None:
    response = create(api, privileged(namespace))
    assert not response.is_success
    assert "ValidatingAdmissionPolicy 'kai-anywhere-" in response.json()["message"]


def test_in_kais_namespace_pod_security_comes_first_and_the_guard_refuses_what_it_lets_through(
    api: httpx2.Client,
) -> None:
    assert 'violates PodSecurity "baseline' in create(api, privileged("kai-scheduler")).json()["message"]
    plain: Json = {
        "metadata": {"name": "probe", "namespace": "kai-scheduler"},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
    }
    assert create(api, plain).is_success
    plain["metadata"]["annotations"] = {"cdi.k8s.io/probe": "nvidia.com/gpu=all"}
    assert "ValidatingAdmissionPolicy 'kai-anywhere-pod-guard'" in create(api, plain).json()["message"]


@pytest.mark.parametrize("namespace", ["kube-system", "gpu-operator"])
def test_what_is_privileged_by_design_stays(api: httpx2.Client, namespace: str) -> None:
    assert create(api, privileged(namespace)).is_success


def test_every_pod_of_the_stacks_own_releases_can_be_created_anew(api: httpx2.Client) -> None:
    pods = api.get("/api/v1/pods").json()["items"]
    own = [pod for pod in pods if pod["metadata"]["namespace"] in {"kai-scheduler", "gpu-operator"}]
    assert {pod["metadata"]["namespace"] for pod in own} == {"kai-scheduler", "gpu-operator"}
    for pod in own:
        spec = copy.deepcopy(pod["spec"])
        spec.pop("nodeName", None)
        metadata = {key: pod["metadata"].get(key) for key in ("namespace", "labels", "annotations")}
        response = create(api, {"metadata": {"generateName": "again-", **metadata}, "spec": spec})
        assert response.is_success, response.text


def test_reservation_pods_of_kais_binder_come_up_on_every_platform(api: httpx2.Client) -> None:
    tegra = create(api, reservation_pod("jetson-1"), BINDER)
    assert tegra.is_success, tegra.text
    assert tegra.json()["spec"]["containers"][0]["securityContext"]["privileged"] is True
    x86 = create(api, reservation_pod("x86-1"), BINDER)
    assert x86.is_success, x86.text
    assert "privileged" not in x86.json()["spec"]["containers"][0]["securityContext"]


def test_frontends_of_remote_gpus_can_be_added_under_the_guard(api: httpx2.Client, stack: Stack) -> None:
    without = stack.settings
    stack.settings = changed(without, "gvirtus", gvirtus()["gvirtus"])
    assert {"gvirtus-device-plugin", "pod-guard-policy"} <= stack.up().changed
    assert set(stack.up().changes) == {"same"}
    assert create(api, privileged("gvirtus-frontends")).is_success
    stack.settings = without
    assert {"gvirtus-device-plugin", "pod-guard-policy"} <= stack.up().changed
    assert set(stack.up().changes) == {"same"}
    eventually(lambda: not create(api, privileged("gvirtus-system")).is_success)


def test_the_guard_changes_in_place_with_its_setting(api: httpx2.Client, stack: Stack) -> None:
    stack.settings = changed(stack.settings, "pod_guard.scope", "labelled")
    assert stack.up().changed == {"pod-guard-policy"}
    eventually(lambda: create(api, privileged("default")).is_success)
