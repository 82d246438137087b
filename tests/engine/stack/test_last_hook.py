"""A destroy that Helm holds up in the last hook of KAI's chart: what is told, and what is left when it ends early."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

import simulator
from operations import engine
from operations.errors import OperationError
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.simulated import stack_settings
from testbed.stacks import jetson, parse
from testbed.waiting import eventually
from tests.support.dead_webhook import judged_by_nobody
from tests.support.helm_hooks import held
from tests.support.rollback import rollback_of

_NAME = "post-delete-cleanup"
_JOB = f"/apis/batch/v1/namespaces/kai-scheduler/jobs/{_NAME}"
_CONFIG = "/apis/kai.scheduler/v1/configs/kai-config"
_ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{_NAME}"
_UNINSTALLING = {"labelSelector": "owner=helm,status=uninstalling"}
_SECRETS = "/api/v1/namespaces/kai-scheduler/secrets"


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> set[str]:
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
    return Stack(tmp_path_factory.mktemp("stack"), stack_settings(jetson(), cluster), engine_environment)


@contextmanager
def _taken_away_by_hand(api: httpx2.Client, lines: list[str] | None = None) -> Iterator[None]:
    """Somebody deletes the Job, once it was told of where that is to be waited for."""

    def wait_and_delete() -> None:
        eventually(lambda: api.get(_JOB).is_success, within_seconds=300)
        if lines is not None:
            eventually(lambda: any("are refused" in line for line in lines), within_seconds=120)
        api.delete(_JOB, params={"propagationPolicy": "Background"}).raise_for_status()

    somebody = threading.Thread(target=wait_and_delete)
    somebody.start()
    yield
    somebody.join()


def _killed_in_the_last_hook(stack: Stack, api: httpx2.Client) -> None:
    with stack.up_until_killed("destroy"):
        eventually(lambda: api.get(_JOB).is_success, within_seconds=300)
    stack.run("cancel", "--yes")
    assert api.get(_SECRETS, params=_UNINSTALLING).json()["items"]


def test_down_goes_on_after_a_kill_says_what_helm_waits_for_and_leaves_nothing(
    stack: Stack, api: httpx2.Client, before: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.up()
    lines: list[str] = []
    monkeypatch.setattr("operations.engine.say", lines.append)
    monkeypatch.setattr("operations.destroying.LOOK_SECONDS", 1.0)
    monkeypatch.setattr("cluster.going._HOOK_SECONDS", 2.0)
    target = Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ())
    with held(api, _NAME):
        _killed_in_the_last_hook(stack, api)
        assert "Helm release 'kai-scheduler' is 'uninstalling'" in stack.up(expect=None).output
        with _taken_away_by_hand(api, lines):
            engine.destroy(target, "--yes", "--skip-preview")
    assert f"removed ClusterRole/{_NAME}, which a hook of a killed run left in Helm's way" in lines
    [waits] = [line for line in lines if line.startswith("waiting for Job") and "are refused" in line][:1]
    assert "'post-delete-cleanup' in namespace 'kai-scheduler', a hook of a Helm release: its pods" in waits
    assert "ValidatingAdmissionPolicy 'in-the-way'" in waits
    assert lines[-1].startswith("removed Config/kai-config")
    eventually(lambda: left_behind(api, before) == set())
    assert stack.resources() == []


def test_what_a_last_hook_left_that_a_dead_webhook_refused_goes_with_the_next_down(
    stack: Stack, api: httpx2.Client, before: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm makes the hook's rights, fails at its Job, and has forgotten the release by then."""
    stack.up()
    lines: list[str] = []
    monkeypatch.setattr("operations.engine.say", lines.append)
    target = Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ())
    with judged_by_nobody(api, "batch", "jobs"), pytest.raises(OperationError, match="pulumi destroy failed"):
        engine.destroy(target, "--yes", "--skip-preview")
    assert api.get(_ROLE).is_success
    engine.destroy(target, "--yes", "--skip-preview")
    assert f"removed ClusterRole/{_NAME}, which the last hook of KAI's chart left" in lines
    assert lines[-1].startswith("removed Config/kai-config")
    eventually(lambda: left_behind(api, before) == set())
    assert stack.resources() == []


def test_what_a_plain_destroy_left_is_found_by_rollback_once_the_state_is_empty(
    stack: Stack, api: httpx2.Client, before: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.up()
    rollback = rollback_of(stack, monkeypatch)
    with held(api, _NAME):
        _killed_in_the_last_hook(stack, api)
        failed = stack.destroy(expect=None).output
        assert "uninstallation completed with 1 error(s)" in failed
        assert "already exists" in failed
        stack.run("destroy", "--yes", "--skip-preview", "--refresh")
    assert stack.resources() == []
    assert api.get(_CONFIG).is_success
    assert api.get(_ROLE).is_success
    assert "does not remember its cluster" in rollback("--dry-run", expect=3).output
    uid = api.get("/api/v1/namespaces/kube-system").json()["metadata"]["uid"]
    rollback("--cluster", uid)
    eventually(lambda: left_behind(api, before) == set())
    assert "There is nothing to undo." in rollback().output
