"""What `down` and `rollback` do around `pulumi destroy`, which does none of it."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from operations import destroying, engine
from operations.errors import OperationError
from testbed.stacks import Json
from tests.unit.operations.rollback.world import World, namespace, release

BY_PULUMI = [{"manager": "pulumi-resource-kubernetes"}]
CONFIG = "/apis/kai.scheduler/v1/configs/kai-config"
JOBS = "/apis/batch/v1/namespaces/kai-scheduler/jobs"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def _hook(kind: str, name: str, when: str, policy: str = "hook-succeeded") -> Json:
    annotations = {"helm.sh/hook": when} | ({"helm.sh/hook-delete-policy": policy} if policy else {})
    api_version = "batch/v1" if kind == "Job" else "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": annotations}}


@pytest.fixture
def killed(world: World) -> World:
    """A destroy was killed while Helm waited for KAI's last hook."""
    world.remember([release("kai-scheduler")])
    world.revision(
        "kai-scheduler",
        1,
        "uninstalling",
        hooks=[
            _hook("ClusterRole", "post-delete-cleanup", "post-delete"),
            _hook("Job", "post-delete-cleanup", "post-delete"),
            _hook("Job", "made-anew", "pre-delete", "hook-succeeded, before-hook-creation"),
            _hook("Job", "made-anew-by-default", "post-delete", ""),
            _hook("Job", "of-the-installation", "pre-install"),
            _hook("ClusterRole", "theirs", "post-delete"),
        ],
    )
    for path, when in (
        (f"{ROLES}/post-delete-cleanup", "post-delete"),
        (f"{JOBS}/post-delete-cleanup", "post-delete"),
        (f"{JOBS}/made-anew", "pre-delete"),
        (f"{JOBS}/made-anew-by-default", "post-delete"),
        (f"{JOBS}/of-the-installation", "pre-install"),
    ):
        world.put(path, annotations={"helm.sh/hook": when}, managedFields=BY_PULUMI)
    world.put(f"{ROLES}/theirs", annotations={"helm.sh/hook": "post-delete"}, managedFields=[{"manager": "helm"}])
    return world


def test_what_hooks_of_a_killed_destroy_left_goes_before_helm_makes_it_again(killed: World) -> None:
    engine.destroy(killed.target, "--yes", "--skip-preview")
    assert sorted(killed.deleted) == [f"{JOBS}/post-delete-cleanup", f"{ROLES}/post-delete-cleanup"]
    assert killed.calls == ["refresh", "destroy"]


def test_while_another_run_waits_for_a_hook_nobody_takes_it_away(killed: World) -> None:
    (killed.folder / "locked").touch()
    with pytest.raises(OperationError, match="currently locked"):
        engine.destroy(killed.target, "--yes", "--skip-preview")
    assert killed.deleted == []
    assert "destroy" not in killed.calls


def test_whoever_was_not_asked_has_changed_nothing(killed: World) -> None:
    with pytest.raises(OperationError, match="Nothing was changed"):
        engine.destroy(killed.target, ask=lambda: False)
    engine.destroy(killed.target)  # where nobody can be asked, pulumi says so itself
    assert killed.deleted == []


def test_somebody_at_a_terminal_is_asked_after_the_preview_and_sees_what_is_said_meanwhile(killed: World) -> None:
    engine.destroy(killed.target, ask=lambda: True)
    runs = [line for line in (killed.folder / "calls").read_text().splitlines() if line.startswith("destroy")]
    assert ["--preview-only" in run for run in runs] == [True, False]
    assert ["--non-interactive" in run for run in runs] == [False, True]
    assert "--yes --skip-preview" in runs[1]


def _during(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """What happens while pulumi destroys."""
    ran = engine.pulumi

    def pulumi(*arguments: Any) -> None:  # noqa: ANN401 - the function's own
        change()
        ran(*arguments)

    monkeypatch.setattr("operations.engine.pulumi", pulumi)


def test_the_config_that_kais_last_hook_left_goes_with_the_stack(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.remember([release("kai-scheduler")])
    world.put(CONFIG, spec={"namespace": "kai-scheduler"})
    _during(monkeypatch, lambda: world.deleted.append("destroyed"))
    engine.destroy(world.target, "--yes")
    assert world.deleted == ["destroyed", CONFIG]
    assert "removed Config/kai-config, which the last hook of KAI's chart had left" in capsys.readouterr().err


def test_a_config_that_the_hook_deleted_is_not_told_of(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.remember([release("kai-scheduler")])
    engine.destroy(world.target, "--yes")
    assert "kai-config" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "status", "service", "warns"),
    [
        ([namespace("kai-scheduler")], "False", {"name": "metrics-server"}, True),
        ([namespace("kai-scheduler")], "True", {"name": "metrics-server"}, False),
        ([namespace("kai-scheduler")], "False", {}, False),
        ([release("kai-scheduler")], "False", {"name": "metrics-server"}, False),
    ],
    ids=["gone", "there", "the API server itself", "no namespace of ours"],
)
def test_an_api_without_a_server_is_told_before_a_namespace_waits_for_it(  # noqa: PLR0913 - a case's parts
    world: World, capsys: pytest.CaptureFixture[str], made: list[Json], status: str, service: Json, *, warns: bool
) -> None:
    world.remember(made)
    world.put("/api/v1/namespaces/kai-scheduler")
    condition = {"type": "Available", "status": status, "reason": "MissingEndpoints", "message": "no addresses"}
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
    world.put(path, spec={"service": service})["status"] = {"conditions": [condition]}
    engine.destroy(world.target, "--yes")
    said = capsys.readouterr().err
    warning = "warning: APIService v1beta1.metrics.k8s.io has no server that answers (MissingEndpoints: no addresses)"
    assert (warning in said) is warns
    assert world.deleted == []


@pytest.mark.parametrize(
    ("resource", "place", "again"),
    [
        (release("kai-scheduler"), "team-kai", False),
        (release("gpu-operator"), "kai-scheduler", False),
        (release("kai-scheduler"), "kai-scheduler", True),
    ],
    ids=["of another KAI", "without a KAI of ours", "of somebody who has installed KAI since"],
)
def test_a_config_of_others_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, resource: Json, place: str, *, again: bool
) -> None:
    world.remember([resource])
    world.put(CONFIG, spec={"namespace": place})
    if again:
        _during(monkeypatch, lambda: world.put(CONFIG, uid="another", spec={"namespace": place}))
    engine.destroy(world.target, "--yes")
    assert CONFIG in world.objects


def test_a_config_that_the_cluster_does_not_let_go_names_the_command_that_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.remember([release("kai-scheduler")])
    config = world.put(CONFIG, spec={"namespace": "kai-scheduler"})
    monkeypatch.setattr(
        "cluster.access.client.Cluster.remove", lambda *_, **__: type("No", (), {"message": "it is forbidden"})
    )
    with pytest.raises(OperationError, match=r"left Config/kai-config: .* it is forbidden\n.*kai-anywhere rollback"):
        engine.destroy(world.target, "--yes")
    assert config


def test_what_a_destroy_waits_for_is_told_with_its_ways_out_once_and_again_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(destroying, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(destroying, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr("cluster.going._HOOK_SECONDS", 0.1)
    world.remember([release("kai-scheduler"), namespace("kai-scheduler")])
    world.put(f"{JOBS}/post-delete-cleanup", annotations={"helm.sh/hook": "post-delete"}, managedFields=BY_PULUMI)
    owner = [{"kind": "Job", "name": "post-delete-cleanup"}]
    pod = world.put("/api/v1/namespaces/kai-scheduler/pods/post-delete-cleanup-x", ownerReferences=owner)
    pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}
    _during(monkeypatch, lambda: time.sleep(1))
    engine.destroy(world.target, "--yes")
    printed = capsys.readouterr().err
    lines = [line for line in printed.splitlines() if line.startswith("waiting for ")]
    assert 2 <= len(lines) <= 6, "now and then, not at every look"
    assert "Job 'post-delete-cleanup' in namespace 'kai-scheduler'" in lines[0]
    assert "pod post-delete-cleanup-x: 0/1 nodes are available (0 s)" in lines[0]
    assert printed.count("delete job post-delete-cleanup") == 1
    monkeypatch.setattr("cluster.going._HOOK_SECONDS", 30.0)
    world.remember([release("kai-scheduler"), namespace("kai-scheduler")])
    engine.destroy(world.target, "--yes")
    assert capsys.readouterr().err.count("waiting for ") == 0, "an image may be pulled"


def test_pods_that_use_kai_are_named_before_it_goes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.remember([release("kai-scheduler")])
    world.put("/api/v1/namespaces/robots/pods/arm", spec={"schedulerName": "kai-scheduler"})
    engine.destroy(world.target, "--yes")
    printed = capsys.readouterr().err
    assert "warning: KAI is used by 1 pod: robots/arm. They would run on without a scheduler" in printed
    assert "KAI deletes them when it is installed again" in printed
