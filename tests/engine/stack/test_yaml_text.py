"""Pulumi itself takes YAML for what every command takes it for."""

import json
from collections.abc import Mapping
from pathlib import Path

from testbed.engine import Stack
from tests.support.yaml_values import VALUES


def test_pulumi_reads_each_value_as_the_commands_do(tmp_path: Path, engine_environment: Mapping[str, str]) -> None:
    stack = Stack(tmp_path, {}, engine_environment, project={"name": "kai-anywhere", "runtime": "yaml"})
    lines = "".join(f"    - {text}\n" for text in VALUES)
    (tmp_path / "Pulumi.test.yaml").write_text(f"config:\n  kai-anywhere:settings:\n{lines}", encoding="utf-8")
    said = json.loads(stack.run("config", "--json").output)["kai-anywhere:settings"]["value"]
    assert dict(zip(VALUES, json.loads(said), strict=True)) == VALUES
