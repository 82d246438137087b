"""A policy that fails itself: the run fails with it, and nothing is made."""

import sys
from pathlib import Path

import pytest

from testbed.engine import Stack

pytestmark = pytest.mark.engine

_PROGRAM = """
import pulumi

for number in range(2):
    pulumi.ComponentResource("test:index:Part", f"part-{number}", {})
"""
_PACK = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def validate(arguments, report):
    raise RuntimeError("the rule itself is broken")


policy = ResourceValidationPolicy(name="broken", description="d", validate=validate)
PolicyPack(name="broken", enforcement_level=EnforcementLevel.MANDATORY, policies=[policy])
"""


def test_a_policy_that_raises_an_error_fails_preview_and_up_and_nothing_is_made(
    tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    program, pack = tmp_path / "program", tmp_path / "pack"
    for folder, name, text in ((program, "__main__.py", _PROGRAM), (pack, "pack.py", _PACK)):
        folder.mkdir()
        (folder / name).write_text(text, encoding="utf-8")
    (pack / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.1.0\n", encoding="utf-8")
    run = pack / "run"
    run.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u "{pack}/pack.py"\n', encoding="utf-8")
    run.chmod(0o755)
    stack = Stack(tmp_path / "stack", {}, engine_environment, program=program)
    for command in (stack.preview, stack.up):
        failed = command("--policy-pack", str(run), expect=None)
        assert failed.code != 0
        assert "the rule itself is broken" in failed.output
    assert [resource for resource in stack.resources() if resource["type"] == "test:index:Part"] == []
    stack.up()
    assert len([resource for resource in stack.resources() if resource["type"] == "test:index:Part"]) == 2
