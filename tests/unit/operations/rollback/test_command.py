"""The command: it shows, asks, does its steps in order, and says how to go on where one fails."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner, Result

from manifests.ownership import BEFORE, field_manager
from operations.__main__ import app
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.rollback.steps import Rollback
from operations.target import Target
from testbed.stacks import Json, changed
from tests.support.api_server import UID
from tests.unit.operations.rollback.world import World, owned, release

Command = Callable[..., Result]


@pytest.fixture
def command(world: World, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`kai-anywhere rollback`; `answer` is what the person at the terminal types."""

    @contextmanager
    def opened(_: str, *, start: bool = True) -> Iterator[Target]:
        assert not start
        yield world.target

    monkeypatch.setattr("operations.rollback.commands.open_target", opened)

    def run(*options: str, answer: str | None = None) -> Result:
        monkeypatch.setattr("operations.rollback.commands._somebody_is_there", lambda: answer is not None)
        return CliRunner().invoke(app, ["rollback", *options], input=f"{answer}\n")

    return run


@pytest.fixture
def half_done(world: World) -> str:
    """A stack with a half-done upgrade; the Secret's path."""
    world.remember([release("kai-scheduler")])
    return world.revision("kai-scheduler", 2, "pending-upgrade")


def test_without_anybody_to_ask_it_only_shows(world: World, half_done: str, command: Command) -> None:
    result = command()
    assert "Heal Helm releases that a killed run left half done" in result.output
    assert isinstance(result.exception, OperationError), "so that main ends with status 1"
    assert "nobody to ask. With --yes it is done without a question." in str(result.exception)
    assert half_done in world.objects
    assert world.calls == []


@pytest.mark.parametrize("answer", ["", "y", "yes", "jetson-2"])
def test_only_the_stacks_name_is_a_yes(world: World, half_done: str, command: Command, answer: str) -> None:
    result = command(answer=answer)
    assert str(result.exception) == "Nothing was changed."
    assert half_done in world.objects
    assert world.calls == []


def test_with_the_stacks_name_everything_goes(world: World, half_done: str, command: Command) -> None:
    result = command(answer="jetson")
    assert result.exit_code == ExitStatus.WELL
    assert half_done not in world.objects
    assert world.calls == ["refresh", "destroy"]
    assert "Everything that stack 'jetson' made is gone" in result.output
    assert "pulumi stack rm --preserve-config jetson" in result.output
    assert UID in result.output, "the file with the connection is named"


def test_what_stays_is_told_as_it_is_at_the_end(world: World, command: Command) -> None:
    world.remember([release("kai-scheduler")])
    world.definition("scheduling.run.ai", "queues")
    output = command(answer="jetson").output
    assert "Stays: 1 CustomResourceDefinition of scheduling.run.ai, with 0 objects now" in output
    assert f"--remove-definitions --cluster {UID} does" in output, "the state forgot its cluster meanwhile"


def test_a_release_that_a_lost_state_forgot_stays_where_the_namespace_was_adopted_and_is_named(
    world: World, command: Command
) -> None:
    marks: Json = {"annotations": {BEFORE: "{}"}, "managedFields": owned("kai-scheduler-namespace")}
    world.put("/api/v1/namespaces/kai-scheduler", **marks)
    revision = world.revision("kai-scheduler", 1, "deployed")
    world.put("/api/v1/namespaces/gpu-operator", managedFields=[{"manager": field_manager("team/edge", "namespace")}])
    world.revision("gpu-operator", 1, "deployed")
    output = command("--cluster", UID, answer="jetson").output
    assert "Everything that stack 'jetson' is known to have made is gone" in output
    assert "Stays: Helm release kai-scheduler in namespace kai-scheduler: Pulumi installed it" in output
    assert " uninstall kai-scheduler --namespace kai-scheduler" in output
    assert "helm --kubeconfig" in output, "not that of kubectl's own context"
    assert "Helm release gpu-operator" not in output, "it is another stack's"
    assert revision in world.objects


def test_healing_asks_for_no_name_and_removes_nothing(world: World, half_done: str, command: Command) -> None:
    assert str(command("--only-heal", answer="n").exception) == "Nothing was changed."
    assert half_done in world.objects
    assert command("--only-heal", answer="y").exit_code == ExitStatus.WELL
    assert half_done not in world.objects
    assert world.calls == ["refresh"]


@pytest.mark.parametrize("option", ["--dry-run", "--json"])
def test_showing_changes_nothing(world: World, half_done: str, command: Command, option: str) -> None:
    result = command(option)
    assert result.exit_code == ExitStatus.WELL
    assert half_done in world.objects
    assert world.calls == []
    if option == "--json":
        plan = json.loads(result.output)
        assert (plan["stack"], plan["cluster_uid"], plan["version"]) == ("jetson", UID, 1)
        assert plan["heals"][0]["secret"] == "sh.helm.release.v1.kai-scheduler.v2"
        assert plan["destroys"] == {"Helm release": 1}


def test_json_and_yes_exclude_each_other(world: World, half_done: str, command: Command) -> None:
    assert command("--json", "--yes").exit_code == ExitStatus.USAGE
    assert half_done in world.objects
    assert world.calls == []


def test_another_cluster_than_the_stacks_is_refused(world: World, half_done: str, command: Command) -> None:
    world.remember([release("kai-scheduler")], cluster="another")
    result = command("--yes")
    assert "this stack was deployed to the cluster another" in str(result.exception)
    assert half_done in world.objects


def test_another_cluster_than_the_named_one_is_refused(world: World, half_done: str, command: Command) -> None:
    result = command("--yes", "--cluster", "another")
    assert f"is {UID}, not another. Nothing was changed." in str(result.exception)
    assert half_done in world.objects


def test_a_failed_step_says_what_was_done_and_how_to_go_on(world: World, half_done: str, command: Command) -> None:
    (world.folder / "fails").touch()
    result = command("--yes", "--leave-pods")
    assert result.exit_code == ExitStatus.FAILED
    assert "Stopped at: pulumi destroy" in result.stderr
    assert f"kai-anywhere rollback --stack jetson --leave-pods --cluster {UID}" in result.stderr
    assert half_done not in world.objects
    (world.folder / "fails").unlink()
    assert command("--yes", "--leave-pods", "--cluster", UID).exit_code == ExitStatus.WELL
    assert command("--yes").output.endswith("There is nothing to undo.\n")


def test_ctrl_c_between_steps_leaves_what_the_same_command_goes_on_from(
    world: World, half_done: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Rollback) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Rollback, "destroy", interrupted)
        result = command("--yes")
    assert result.exit_code == 130
    assert "Interrupted at: heal" in result.stderr
    assert f"kai-anywhere rollback --stack jetson --cluster {UID}" in result.stderr
    assert half_done not in world.objects
    assert command("--yes").exit_code == ExitStatus.WELL


def test_what_stays_though_it_is_ours_is_a_failure(
    world: World, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.rollback.steps.GONE_SECONDS", 0)
    path = "/api/v1/namespaces/kai-resource-reservation"
    world.remember([release("kai-scheduler")])
    world.put(path, managedFields=owned("reservation-namespace"))
    world.stubborn = frozenset({path})
    result = command("--yes")
    assert result.exit_code == ExitStatus.FAILED
    assert "Left, though it is the stack's:" in result.output


def test_hosts_alone_have_nothing_to_roll_back_in_a_cluster(
    world: World, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "settings", changed(world.settings, "installs", "hosts"))
    result = command("--yes")
    assert isinstance(result.exception, OperationError)
    assert "To give the hosts back: kai-anywhere down --stack jetson" in str(result.exception)
    assert world.calls == []
