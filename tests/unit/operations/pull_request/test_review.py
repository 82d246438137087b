"""What the previews hand to the policy pack, and what they keep to themselves."""

from pathlib import Path

import pytest

from operations.pull_request.review import POLICIES, pack_config, secrets_of
from operations.target import Target
from policy.pack import policies
from policy.stack_platform import stack_facts
from tests.support.stacks import STACKS, parse


def test_every_policy_of_the_pack_gets_the_configuration() -> None:
    assert set(POLICIES) == {policy.name for policy in policies()}


@pytest.mark.parametrize("name", STACKS)
def test_the_pack_reads_from_it_what_it_reads_from_the_stack_itself(name: str) -> None:
    stack = parse(STACKS[name]())
    config = pack_config(Target("test", stack, Path(), {}, ()))["pod-privilege"]
    assert stack_facts(None, config) == stack_facts(stack.model_dump_json(), {})
    assert stack_facts(None, config).problem is None


def test_the_secrets_of_the_environment_are_known() -> None:
    environment = {"GITHUB_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k", "HOME": "/root", "MINE": "m"}
    assert set(secrets_of(environment, ["MINE", "NONE"])) == {"t", "k", "m"}
