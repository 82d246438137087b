"""Each check fires on what it is for, alone or under a cause, and is silent on what comes near to that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from operations.doctor.check import Category
from operations.doctor.checks import CHECKS
from operations.doctor.diagnosis import Diagnosis, Judged
from testbed.stacks import Json, gvirtus, hami_core, jetson, monitoring, webhook
from tests.support.api_server import ApiServer
from tests.support.doctor import OLD, World, deployment, named, well
from tests.support.hosts.examinations import jetson_examination
from tests.unit.operations.doctor.cases import CASES
from tests.unit.operations.doctor.changes import remote
from tests.unit.operations.doctor.monitoring_cases import metrics, with_metrics


def _world(stack: Callable[[], Json]) -> World:
    """A cluster that is well, for one of the stacks."""
    world = well(stack() if stack is not hami_core else None)
    world.hosts = {}
    if stack is hami_core:
        world.settings = stack()
        world.one("nodes", "jetson-1")["status"]["nodeInfo"]["kernelVersion"] = "6.8.0"
        world.lists["mutating"].append(named("kai-resource-isolator-mutating"))
    if stack is gvirtus:
        remote(world)
    if stack in {metrics, monitoring}:
        with_metrics(world)
    if stack is webhook:
        world.lists["deployments"].append(deployment("kai-anywhere-admission", "kai-anywhere"))
    return world


def _fired(diagnosis: Diagnosis) -> dict[str, Judged]:
    return {each.check.code: each for problem in diagnosis.problems for each in problem.all}


def test_every_check_has_a_case() -> None:
    assert sorted(CASES) == sorted(check.code for check in CHECKS)


@pytest.mark.parametrize("stack", [jetson, gvirtus, webhook, metrics], ids=lambda stack: stack.__name__)
def test_no_check_fires_on_a_cluster_that_is_well(stack: Callable[[], Json], api: ApiServer, tmp_path: Path) -> None:
    world = _world(stack)
    world.hosts = {"jetson-1": jetson_examination()}
    diagnosis = world.diagnosis(api, tmp_path)
    assert [each.cause.finding.what for each in diagnosis.problems] == []
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == len(CHECKS)


def test_hosts_that_nobody_asks_are_neither_checked_nor_said_to_be_unseen(api: ApiServer, tmp_path: Path) -> None:
    diagnosis = well().diagnosis(api, tmp_path)
    assert diagnosis.not_checked == ()
    assert diagnosis.checked == sum(check.category is not Category.HOSTS for check in CHECKS)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_check_fires_on_what_it_is_for(code: str, api: ApiServer, tmp_path: Path) -> None:
    case = CASES[code]
    world = _world(case.stack)
    case.breaks(world)
    judged = _fired(world.diagnosis(api, tmp_path)).get(code)
    assert judged is not None
    assert judged.finding.what.endswith((".", "?"))
    assert "{" not in judged.check.remedy_of(judged.finding).replace("{.status.conditions}", "")
    assert OLD not in judged.finding.what


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_check_is_silent_on_what_comes_near_to_it(code: str, api: ApiServer, tmp_path: Path) -> None:
    case = CASES[code]
    world = _world(case.almost_on or case.stack)
    usual = _fired(world.diagnosis(api, tmp_path)) if case.stack is hami_core else {}
    case.almost(world)
    diagnosis = world.diagnosis(api, tmp_path)
    assert set(_fired(diagnosis)) - set(usual) == set(case.others.split())
    assert not diagnosis.not_checked
