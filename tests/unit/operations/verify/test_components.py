"""What verify says of doctor's checks."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.exit_status import ExitStatus
from operations.verify import components
from operations.verify.steps import Outcome, Report, Step
from testbed.stacks import STACK_FILES
from tests.support.api_server import ApiServer
from tests.support.doctor import PATHS, World, fraction, named, well


def test_a_cluster_that_is_well_holds() -> None:
    step = components.verify(well().diagnosis())
    assert (step.name, step.outcome, step.evidence) == ("components", Outcome.HELD, ())
    assert step.says.endswith("checks of doctor passed.")


def test_what_is_wrong_is_a_failure_with_its_code() -> None:
    world = well()
    world.scale("kai-scheduler-default")
    step = components.verify(world.diagnosis())
    assert step.outcome is Outcome.FAILED
    assert step.says.startswith("1 of ")
    [line] = step.evidence
    assert line.startswith("error KA0204: KAI's scheduler is switched off")


def test_a_check_that_finds_many_problems_is_one_that_failed() -> None:
    world = well()
    for name in ("a", "b"):
        queued = fraction(name, labels={"kai.scheduler/queue": "nobodys"})
        world.lists["pods"].append(queued)
    step = components.verify(world.diagnosis())
    assert len([line for line in step.evidence if line.startswith("error KA0603")]) == 2
    assert step.says.startswith("1 of ")


def test_a_check_that_warns_has_not_passed() -> None:
    all_pass = components.verify(well().diagnosis()).says
    world = well()
    world.lists["queues"].append(named("closed") | {"spec": {"resources": {"gpu": {"limit": 0}}}})
    step = components.verify(world.diagnosis())
    assert step.outcome is Outcome.HELD
    checks = int(all_pass.split()[0])
    assert step.says == f"{checks - 1} checks of doctor passed, 1 warned."


def test_checks_that_the_user_may_not_do_are_no_success() -> None:
    world = well()
    world.refused[PATHS["pods"]] = 403
    step = components.verify(world.diagnosis())
    assert step.outcome is Outcome.SKIPPED
    assert "need more than this user may read" in step.says


def test_who_may_not_see_nodes_gets_what_can_be_verified_without_them(
    api: ApiServer, config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    monkeypatch.setattr("operations.reading.ROOT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", config_path)
    api.fail("/api/v1/nodes", 403)
    done = CliRunner().invoke(app, ["verify", "--node", "jetson-1", "--json"])
    components_step, pods = Report.model_validate_json(done.stdout).steps
    assert components_step.name == components.NAME
    assert (pods.name, pods.outcome) == ("reservation pods", Outcome.SKIPPED)
    assert "nodes can't be read, so nothing is tried on any. The cluster at" in pods.says
    assert {request.method for request in api.asked} == {"GET"}


def test_it_waits_for_components_that_are_still_starting(
    api: ApiServer, config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _stack(config_path, tmp_path, monkeypatch)
    world.scale("binder")

    def started(seconds: float) -> None:
        assert seconds > 0
        world.scale("binder", 1)
        world.one("deployments", "binder")["status"] = {"availableReplicas": 1}
        world.serve(api)

    world.serve(api)
    without = CliRunner().invoke(app, ["verify", "--no-workload", "--json"])
    assert Report.model_validate_json(without.stdout).steps[0].outcome is Outcome.FAILED
    monkeypatch.setattr("operations.doctor.commands.time.sleep", started)
    done = CliRunner().invoke(app, ["verify", "--no-workload", "--wait", "600", "--json"])
    assert Report.model_validate_json(done.stdout).steps[0].outcome is Outcome.HELD
    assert "of 600 s: KA0205" in done.stderr


def test_categories_of_checks_are_left_out(
    api: ApiServer, config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _stack(config_path, tmp_path, monkeypatch)
    world.scale("binder")
    world.serve(api)
    done = CliRunner().invoke(app, ["verify", "--no-workload", "--skip", "kai", "--json"])
    assert Report.model_validate_json(done.stdout).steps[0].outcome is Outcome.HELD
    done = CliRunner().invoke(app, ["verify", "--no-workload", "--only", "kai", "--json"])
    assert Report.model_validate_json(done.stdout).steps[0].outcome is Outcome.FAILED
    done = CliRunner().invoke(app, ["verify", "--no-workload", "--only", "kai", "--skip", "kai", "--json"])
    step = Report.model_validate_json(done.stdout).steps[0]
    assert (step.outcome, step.says.partition(":")[0]) == (Outcome.SKIPPED, "no check was done")


@pytest.mark.parametrize(
    "option", ["--node=jetson-1", "--only=kai", "--skip=kai", "--wait=1", "--evidence=evidence.json"]
)
def test_before_the_install_nothing_is_narrowed(option: str) -> None:
    done = CliRunner().invoke(app, ["verify", "--pre", option], env={"COLUMNS": "200"})
    assert done.exit_code == ExitStatus.USAGE
    assert f"leave {option.partition('=')[0]} out" in done.stderr


def _stack(config_path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", folder)
    monkeypatch.setattr("operations.reading.ROOT", folder)
    monkeypatch.setenv("KUBECONFIG", config_path)
    return well()


def test_nothing_that_a_pod_logs_commands_the_terminal() -> None:
    step = Step(name="cuda", outcome=Outcome.FAILED, says="ended\x1b[2J.", evidence=("  log: \x1b]0;owned\x07no GPU",))
    first, second, *_ = Report(steps=(step,)).text().splitlines()
    assert (first.isprintable(), second.isprintable()) == (True, True)
    assert second.startswith(" " * 12 + "log:")
