"""The pack against a corpus of ways around it: nothing bad passes, nothing good is refused, whatever carries it."""

from collections import Counter

import pytest

from policy.rules import RULES
from tests.policy.adversarial import BAD, GOOD, Case
from tests.policy.objects import TEGRA, UNKNOWN, carriers, findings
from tests.policy.test_cluster import UNKNOWNS as UNKNOWN_IN_CLUSTER
from tests.policy.test_pods import UNKNOWNS as UNKNOWN_IN_PODS

_BAD_PODS = tuple(case for case in BAD if case.is_pod)
_GOOD_PODS = tuple(case for case in GOOD if case.is_pod)


def test_the_corpus_is_large_and_names_each_case_once() -> None:
    assert len(BAD) >= 140
    assert len(GOOD) >= 80
    assert Counter(case.what for case in (*BAD, *GOOD)).most_common(1)[0][1] == 1


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.what)
def test_what_is_bad_is_refused_by_its_rule_on_every_platform(case: Case) -> None:
    assert {finding.rule for finding in findings(case.token, case.props)} == {case.rule}
    assert {finding.rule for finding in findings(case.token, case.props, TEGRA)} == {case.rule}


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.what)
def test_what_is_good_passes(case: Case) -> None:
    assert [finding.message() for finding in findings(case.token, case.props)] == []
    assert [finding.message() for finding in findings(case.token, case.props, TEGRA)] == []


@pytest.mark.parametrize("token", carriers())
def test_no_kind_hides_a_bad_pod_or_spoils_a_good_one(token: str) -> None:
    shape = carriers()[token]
    missed = [case.what for case in _BAD_PODS if case.rule not in {f.rule for f in findings(token, shape(case.props))}]
    assert missed == []
    refused = [case.what for case in _GOOD_PODS if findings(token, shape(case.props))]
    assert refused == []


def test_every_rule_refuses_something_and_has_a_case_of_an_unknown_value() -> None:
    rules = {rule.name for rule in RULES}
    assert {case.rule for case in BAD} == rules
    with_unknown = {rule for rule, *_ in (*UNKNOWN_IN_PODS, *UNKNOWN_IN_CLUSTER)}
    assert with_unknown == rules


@pytest.mark.parametrize("key", ["spec", "metadata", "data", "values", "rules", "webhooks", "items"])
def test_an_unknown_beside_it_hides_nothing_bad(key: str) -> None:
    hidden = [
        case.what
        for case in BAD
        if key not in case.props
        and case.token.startswith("kubernetes:")
        and case.rule not in {f.rule for f in findings(case.token, case.props | {key: UNKNOWN})}
    ]
    assert hidden == []
