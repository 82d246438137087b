"""What `make preflight` learns of a stack's last `up`, from the real pulumi CLI."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.ownership.deployed_state import DeployedState
from operations.engine import deployed_state
from operations.errors import OperationError
from operations.target import Target
from testbed.engine import Stack
from testbed.stacks import jetson, parse


@pytest.fixture
def stack(tmp_path: Path, engine_environment: dict[str, str]) -> Stack:
    return Stack(tmp_path, jetson(), engine_environment)


def _target(stack: Stack, name: str, environment: Mapping[str, str]) -> Target:
    return Target(name, parse(jetson()), stack.folder, environment, ())


@pytest.mark.parametrize("name", ["test", "never-made"])
def test_a_stack_that_was_never_deployed_remembers_nothing(stack: Stack, name: str) -> None:
    assert deployed_state(_target(stack, name, stack.environment)) == DeployedState()


def test_a_state_that_can_not_be_read_is_not_taken_for_an_empty_one(stack: Stack, tmp_path: Path) -> None:
    elsewhere = stack.environment | {"PULUMI_BACKEND_URL": (tmp_path / "nowhere").as_uri()}
    with pytest.raises(OperationError, match="The state of stack 'test' can't be read"):
        deployed_state(_target(stack, "test", elsewhere))
