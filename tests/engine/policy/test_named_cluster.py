"""The step of the workflow for pull requests: a stack that names its own cluster is judged on the simulator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from operations.stack_file import read_stack_file, with_settings
from tests.support import checkout
from tests.unit.workflows.files import jobs, scripts


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    with checkout.fresh(tmp_path / "program") as folder:
        file = folder / "Pulumi.x86.yaml"
        named = {"cluster": {"kubeconfig": "~/.kube/only-at-the-team", "context": "prod"}}
        file.write_text(yaml.safe_dump(with_settings(read_stack_file(file), named)), encoding="utf-8")
        yield folder


def test_a_stack_that_names_its_cluster_is_judged_where_that_cluster_is_not_reached(copy: Path) -> None:
    script = scripts(jobs("policy")["policy"])
    output = checkout.shell(script, copy.parent, {"STACK": "x86", "KUBECONFIG": "/nowhere/kubeconfig"})
    assert "This is the simulator of stack 'x86', as --simulator asks." in output
    assert "Every policy refused its canary, and nothing in these stacks." in output
    assert "Preview of `x86`" in (copy.parent / "review" / "comment.md").read_text(encoding="utf-8")
