"""What verify says of doctor's checks."""

from pathlib import Path

from operations.verify import components
from operations.verify.steps import Outcome
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
