"""The table of pod checks: what the pack's rules find is what it says, with its reason and remedy."""

import json

import pytest

from manifests import pod_guard
from pod_checks import table
from pod_checks.language import Check
from policy.findings import Finding
from policy.rules import POD_RULES
from policy.stack_platform import stack_facts
from testbed.stacks import changed, jetson, parse, x86
from tests.policy.objects import findings
from tests.support.pods.corpus import (
    CHANGES,
    COMBINATIONS,
    FORBIDDEN,
    FORBIDDEN_TOGETHER,
    GIVEN_ALONE,
    NEW,
    NV_FRACTIONS,
    REFUSED_UNDER_NV_FRACTIONS,
    Change,
    plain,
)

POD = "kubernetes:core/v1:Pod"
_CHECKS = {check.name: check for check in table.CHECKS}


def _of_pods(all_findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in all_findings if finding.rule in {rule.name for rule in POD_RULES}]


def _name(change: Change) -> str:
    return f"{change.check}-{change.path.rsplit('.', 1)[-1]}"


@pytest.mark.parametrize("change", FORBIDDEN, ids=_name)
def test_a_forbidden_change_is_found_with_the_words_of_its_check(change: Change) -> None:
    check = _CHECKS[change.check]
    result = _of_pods(findings(POD, change.apply(plain())))
    assert result
    assert {(finding.rule, finding.why, finding.remedy) for finding in result} == {
        (check.rule, check.why, check.remedy)
    }


@pytest.mark.parametrize("change", [change for change in CHANGES if change.allowed], ids=_name)
def test_an_allowed_change_is_not_found(change: Change) -> None:
    assert _of_pods(findings(POD, change.apply(plain()))) == []


@pytest.mark.parametrize("name", [name for name in COMBINATIONS if name not in FORBIDDEN_TOGETHER])
def test_what_lifts_a_check_lifts_it(name: str) -> None:
    assert _of_pods(findings(POD, COMBINATIONS[name](plain()))) == []


@pytest.mark.parametrize("name", FORBIDDEN_TOGETHER)
def test_what_lifts_nothing_is_found_by_the_checks_own_rule(name: str) -> None:
    result = _of_pods(findings(POD, COMBINATIONS[name](plain())))
    assert {finding.rule for finding in result} == {FORBIDDEN_TOGETHER[name]}


@pytest.mark.parametrize("name", NV_FRACTIONS)
def test_annotations_of_nv_fractions_are_a_request_under_that_mode_alone(name: str) -> None:
    pod = NV_FRACTIONS[name](plain())
    under = stack_facts(json.dumps(changed(x86(), "kai.gpu_sharing_mode", "nv_fractions")), {})
    refused = {finding.rule for finding in _of_pods(findings(POD, pod, under))}
    assert refused == ({"devices"} if name in REFUSED_UNDER_NV_FRACTIONS else set())
    for other in (x86(), changed(x86(), "kai.gpu_sharing_mode", "hami_core")):
        result = _of_pods(findings(POD, pod, stack_facts(json.dumps(other), {})))
        assert {finding.rule for finding in result} == {"devices"}


@pytest.mark.parametrize("name", GIVEN_ALONE)
def test_a_fraction_lifts_no_check_of_a_variable_that_kai_leaves_as_it_is(name: str) -> None:
    pod = COMBINATIONS[name](plain())
    under = stack_facts(json.dumps(changed(x86(), "kai.gpu_sharing_mode", "nv_fractions")), {})
    [result] = _of_pods(findings(POD, pod, under))
    assert result.path.endswith(".env[0].value")
    for other in (x86(), changed(x86(), "kai.gpu_sharing_mode", "hami_core")):
        assert _of_pods(findings(POD, pod, stack_facts(json.dumps(other), {}))) == []


@pytest.mark.parametrize(("check", "change"), NEW, ids=lambda value: getattr(value, "name", ""))
def test_a_new_check_is_one_entry_of_the_table_for_the_pack_and_the_guard(
    check: Check, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(POD, change.apply(plain())) == ()
    monkeypatch.setattr(table, "CHECKS", (*table.CHECKS, check))
    [result] = findings(POD, change.apply(plain()))
    assert (result.rule, result.why, result.remedy) == (check.rule, check.why, check.remedy)
    assert _of_pods(findings(POD, plain())) == []
    # That the guard refuses it too is proven on a real API server (tests/engine/reservation/test_pod_guard.py).
    variables = pod_guard.guard_policy(parse(jetson()))["spec"]["variables"]
    assert check.name in {variable["name"] for variable in variables}
