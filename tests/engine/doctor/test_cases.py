"""Every case of doctor's checks on a real API server, with scripted nodes and pods: where it fires, and where not."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from operations.doctor.check import Category
from operations.doctor.checks import CHECKS
from operations.doctor.diagnosis import diagnose
from testbed.simulated import start_api_server
from testbed.stacks import Json, gvirtus, hami_core, jetson, webhook
from tests.support.doctor_cluster import DoctorCluster, doctor_cluster
from tests.unit.operations.doctor.cases import CASES
from tests.unit.operations.doctor.host_cases import HOST_CASES
from tests.unit.operations.doctor.monitoring_cases import metrics
from tests.unit.operations.doctor.worlds import fired, world_of

_NOT_HERE: Final = {
    "KA0106": "the toolchain has no API server that is too old, and none says another version than its own",
    **dict.fromkeys(HOST_CASES, "hosts answer over SSH; the API server has no part in it"),
}
"""What an API server can't show, by code, and why."""
_CODES: Final = sorted(CASES.keys() - _NOT_HERE.keys())


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoctorCluster]:
    """An API server on which nobody else changes what a case says."""
    folder = tmp_path_factory.mktemp("doctor") / "simulator"
    with start_api_server(folder) as control_plane, doctor_cluster(control_plane) as connected:
        yield connected


def test_every_check_of_a_cluster_but_that_of_its_version_is_tried_here() -> None:
    left_out = {check.code for check in CHECKS} - set(_CODES)
    assert left_out == {"KA0106"} | {check.code for check in CHECKS if check.category is Category.HOSTS}


@pytest.mark.parametrize("stack", [jetson, gvirtus, webhook, metrics], ids=lambda stack: stack.__name__)
def test_no_check_fires_on_a_cluster_that_is_well(stack: Callable[[], Json], scripted: DoctorCluster) -> None:
    diagnosis = diagnose(scripted.show(world_of(stack)))
    assert [problem.cause.finding.what for problem in diagnosis.problems] == []
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == len(CHECKS)


@pytest.mark.parametrize("code", _CODES)
def test_a_check_fires_on_what_it_is_for(code: str, scripted: DoctorCluster) -> None:
    case = CASES[code]
    world = world_of(case.stack)
    case.breaks(world)
    assert code in fired(diagnose(scripted.show(world)))


@pytest.mark.parametrize("code", _CODES)
def test_a_check_is_silent_on_what_comes_near_to_it(code: str, scripted: DoctorCluster) -> None:
    case = CASES[code]
    world = world_of(case.almost_on or case.stack)
    usual = fired(diagnose(scripted.show(world))) if case.stack is hami_core else {}
    case.almost(world)
    diagnosis = diagnose(scripted.show(world))
    assert set(fired(diagnosis)) - set(usual) == set(case.others.split())
    assert not diagnosis.not_checked
