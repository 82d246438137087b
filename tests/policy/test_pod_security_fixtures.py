"""Kubernetes' own fixtures: the pack finds every pod that the level baseline refuses, and refuses no other."""

import pytest

from tests.policy.corpus import CLAIMED, RESTRICTED_ONLY, Fixture, read, rules, score, with_debug_container
from tests.policy.objects import carriers, pod
from tests.support.programs.fixtures import POD_SECURITY, can_fetch, fixtures

pytestmark = [
    # Go fetches the data the first time.
    pytest.mark.engine,
    pytest.mark.skipif(not can_fetch(), reason="needs the `go` command, which fetches Pod Security's test data"),
]


@pytest.fixture(scope="module")
def data() -> list[Fixture]:
    return read(fixtures(POD_SECURITY))


def test_every_check_of_pod_security_is_claimed_or_said_to_be_not(data: list[Fixture]) -> None:
    assert {fixture.check for fixture in data if fixture.bad} == set(CLAIMED)
    folder = fixtures(POD_SECURITY)
    refusing = {path.stem.rstrip("0123456789") for path in folder.glob("*/*/fail/*.yaml")}
    assert refusing == {*CLAIMED, *RESTRICTED_ONLY}


def test_recall_is_complete_and_nothing_good_is_refused(data: list[Fixture]) -> None:
    scores = score(data)
    assert sum(score.bad for score in scores.values()) >= 150
    assert sum(score.good for score in scores.values()) >= 80
    assert {check: score.found for check, score in scores.items()} == {
        check: score.bad for check, score in scores.items()
    }
    assert {check: score.refused for check, score in scores.items() if score.refused} == {}


@pytest.mark.parametrize("token", carriers())
def test_no_kind_changes_the_verdict(data: list[Fixture], token: str) -> None:
    shape = carriers()[token]
    assert rules(token, shape(pod())) == set()
    missed = [
        fixture.file
        for fixture in data
        if fixture.bad and CLAIMED[fixture.check] not in rules(token, shape(fixture.pod))
    ]
    assert missed == []
    refused = [fixture.file for fixture in data if not fixture.bad and rules(token, shape(fixture.pod))]
    assert refused == []


def test_a_debug_container_is_judged_as_any_other(data: list[Fixture]) -> None:
    for fixture in data:
        debugged = with_debug_container(fixture)
        assert bool(rules("kubernetes:core/v1:Pod", debugged)) is fixture.bad, fixture.file
