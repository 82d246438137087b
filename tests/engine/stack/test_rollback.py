"""`kai-anywhere rollback` on the real engine and API server: killed runs are healed, and nothing of ours stays."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

import simulator
from operations.__main__ import app
from testbed.engine import Stack
from testbed.inventory import connect, inventory, left_behind
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import changed, jetson
from testbed.waiting import eventually
from tests.support.docs import command
from tests.support.helm_hooks import held, write_hook
from tests.support.rollback import Command, rollback_of

_SECRETS = "/api/v1/namespaces/{}/secrets"
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_PODS = "/api/v1/namespaces/default/pods"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HOOK_JOBS = "/apis/batch/v1/namespaces/gpu-operator/jobs"
_KEPT = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: kept-by-helm
  annotations:
    helm.sh/hook: pre-install
---
"""
"""A hook that Helm never removes."""
_GROUPS = ("kai.scheduler", "scheduling.run.ai", "nvidia.com", "nfd.k8s-sigs.io")


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> set[str]:
    """What the cluster holds before the stack."""
    return inventory(api)


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: simulator.ControlPlane,
    engine_environment: dict[str, str],
    before: set[str],
) -> Stack:
    """The Jetson stack; the tests deploy and remove it, one after the other."""
    assert before
    folder = tmp_path_factory.mktemp("stack")
    chart = shutil.copytree(simulator.chart_path("gpu-operator"), folder / "gpu-operator")
    settings = changed(stack_settings(jetson(), cluster), "gpu_operator.chart.source", str(chart))
    return Stack(folder / "own", settings, engine_environment)


def chart_of(stack: Stack) -> Path:
    """The GPU Operator's, to which tests give hooks."""
    return Path(stack.settings["gpu_operator"]["chart"]["source"])


@pytest.fixture
def rollback(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Command:
    return rollback_of(stack, monkeypatch)


def of_the_guide(first_line: str) -> list[str]:
    """The options of the command in docs/recovery.md, but for the stack."""
    program, name, *options = shlex.split(command("recovery.md", first_line).splitlines()[0].partition(" && ")[0])
    assert (program, name, options[-2:]) == ("kai-anywhere", "rollback", ["--stack", "jetson"])
    return options[:-2]


def definitions(api: httpx2.Client) -> set[str]:
    items = api.get(_CRDS).json()["items"]
    return {item["metadata"]["name"] for item in items if item["spec"]["group"] in _GROUPS}


def killed_in_helm(stack: Stack, api: httpx2.Client, reached: Callable[[], bool]) -> None:
    """An `up` that is killed while Helm waits for a hook of a release."""
    half_done = {"labelSelector": "owner=helm,status=pending-install"}
    with held(api), stack.up_until_killed():
        eventually(
            lambda: api.get(_SECRETS.format("gpu-operator"), params=half_done).json()["items"], within_seconds=180
        )
        eventually(reached)


def test_a_killed_installation_is_undone_whole(
    stack: Stack, api: httpx2.Client, before: set[str], rollback: Command
) -> None:
    write_hook(chart_of(stack), "post-install")
    # Among what Helm has made are objects that no namespace holds.
    killed_in_helm(stack, api, lambda: api.get(f"{_ROLES}/gpu-operator").is_success)
    shown = rollback("--dry-run").output
    assert "gpu-operator in namespace gpu-operator is pending-install" in shown
    assert "ClusterRole/gpu-operator" in shown
    assert left_behind(api, before), "a dry run removes nothing"
    done = rollback().output
    assert "Everything that stack 'test' made is gone" in done
    eventually(lambda: left_behind(api, before) == set())
    assert stack.resources() == []
    assert "There is nothing to undo." in rollback().output


def test_a_killed_installation_is_healed_and_up_goes_on(stack: Stack, api: httpx2.Client, rollback: Command) -> None:
    # Not before-hook-creation: Helm does not delete what is there already, and can't make it again.
    write_hook(chart_of(stack), "pre-install", delete="hook-succeeded", more=_KEPT)
    killed_in_helm(stack, api, lambda: api.get(f"{_HOOK_JOBS}/in-the-way").is_success)
    assert not api.get(f"{_ROLES}/gpu-operator").is_success, "Helm waits for the hook before anything else"
    shown = rollback("--dry-run").output
    assert "what its hooks left (ClusterRole/kept-by-helm, Job/gpu-operator/in-the-way), then the Secret" in shown
    rollback(*of_the_guide("kai-anywhere rollback --only-heal --stack jetson && pulumi up --stack jetson"))
    assert not api.get(f"{_HOOK_JOBS}/in-the-way").is_success
    assert not api.get(f"{_ROLES}/kept-by-helm").is_success
    assert api.get(_SECRETS.format("gpu-operator"), params={"labelSelector": "owner=helm"}).json()["items"] == []
    run = stack.up()
    assert "pending operations" not in run.output
    assert set(stack.up().changes) == {"same"}
    assert "There is nothing to heal." in rollback("--only-heal").output
    assert "what pulumi destroy can't see" not in rollback("--dry-run").output, "a whole stack is in its state"


def test_a_killed_upgrade_is_healed(stack: Stack, api: httpx2.Client, rollback: Command) -> None:
    secrets = _SECRETS.format("kai-scheduler")
    [deployed] = api.get(secrets, params={"labelSelector": "owner=helm"}).json()["items"]
    half_done = {
        "metadata": {
            "name": deployed["metadata"]["name"].removesuffix("1") + "2",
            "labels": deployed["metadata"]["labels"] | {"version": "2", "status": "pending-upgrade"},
        },
        "type": deployed["type"],
        "data": deployed["data"],
    }
    api.post(secrets, json=half_done).raise_for_status()
    assert stack.preview(expect=None).code != 0
    assert "revision 1 (deployed) is the newest again" in rollback("--only-heal").output
    [there] = api.get(secrets, params={"labelSelector": "owner=helm"}).json()["items"]
    assert there["metadata"]["uid"] == deployed["metadata"]["uid"]
    assert set(stack.up().changes) == {"same"}


@pytest.mark.usefixtures("rollback")
def test_under_another_clusters_context_it_refuses(stack: Stack, reused_simulators: ReusedSimulators) -> None:
    own = stack.settings
    with reused_simulators.lent() as other, connect(other) as theirs:
        there = inventory(theirs)
        stack.settings = changed(own, "cluster.kubeconfig", str(other.kubeconfig))
        for options in ((), ("--only-heal",)):
            result = CliRunner().invoke(app, ["rollback", "--stack", stack.name, *options])
            assert "is another one" in str(result.exception)
            assert "nothing was changed" in str(result.exception)
        stack.settings = own
        assert inventory(theirs) == there
    assert stack.resources()


def test_pods_that_use_kai_stop_it_and_are_never_deleted(api: httpx2.Client, rollback: Command) -> None:
    pod = {
        "metadata": {"name": "mine"},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "image": "registry.example.com/app@sha256:" + "0" * 64}],
        },
    }
    api.post(_PODS, json=pod).raise_for_status()
    output = rollback(expect=3).output
    assert "STOP: KAI is used by 1 pod: default/mine." in output
    assert api.get(f"{_PODS}/mine").is_success
    assert api.get(_QUEUES).json()["items"], "nothing was changed"
    api.delete(f"{_PODS}/mine").raise_for_status()
    eventually(lambda: not api.get(f"{_PODS}/mine").is_success)


def test_everything_goes_and_what_is_somebody_elses_stays(
    stack: Stack, api: httpx2.Client, before: set[str], rollback: Command
) -> None:
    marks = {"meta.helm.sh/release-name": "kai-scheduler", "meta.helm.sh/release-namespace": "kai-scheduler"}
    of_an_upgrade = {
        "metadata": {
            "name": "of-a-half-done-upgrade",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": marks,
        }
    }
    somebodys = {
        "metadata": {
            "name": "somebodys",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": marks | {"meta.helm.sh/release-name": "prometheus"},
        }
    }
    for role in (of_an_upgrade, somebodys):
        api.post(_ROLES, json=role).raise_for_status()
    queue = api.get(f"{_QUEUES}/default-parent-queue").json()
    api.post(
        _QUEUES, params={"fieldManager": "kubectl-create"}, json=queue | {"metadata": {"name": "somebodys"}}
    ).raise_for_status()
    assert definitions(api)
    assert api.get(f"{_ROLES}/kept-by-helm").is_success, "a hook that Helm keeps"
    output = rollback(*of_the_guide("kai-anywhere rollback --stack jetson")).output
    assert "pulumi destroy:" in output
    kept = {"ClusterRole//somebodys", "Queue//somebodys"}
    eventually(lambda: left_behind(api, before) == kept)
    assert stack.resources() == []
    assert definitions(api), "without the flag they stay"
    uid = api.get("/api/v1/namespaces/kube-system").json()["metadata"]["uid"]
    assert "does not remember its cluster" in rollback("--remove-definitions", expect=3).output
    rollback("--remove-definitions", "--cluster", uid, expect=3)
    assert {name.partition(".")[2] for name in definitions(api)} == {"scheduling.run.ai"}
    assert api.get(f"{_QUEUES}/somebodys").is_success
    api.delete(f"{_QUEUES}/somebodys").raise_for_status()
    rollback("--remove-definitions", "--cluster", uid)
    assert definitions(api) == set()


def test_a_release_that_somebody_uninstalled_stops_no_rollback(
    stack: Stack, api: httpx2.Client, before: set[str], rollback: Command
) -> None:
    stack.up()
    [revision] = api.get(_SECRETS.format("kai-scheduler"), params={"labelSelector": "owner=helm"}).json()["items"]
    api.delete(f"{_SECRETS.format('kai-scheduler')}/{revision['metadata']['name']}").raise_for_status()
    without_refresh = stack.destroy(expect=None)
    assert without_refresh.code != 0
    assert "release: not found" in without_refresh.output
    rollback()
    assert stack.resources() == []
    # Of the test before, and never the stack's.
    eventually(lambda: left_behind(api, before) == {"ClusterRole//somebodys"})


def test_what_a_lost_state_forgot_goes_whole_helm_releases_too(
    stack: Stack, api: httpx2.Client, before: set[str], rollback: Command
) -> None:
    stack.up()
    backup = stack.folder / "lost.json"
    backup.write_text(json.dumps({"version": 3, "deployment": {}}), encoding="utf-8")
    stack.run("stack", "import", "--file", str(backup))
    refused = stack.up(expect=None).output
    assert "Helm release 'kai-scheduler' is installed in namespace 'kai-scheduler', but not known to this" in refused
    uid = api.get("/api/v1/namespaces/kube-system").json()["metadata"]["uid"]
    rollback("--cluster", uid)
    # Of a test before, and never the stack's.
    eventually(lambda: left_behind(api, before) == {"ClusterRole//somebodys"})
