"""What somebody has exported for pulumi and other work of theirs is in no command's way."""

from pathlib import Path

from operations import engine
from operations.target import Target
from testbed.engine import Stack
from testbed.stacks import jetson, parse


def test_a_stack_of_other_work_is_not_in_the_way_of_the_one_that_a_command_is_for(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    stack = Stack(tmp_path, jetson(), engine_environment, project={"name": "kai-anywhere", "runtime": "yaml"})
    exported = stack.environment | {"PULUMI_OPTION_STACK": "another", "PULUMI_STACK": "another"}
    engine.select_stack(Target(stack.name, parse(jetson()), stack.folder, exported, ()))
    new = Target("new", parse(jetson()), stack.folder, exported, ())
    engine.select_stack(new)
    assert engine.checkpoint(new).resources == []
    assert sorted(file.name for file in tmp_path.glob("state/.pulumi/stacks/*/*.json")) == ["new.json", "test.json"]
