"""What verify says of doctor's checks."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.verify import components
from operations.verify.steps import Outcome, Report
from testbed.stacks import STACK_FILES
from tests.support.api_server import ApiServer
from tests.support.doctor import PATHS, well


def test_a_cluster_that_is_well_holds(api: ApiServer, tmp_path: Path) -> None:
    step = components.verify(well().diagnosis(api, tmp_path))
    assert (step.name, step.outcome, step.evidence) == ("components", Outcome.HELD, ())
    assert step.says.endswith("checks of doctor passed.")


def test_what_is_wrong_is_a_failure_with_its_code(api: ApiServer, tmp_path: Path) -> None:
    world = well()
    world.scale("kai-scheduler-default")
    step = components.verify(world.diagnosis(api, tmp_path))
    assert step.outcome is Outcome.FAILED
    assert step.says.startswith("1 of ")
    [line] = step.evidence
    assert line.startswith("error KA0204: KAI's scheduler is switched off")


def test_checks_that_the_user_may_not_do_are_no_success(api: ApiServer, tmp_path: Path) -> None:
    world = well()
    world.refused[PATHS["pods"]] = 403
    step = components.verify(world.diagnosis(api, tmp_path))
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
