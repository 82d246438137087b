"""The shape of the project: what a reader counts on."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from config.stack import SETTINGS_KEY
from testbed.stacks import ROOT

_COMPONENTS = sorted((ROOT / "components").rglob("*.py"))


def _component_classes(path: Path) -> list[ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        statement
        for statement in tree.body
        if isinstance(statement, ast.ClassDef)
        and any(ast.unparse(base).endswith("ComponentResource") for base in statement.bases)
    ]


def test_the_program_is_read_at_a_glance() -> None:
    lines = (ROOT / "__main__.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40


@pytest.mark.parametrize("path", _COMPONENTS, ids=lambda path: path.stem)
def test_a_file_holds_at_most_one_component_and_is_named_after_it(path: Path) -> None:
    classes = _component_classes(path)
    assert len(classes) <= 1
    for component in classes:
        assert path.stem == "".join(f"_{c.lower()}" if c.isupper() else c for c in component.name).lstrip("_")


def test_the_components_are_these() -> None:
    assert {component.name for path in _COMPONENTS for component in _component_classes(path)} == {
        "KaiAnywhere",
        "NodeLabels",
        "GpuOperator",
        "ReservationOverrides",
        "AdmissionServer",
        "Gvirtus",
        "PodGuard",
        "KaiScheduler",
        "Monitoring",
        "Host",
        "Hosts",
        "Verification",
    }


def test_the_project_declares_the_one_key_that_is_read() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert project["name"] == "kai-anywhere"
    assert project["config"].keys() == {f"kai-anywhere:{SETTINGS_KEY}"}


# Their other meaning is a plural: names, requests, plans. What comes up anew is added.
_THIRD_PERSON = re.compile(
    "(Add|Ask|Bring|Build|Check|Create|Find|Get|Give|Keep|Look|Make|Print|Put|Read|Refuse|Remove|Return|Run|Say|Send|"
    "Show|Start|Stop|Take|Tell|Wait|Write)s"
)


def test_a_docstring_of_a_function_is_a_command_or_names_the_answer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = project["tool"]["ruff"]["lint"]["isort"]["known-first-party"]
    violations = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {first}"
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (first := (ast.get_docstring(function) or " ").partition(" ")[0])
        and _THIRD_PERSON.fullmatch(first)
    ]
    assert not violations
