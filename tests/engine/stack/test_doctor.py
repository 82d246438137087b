"""What `doctor` says of a stack on a real API server: well, and then with one thing taken away."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx2
import pytest

import simulator
import toolchain
from cluster.access.client import Cluster
from operations.doctor.diagnosis import Diagnosis, diagnose
from operations.doctor.reading import read_facts
from operations.errors import OperationError
from operations.scratch import Scratch
from testbed.engine import Stack
from testbed.stacks import Json, jetson, parse
from testbed.waiting import eventually
from tests.support.dead_webhook import judged_by_nobody
from toolchain.programs import HELM

_KAI = "/apis/apps/v1/namespaces/kai-scheduler/deployments"
_BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/kai-anywhere-reservation-overrides"
_MADE_BY_CHARTS = [
    ("KA0302", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"),
    ("KA0202", f"{_KAI}/kai-operator"),
    ("KA0203", "/apis/kai.scheduler/v1/configs/kai-config"),
    ("KA0211", "/apis/kai.scheduler/v1/schedulingshards/default"),
]
"""What `doctor` says without it, and what it is."""
_APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
_MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """The Jetson stack, up; what a test takes away, it puts back."""
    made = new_stack(jetson())
    made.up()
    return made


def _diagnosis(stack: Stack, cluster: simulator.ControlPlane) -> Diagnosis:
    with closing(Cluster.open(str(cluster.kubeconfig))) as connection:
        return diagnose(read_facts(connection, parse(stack.settings), "kai-anywhere/test"))


def _problems(stack: Stack, cluster: simulator.ControlPlane) -> dict[str, set[str]]:
    return {
        problem.cause.check.code: {symptom.check.code for symptom in problem.symptoms}
        for problem in _diagnosis(stack, cluster).problems
    }


def _scale(api: httpx2.Client, name: str, replicas: int) -> None:
    api.patch(f"{_KAI}/{name}", json={"spec": {"replicas": replicas}}, headers=_MERGE).raise_for_status()


def test_a_stack_that_runs_is_well(stack: Stack, cluster: simulator.ControlPlane) -> None:
    eventually(lambda: _problems(stack, cluster) == {})
    assert _diagnosis(stack, cluster).not_checked == ()


def test_an_operator_that_is_off_is_the_cause_of_a_scheduler_that_stays_off(
    stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    _scale(api, "kai-operator", 0)
    _scale(api, "kai-scheduler-default", 0)
    eventually(lambda: _problems(stack, cluster) == {"KA0202": {"KA0204"}})
    _scale(api, "kai-operator", 1)
    _scale(api, "kai-scheduler-default", 1)
    eventually(lambda: _problems(stack, cluster) == {})


def test_a_node_pool_that_was_set_by_hand_is_found(
    stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    def label(value: str | None) -> None:
        patch = {"metadata": {"labels": {"kai.scheduler/node-pool": value}}}
        api.patch("/api/v1/nodes/jetson-1", json=patch, headers=_MERGE).raise_for_status()

    label("by-hand")
    assert "KA0408" in _problems(stack, cluster)
    label(None)
    assert "KA0408" not in _problems(stack, cluster)


def test_a_binding_of_the_overrides_that_is_gone_is_found_and_repaired(
    stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    api.delete(_BINDING).raise_for_status()
    assert _problems(stack, cluster) == {"KA0501": {"KA0105"}}
    stack.up("--refresh")
    eventually(lambda: _problems(stack, cluster) == {})


def test_a_webhook_of_others_that_nobody_answers_for_is_named_though_it_judges_no_pods(
    stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    with judged_by_nobody(api, "", "configmaps"):
        [problem] = _diagnosis(stack, cluster).problems
        assert problem.cause.check.code == "KA0901"
        assert "webhook 'judge.example.com' judges configmaps" in problem.cause.finding.what
        assert "whoever installed it removes the configuration judge too" in problem.cause.remedy
    assert _problems(stack, cluster) == {}


@pytest.fixture
def api_without_server(stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client) -> Iterator[None]:
    """An extension of the API whose server is gone, for a while."""
    service = {"namespace": "kube-system", "name": "metrics-server"}
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True}
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "service": service, **priorities}
    api.post(_APIS, json={"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec}).raise_for_status()
    eventually(lambda: _problems(stack, cluster) == {"KA0108": set()})
    yield
    api.delete(f"{_APIS}/v1beta1.metrics.k8s.io").raise_for_status()
    eventually(lambda: _problems(stack, cluster) == {})


@pytest.mark.usefixtures("api_without_server")
def test_an_api_without_a_server_is_named_before_a_namespace_waits_for_it(
    stack: Stack, cluster: simulator.ControlPlane
) -> None:
    [problem] = _diagnosis(stack, cluster).problems
    assert problem.cause.finding.evidence[0].endswith("service kube-system/metrics-server")
    assert "ServiceNotFound" in problem.cause.finding.evidence[1]
    # It runs all the same.
    assert set(stack.up("--refresh").changes) == {"same"}


@pytest.mark.usefixtures("api_without_server")
def test_a_command_whose_own_namespace_stays_says_what_holds_it(
    cluster: simulator.ControlPlane, api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.scratch.GONE_SECONDS", 10.0)
    metadata = {"name": "tried-out", "labels": {"kai-anywhere.io/tried-out": "true"}}
    api.post("/api/v1/namespaces", json={"metadata": metadata}).raise_for_status()
    with closing(Cluster.open(str(cluster.kubeconfig))) as connection, pytest.raises(OperationError) as caught:
        Scratch(connection, "tried-out", "kai-anywhere.io/tried-out", "test").remove()
    assert "unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1" in str(caught.value)
    assert "kubectl get apiservices" in str(caught.value)


@pytest.mark.parametrize(("code", "gone"), _MADE_BY_CHARTS)
def test_what_a_chart_made_is_put_back_whole_by_the_command_that_the_remedy_names(
    code: str, gone: str, stack: Stack, cluster: simulator.ControlPlane, api: httpx2.Client
) -> None:
    """`pulumi up --refresh` sees a release that is deployed, and looks no further."""
    before = api.get(gone).raise_for_status().json()["spec"]
    api.delete(gone).raise_for_status()
    eventually(lambda: code in _problems(stack, cluster))
    if code == "KA0211":
        assert "a refresh would make an empty one" in stack.up("--refresh", expect=1).output
    [remedy] = {
        problem.cause.remedy for problem in _diagnosis(stack, cluster).problems if problem.cause.check.code == code
    }
    command = re.findall(r"helm (upgrade .* --reuse-values)", remedy)[0].split()
    command[command.index("CHART")] = str(simulator.chart_path(command[1]))
    version = command.index("--version")
    del command[version : version + 2]
    helm = toolchain.install(toolchain.CHARTS)[HELM]
    subprocess.run([helm, "--kubeconfig", str(cluster.kubeconfig), *command], check=True, capture_output=True)
    eventually(lambda: _problems(stack, cluster) == {})
    assert api.get(gone).raise_for_status().json()["spec"] == before


def test_the_stack_has_nothing_to_add_to_what_was_put_back(stack: Stack, api: httpx2.Client) -> None:
    gone = [path for _, path in _MADE_BY_CHARTS]
    before = [api.get(path).raise_for_status().json()["spec"] for path in gone]
    # The stack's own label on the chart's shard went with it.
    assert stack.up("--refresh").changed <= {"kai-scheduler-shard"}
    assert [api.get(path).raise_for_status().json()["spec"] for path in gone] == before
