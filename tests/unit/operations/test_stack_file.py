"""Stack files read without the engine."""

from pathlib import Path

import pytest

from config.stack import StackConfigError
from operations.errors import OperationError
from operations.stack_file import read_settings, read_stack_file, with_settings, without_hosts
from testbed.stacks import STACK_FILES


def test_settings_are_read_from_a_file() -> None:
    assert read_settings(STACK_FILES / "Pulumi.jetson.yaml").platform.kind == "tegra"
    assert read_settings(STACK_FILES / "Pulumi.x86.yaml").platform.kind == "x86"


def test_a_stack_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    for name in ("edge", "lab"):
        (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(OperationError, match=r"There is no Pulumi\.roof\.yaml.*\nStacks: edge, lab\. .*STACK="):
        read_stack_file(tmp_path / "Pulumi.roof.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [("config: [1", "is not YAML"), ("- a", "is not a stack file"), ("config: [a]", "is not a stack file")],
)
def test_a_file_that_is_no_stack_file_is_said_to_be_none(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OperationError, match=rf"Pulumi\.odd\.yaml {says}"):
        read_stack_file(file)


def test_a_file_without_settings_says_where_to_copy_them_from(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.bare.yaml"
    file.write_text("encryptionsalt: v1:x\n", encoding="utf-8")
    with pytest.raises(StackConfigError, match=r"Copy it from Pulumi\.jetson\.yaml or Pulumi\.x86\.yaml"):
        read_settings(file)


def test_changed_settings_leave_everything_else_as_it_was() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    changed = with_settings(content | {"encryptionsalt": "v1:x"}, {"kai": {"namespace": "other"}})
    settings, before = (c["config"]["kai-anywhere:settings"] for c in (changed, content))
    assert changed["encryptionsalt"] == "v1:x"
    assert settings["kai"] == before["kai"] | {"namespace": "other"}
    assert {k: v for k, v in settings.items() if k != "kai"} == {k: v for k, v in before.items() if k != "kai"}
    assert before["kai"]["namespace"] == "kai-scheduler", "the original is not touched"


def test_hosts_are_left_out_and_nothing_else() -> None:
    content = read_stack_file(STACK_FILES / "Pulumi.jetson.yaml")
    settings = content["config"]["kai-anywhere:settings"]
    with_hosts = {"config": {"kai-anywhere:settings": settings | {"hosts": {"jetson-1": {"local": True}}}}}
    left = without_hosts(with_hosts)["config"]["kai-anywhere:settings"]
    assert left == {section: value for section, value in settings.items() if section != "hosts"}
    assert "hosts" in with_hosts["config"]["kai-anywhere:settings"], "the given content must not change"
