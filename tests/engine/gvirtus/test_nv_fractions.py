"""Pods that ask NvFractions alone for GPU memory, on a cluster whose frontends stand for remote GPUs."""

from collections.abc import Iterator

import httpx2
import pytest

import simulator
from manifests.admission_objects import deny_binding, mutating_binding
from manifests.gvirtus import frontends
from testbed.inventory import connect
from testbed.stacks import Json, changed, parse, x86
from testbed.stacks import gvirtus as gvirtus_stack
from testbed.waiting import eventually
from tests.support.gvirtus.cases import GPU, TEAM, create, created, namespace, pod, post, refused, stack_of, unlabelled

STACK = changed(x86(), "gvirtus", stack_of(gvirtus_stack())["gvirtus"])
SETTINGS = parse(changed(STACK, "kai.gpu_sharing_mode", "nv_fractions"))
REAL_GPU = {"nvidia.com/gpu.present": "true"}


@pytest.fixture(scope="module")
def api(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """The cluster with the frontends' policies in force."""
    assert SETTINGS.gvirtus is not None
    assert SETTINGS.gvirtus.frontends is not None
    manifests = [
        namespace(TEAM, {}),
        frontends.placement_policy(SETTINGS),
        mutating_binding(SETTINGS, frontends.PLACEMENT),
        frontends.guard_policy(SETTINGS, SETTINGS.gvirtus.frontends),
        deny_binding(frontends.GUARD),
    ]
    with connect(cluster) as connected:
        for manifest in manifests:
            post(connected, manifest)
        account = f"/api/v1/namespaces/{TEAM}/serviceaccounts/default"
        eventually(lambda: connected.get(account).status_code == httpx2.codes.OK)
        eventually(lambda: selector(create(connected, unlabelled(pod(resources=GPU))).json()) == REAL_GPU)
        eventually(lambda: not create(connected, on_the_frontend(unlabelled(pod(resources=GPU)))).is_success)
        yield connected


def asks(key: str) -> Json:
    new_pod = unlabelled(pod())
    new_pod["metadata"]["annotations"] = {key: "2Gi"}
    return new_pod


def on_the_frontend(new_pod: Json) -> Json:
    return changed(new_pod, "spec.nodeName", "cpu-1")


def selector(made: Json) -> Json | None:
    chosen: Json | None = made.get("spec", {}).get("nodeSelector")
    return chosen


@pytest.mark.parametrize("end", ["request", "limit"])
def test_it_is_sent_to_a_real_gpu_and_refused_on_a_frontend(api: httpx2.Client, end: str) -> None:
    new_pod = asks(f"nvidia.com/container.main.gpu-memory.{end}")
    assert selector(created(api, new_pod)) == REAL_GPU
    assert "the GPUs of these nodes stand for remote ones: cpu-1" in refused(api, on_the_frontend(new_pod))


@pytest.mark.parametrize("key", ["nvidia.com/container.main.gpu-memory", "example.com/main.gpu-memory.request"])
def test_another_annotation_asks_for_nothing(api: httpx2.Client, key: str) -> None:
    assert selector(created(api, asks(key))) is None
    created(api, on_the_frontend(asks(key)))
