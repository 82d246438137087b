"""The table of pod checks: what the pack's rules find is what it says, with its reason and remedy."""

import pytest

from policy import checks
from policy.findings import Finding
from policy.rules import POD_RULES
from tests.policy.objects import findings
from tests.support.pods.corpus import CHANGES, COMBINATIONS, FORBIDDEN, FORBIDDEN_TOGETHER, Change, plain

POD = "kubernetes:core/v1:Pod"
_CHECKS = {check.name: check for check in checks.CHECKS}


def _of_pods(found: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in found if finding.rule in {rule.name for rule in POD_RULES}]


def _name(change: Change) -> str:
    return f"{change.check}-{change.path.rsplit('.', 1)[-1]}"


@pytest.mark.parametrize("change", FORBIDDEN, ids=_name)
def test_a_forbidden_change_is_found_with_the_words_of_its_check(change: Change) -> None:
    check = _CHECKS[change.check]
    found = _of_pods(findings(POD, change.apply(plain())))
    assert found
    assert {(each.rule, each.why, each.remedy) for each in found} == {(check.rule, check.why, check.remedy)}


@pytest.mark.parametrize("change", [change for change in CHANGES if change.allowed], ids=_name)
def test_an_allowed_change_is_not_found(change: Change) -> None:
    assert _of_pods(findings(POD, change.apply(plain()))) == []


@pytest.mark.parametrize("name", [name for name in COMBINATIONS if name not in FORBIDDEN_TOGETHER])
def test_what_lifts_a_check_lifts_it(name: str) -> None:
    assert _of_pods(findings(POD, COMBINATIONS[name](plain()))) == []


@pytest.mark.parametrize("name", FORBIDDEN_TOGETHER)
def test_what_lifts_nothing_is_found_by_the_checks_own_rule(name: str) -> None:
    found = _of_pods(findings(POD, COMBINATIONS[name](plain())))
    assert {each.rule for each in found} == {FORBIDDEN_TOGETHER[name]}
