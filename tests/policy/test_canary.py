"""The canaries: one for every rule of every policy, refused by that rule and no other."""

import pytest

from operations.policy_check import PACK, configuration
from operations.policy_check.configuration import SECTIONS
from policy import stack_platform
from policy.pack import ADVICE, policies
from policy.rules import RULES
from tests.policy.objects import TEGRA, findings

CANARIES = [
    (policy, rule, resource) for policy, by_rule in PACK.canaries().items() for rule, resource in by_rule.items()
]


def test_every_policy_and_every_rule_has_one() -> None:
    canaries = PACK.canaries()
    assert set(canaries) == {policy.name for policy in policies()} - {ADVICE}
    assert set(canaries["privilege"]) == {rule.name for rule in RULES}
    # Its canary is the absence of what needs an exception.
    assert canaries["exceptions-in-use"] == {}


@pytest.mark.parametrize(("policy", "rule", "resource"), CANARIES)
def test_a_canary_is_refused_by_its_rule_on_every_platform(policy: str, rule: str, resource: dict[str, object]) -> None:
    assert policy
    assert isinstance(token := resource["type"], str)
    assert isinstance(inputs := resource["inputs"], dict)
    assert {finding.rule for finding in findings(token, inputs)} == {rule}
    assert {finding.rule for finding in findings(token, inputs, TEGRA)} == {rule}


def test_the_pack_is_handed_every_section_that_it_takes() -> None:
    assert SECTIONS == stack_platform.SECTIONS
    assert configuration.ADVICE == ADVICE
