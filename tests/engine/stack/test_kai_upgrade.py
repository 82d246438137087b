"""KAI 0.17 becomes 0.18 while fractions run, on the real engine and a real API server."""

from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
from manifests.versions import KAI_SCHEDULER
from testbed.engine import Stack
from testbed.simulated import older_kai, stack_settings
from testbed.stacks import ROOT, Json, changed, jetson
from testbed.waiting import eventually
from tests.support.docs import command

BINDER = "system:serviceaccount:kai-scheduler:binder"
RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"
WORKLOADS = "/api/v1/namespaces/default/pods"
CONFIG = "/apis/kai.scheduler/v1/configs/kai-config"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BINDER_DEPLOYMENT = "/apis/apps/v1/namespaces/kai-scheduler/deployments/binder"
GROUP = "7d793037-a076-4f5c-b5f5-2f9f6d2a5f4e"
MODE = "nvidia.com/container.resource-reservation.gpu-compute.mode"


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, cluster: simulator.ControlPlane, engine_environment: dict[str, str]
) -> Stack:
    """The Jetson stack with KAI 0.17."""
    folder = tmp_path_factory.mktemp("stack")
    older = older_kai(folder / "kai-0.17", "v0.17.0")
    settings = changed(stack_settings(jetson(), cluster), "kai.chart", {"source": str(older)})
    made = Stack(folder / "project", settings, engine_environment)
    made.up()
    return made


def _reservation_pod(name: str) -> Json:
    pod: Json = yaml.safe_load((ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8"))
    pod["metadata"]["name"] = name
    return pod


def _post(api: httpx2.Client, path: str, content: Json, user: str | None = None) -> None:
    answer = api.post(path, json=content, headers={} if user is None else {"Impersonate-User": user})
    assert answer.status_code == httpx2.codes.CREATED, answer.text


def _bound(api: httpx2.Client, name: str) -> None:
    """A pod with a fraction as KAI leaves it once it is bound."""
    pod: Json = yaml.safe_load((ROOT / "examples/fraction.yaml").read_text(encoding="utf-8"))
    pod["metadata"]["name"] = name
    pod["metadata"]["labels"]["runai-gpu-group"] = GROUP
    pod["spec"]["nodeName"] = "jetson-1"
    _post(api, WORKLOADS, pod)


def _seen(api: httpx2.Client, path: str) -> dict[str, tuple[str, str, str, str | None]]:
    """Pods by name: UID, node, phase and GPU group."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["spec"]["nodeName"],
            pod["status"]["phase"],
            pod["metadata"]["labels"].get("runai-gpu-group"),
        )
        for pod in api.get(path).json()["items"]
    }


def _running(api: httpx2.Client, path: str, count: int) -> bool:
    seen = _seen(api, path).values()
    return len(seen) == count and {phase for _, _, phase, _ in seen} == {"Running"}


def _uids(api: httpx2.Client, path: str) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in api.get(path).json()["items"]}


def _binder_image(api: httpx2.Client) -> str:
    [container] = api.get(BINDER_DEPLOYMENT).json()["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def _spec(api: httpx2.Client) -> Json:
    spec: Json = api.get(CONFIG).json()["spec"]
    return spec


def test_fractions_outlive_the_upgrade_and_the_new_kai_has_the_mode(stack: Stack, api: httpx2.Client) -> None:
    eventually(lambda: "admission" in _spec(api))
    assert _spec(api)["admission"]["gpuSharing"] is True
    assert "gpuSharingMode" not in _spec(api)["global"]
    account = "/api/v1/namespaces/kai-resource-reservation/serviceaccounts/kai-resource-reservation"
    eventually(lambda: api.get(account).status_code == httpx2.codes.OK)
    before = _reservation_pod("gpu-reservation-before")
    del before["metadata"]["annotations"][MODE]
    _post(api, RESERVATIONS, before, BINDER)
    _bound(api, "first")
    _bound(api, "second")
    eventually(lambda: _running(api, RESERVATIONS, 1))
    eventually(lambda: _running(api, WORKLOADS, 2))
    reservations, workloads = _seen(api, RESERVATIONS), _seen(api, WORKLOADS)
    queues = api.get(QUEUES).json()["items"]

    stack.settings = changed(stack.settings, "kai.chart", {"source": str(simulator.chart_path("kai-scheduler"))})
    upgraded = stack.up()
    assert upgraded.changed == {"kai-scheduler"}
    assert upgraded.changes["update"] == 1

    assert _spec(api)["global"]["gpuSharingMode"] == "NonMemoryEnforced"
    assert "gpuSharing" not in _spec(api)["admission"]
    assert (_seen(api, RESERVATIONS), _seen(api, WORKLOADS)) == (reservations, workloads)
    assert [(q["metadata"]["uid"], q["spec"]) for q in api.get(QUEUES).json()["items"]] == [
        (q["metadata"]["uid"], q["spec"]) for q in queues
    ]
    eventually(lambda: _binder_image(api).endswith(f":{KAI_SCHEDULER.version}"))


def test_a_pod_of_before_can_still_be_annotated_and_one_of_0_18_is_taken(stack: Stack, api: httpx2.Client) -> None:
    assert stack.settings["kai"]["chart"]["source"] == str(simulator.chart_path("kai-scheduler"))
    patched = api.patch(
        f"{RESERVATIONS}/gpu-reservation-before",
        json={"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}},
        headers={"Content-Type": "application/merge-patch+json", "Impersonate-User": BINDER},
    )
    assert patched.status_code == httpx2.codes.OK, patched.text
    after = _reservation_pod("gpu-reservation-after")
    assert after["metadata"]["annotations"][MODE] == "time-slicing"
    _post(api, RESERVATIONS, after, BINDER)
    made = api.get(f"{RESERVATIONS}/gpu-reservation-after").json()
    assert made["metadata"]["annotations"][MODE] == "time-slicing"
    assert made["spec"]["containers"][0]["securityContext"]["privileged"] is True


def test_another_mode_reaches_kais_config(stack: Stack, api: httpx2.Client) -> None:
    before = stack.settings
    stack.settings = changed(before, "kai.gpu_sharing_mode", "disabled")
    assert stack.up().changed == {"kai-scheduler"}
    assert _spec(api)["global"]["gpuSharingMode"] == "Disabled"
    assert "gpuSharing" not in _spec(api)["admission"]
    # The next run says it.
    stack.settings = before


def test_the_way_back_takes_kai_out_and_leaves_fractions_and_queues(
    stack: Stack, api: httpx2.Client, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    """docs/upgrade.md: `helm uninstall`, which the provider does here, the older version, and `pulumi up --refresh`."""
    uninstall, back = command("upgrade.md", "helm uninstall kai-scheduler --namespace kai-scheduler").splitlines()
    assert (uninstall.split()[2:], back.split()) == (
        ["kai-scheduler", "--namespace", "kai-scheduler"],
        ["pulumi", "up", "--refresh"],
    )
    pods = _seen(api, RESERVATIONS), _seen(api, WORKLOADS)
    queues, definitions = _uids(api, QUEUES), _uids(api, DEFINITIONS)

    helm = Stack(tmp_path / "helm", {}, engine_environment, program=tmp_path)
    helm.environment["KUBECONFIG"] = stack.settings["cluster"]["kubeconfig"]
    kind = "kubernetes:helm.sh/v3:Release"
    options = ("--yes", "--protect=false", "--generate-code=false")
    helm.run("import", kind, "kai-scheduler", "kai-scheduler/kai-scheduler", *options)
    helm.destroy()
    eventually(lambda: api.get(CONFIG).status_code == httpx2.codes.NOT_FOUND)
    eventually(lambda: api.get(BINDER_DEPLOYMENT).status_code == httpx2.codes.NOT_FOUND)
    assert (_seen(api, RESERVATIONS), _seen(api, WORKLOADS)) == pods

    before = stack.settings
    stack.settings = changed(before, "kai.gpu_sharing_mode", "disabled")
    as_the_state_says = stack.up(expect=None)
    assert as_the_state_says.code != 0
    assert "Helm release 'kai-scheduler' is not in namespace 'kai-scheduler'" in as_the_state_says.output
    older = older_kai(tmp_path / "kai-0.17", "v0.17.0")
    stack.settings = changed(before, "kai.chart", {"source": str(older)})
    stack.up(*back.split()[2:])
    assert _spec(api)["admission"]["gpuSharing"] is True
    assert "gpuSharingMode" not in _spec(api)["global"]
    assert (_seen(api, RESERVATIONS), _seen(api, WORKLOADS)) == pods
    assert (_uids(api, QUEUES), _uids(api, DEFINITIONS)) == (queues, definitions)
    assert set(stack.up().changes) == {"same"}
