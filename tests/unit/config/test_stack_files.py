"""The stack files at the root, which their user edits: valid, and their commented lines too, whatever was edited.

No other test of this tier reads them (tests/conftest.py); all others have stack files of their own, testbed/data.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pydantic import BaseModel

from cluster.access.binding import NO_CLUSTER
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from config.cluster import Distribution
from config.stack import SETTINGS_KEY
from gpu_sharing.arithmetic import shared_mib
from manifests.versions import DEVICE_PLUGIN_IMAGE, GPU_OPERATOR, KAI_SCHEDULER
from operations.stack_file import read_settings, stack_names
from testbed.stacks import ROOT, STACK_FILES, Json, changed, jetson, parse, read_stack_file, x86
from tests.support.checkout import copy_tracked
from tests.support.fractions import fitting
from tests.support.golden import Golden
from tests.support.json_schema import judge
from tests.support.recording_monitor import record

_COMMENTED_SETTING = re.compile(r"^( *)# ( *[a-z][a-z0-9_-]*:( .*)?)$", re.MULTILINE)
_COMPLETE = "Every setting stands here"
"""The claim of a file's head; who takes the comments out takes it out too."""

_OF_JETSONS = frozenset(f"reservation.{key}" for key in ("privilege", "privilege_by_node", "supplemental_groups"))
"""Settings that an x86 stack refuses."""

_READS_STACKS = re.compile(r"ROOT\b.*Pulumi\.\w+\.yaml|stack_names\(ROOT")

_EDITS = (
    (r"(?m)^( +tegra_nodes:\n(?: *#.*\n)* +)[\w.-]+:", r"\1edited-node:"),
    (r"(?m)^( +gpu_memory_mib:) \d+", r"\1 28672"),
    (
        r"(?m)^( +)queues:(?: \{\})?$",
        r"\g<0>\n\1  edited-queue:\n\1    gpu: { quota: 2, limit: 4, over_quota_weight: 1 }",
    ),
    (
        r"(?m)^( +)node_profiles:(?: \{\})?$",
        r"\1node_profiles:\n\1  edited-profile:\n\1    sharing: kai\n\1    nodes: [edited-gpu]",
    ),
)
"""What README.md, docs/jetson.md and docs/mixed-clusters.md tell to write into a stack file."""

every_shipped_file = pytest.mark.parametrize(
    "path", [ROOT / f"Pulumi.{name}.yaml" for name in stack_names(ROOT)], ids=lambda path: path.name
)


def _edited(text: str) -> str:
    for pattern, replacement in _EDITS:
        text = re.sub(pattern, replacement, text, count=1)
    return text


def _difference(opened: Json, said: Json) -> Json:
    """What stands in the first mapping alone."""
    result: Json = {}
    for key, value in opened.items():
        other = said.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            if inner := _difference(value, other):
                result[key] = inner
        elif key not in said or value != other:
            result[key] = value
    return result


def _joined(base: Json, more: Json) -> Json:
    return base | {
        key: _joined(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in more.items()
    }


def _commented(text: str) -> Json:
    """The settings that stand in a file as comments alone."""
    return _difference(read_stack_file(_COMMENTED_SETTING.sub(r"\1\2", text)), read_stack_file(text))


def _with_commented(text: str) -> Json:
    """Valid settings of the file's platform with its comments opened; k8s-snap alone allows all of them."""
    platform = read_stack_file(text)["platform"]
    base = {"tegra": jetson, "x86": x86}[platform["kind"]]()
    # A comment of a node may be of one that the file's user has named anew.
    own = {"platform": {"tegra_nodes": platform["tegra_nodes"]}} if "tegra_nodes" in platform else {}
    return changed(_joined(_joined(base, own), _commented(text)), "cluster.distribution", "k8s-snap")


def _never_said(model: BaseModel, path: str) -> set[str]:
    """Settings below a model that its file says nowhere; of several entries of one kind, one must say it."""
    missing = {f"{path}{name}" for name in type(model).model_fields.keys() - model.model_fields_set}
    for name in model.model_fields_set:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            missing |= _never_said(value, f"{path}{name}.")
        elif isinstance(value, dict) and value and all(isinstance(entry, BaseModel) for entry in value.values()):
            missing |= set.intersection(*(_never_said(entry, f"{path}{name}.*.") for entry in value.values()))
    return missing


def _paths(value: Json, path: str = "") -> set[str]:
    """Every dotted path of a mapping."""
    inner = (_paths(below, f"{path}{key}.") for key, below in value.items() if isinstance(below, dict))
    return {f"{path}{key}" for key in value}.union(*inner)


@every_shipped_file
def test_a_shipped_stack_is_valid_and_is_registered(path: Path) -> None:
    settings = read_settings(path)

    def program() -> None:
        names = {name for host in settings.hosts.values() for name in host.secret_names}
        secrets = {name: pulumi.Output.secret("a secret") for name in names}
        KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, "a-cluster", NO_CLUSTER, secrets))

    assert "Release:kai-scheduler" in record(program).by_key


@every_shipped_file
def test_a_shipped_stack_says_its_settings_and_beside_them_only_secrets(path: Path) -> None:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))["config"]
    del config[f"kai-anywhere:{SETTINGS_KEY}"]
    assert [key for key, value in config.items() if not isinstance(value, dict) or value.keys() != {"secure"}] == []


@every_shipped_file
def test_editors_find_the_schema_of_a_shipped_stack_and_it_takes_the_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"\A# yaml-language-server: \$schema=(\S+)\n", text)
    for schema in named:
        judge(json.loads((path.parent / schema).read_text(encoding="utf-8"))).validate(yaml.safe_load(text))
    assert named or _COMPLETE not in text, "the line stands in every file that its user left as it was"


@every_shipped_file
def test_the_comment_of_a_shipped_stack_lists_every_distribution(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    listed = re.findall(r"# EDIT: (kubeadm \| .*); decides", text)
    assert [sorted(names.split(" | ")) for names in listed] == [sorted(Distribution)] or _COMPLETE not in text


@every_shipped_file
def test_what_stands_in_comments_is_valid_too(path: Path) -> None:
    parse(_with_commented(path.read_text(encoding="utf-8")))


@every_shipped_file
def test_a_file_that_claims_so_has_every_setting_said_or_commented(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    settings = parse(_with_commented(text))
    missing = _never_said(settings, "") - _paths(read_stack_file(text))
    if settings.platform.kind == "x86":
        missing -= _OF_JETSONS
    assert missing == set() or _COMPLETE not in text, f"add them, or take {_COMPLETE!r} out of the file's head"


@every_shipped_file
def test_charts_and_images_in_comments_are_the_pinned_ones(path: Path) -> None:
    commented = _commented(path.read_text(encoding="utf-8"))
    [base] = re.findall(
        r"(?m)^FROM docker\.io/(\S+)$", (ROOT / "examples/gvirtus-app/Containerfile").read_text(encoding="utf-8")
    )
    pinned: tuple[tuple[str, Any], ...] = (
        ("gpu_operator.chart", {"source": GPU_OPERATOR.source, "version": GPU_OPERATOR.version}),
        ("kai.chart", {"source": KAI_SCHEDULER.source, "version": KAI_SCHEDULER.version}),
        ("kai.image_tag", KAI_SCHEDULER.version),
        ("gvirtus.backends.gpu-a.image", base),
        ("gvirtus.frontends.device_plugin_image", DEVICE_PLUGIN_IMAGE),
    )
    for dotted, value in pinned:
        place: Any = commented
        for key in dotted.split("."):
            place = place.get(key, {})
        # What the user opened stands in no comment any more.
        assert place in ({}, value), dotted


def test_a_settings_claim_is_found_wrong() -> None:
    text = (STACK_FILES / "Pulumi.jetson.yaml").read_text(encoding="utf-8")
    missing = _never_said(parse(_with_commented(text)), "")
    assert missing >= {"cluster.adopt", "gvirtus", "kai.cdi_enabled"}
    opened = text.replace(
        "    reservation:", "    # hosts:\n    #   jetson-1:\n    #     lokal: true\n    reservation:"
    )
    with pytest.raises(Exception, match="unknown key 'lokal'"):
        parse(_with_commented(opened))


@pytest.mark.parametrize("stack", [jetson, x86])
def test_what_the_tests_own_files_say_is_the_default(stack: Any) -> None:  # noqa: ANN401 - a function of JSON
    full = stack()
    edited = {"kind", "tegra_nodes", "unified_memory_nodes"}
    only_what_a_user_must_edit = {
        "cluster": full["cluster"],
        "platform": {key: value for key, value in full["platform"].items() if key in edited},
        "kai": {"queues": full["kai"]["queues"]},
    }
    assert parse(full) == parse(only_what_a_user_must_edit)


def _reading(file: Path) -> list[str]:
    """The tests of a file that read the shipped stacks or list them: all, where it is not done in single ones."""
    text = file.read_text(encoding="utf-8")
    lines = {text.count("\n", 0, match.start()) + 1 for match in _READS_STACKS.finditer(text)}
    tests = {
        node.name: range(
            min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno + 1
        )
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and node.end_lineno
    }
    reading = [name for name, span in tests.items() if lines & {*span}]
    if lines <= {line for name in reading for line in tests[name]}:
        return [f"{file}::{name}" for name in reading]
    return [str(file)]


def test_the_edits_that_the_guides_ask_for_break_no_test(tmp_path: Path) -> None:
    """Of a checkout with edited stack files, every test runs that reads one or lists them."""
    own = parse(read_stack_file(_edited((STACK_FILES / "Pulumi.jetson.yaml").read_text(encoding="utf-8"))))
    assert own.platform.model_dump()["tegra_nodes"]["edited-node"]["gpu_memory_mib"] == 28672
    assert "edited-queue" in own.kai.queues
    assert "edited-profile" in own.node_profiles

    copy_tracked(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for name in stack_names(ROOT):
        file = tmp_path / f"Pulumi.{name}.yaml"
        text = (ROOT / file.name).read_text(encoding="utf-8")
        file.write_text(_edited(text) + "encryptionsalt: v1:what-stack-init-writes\n", encoding="utf-8")
    reading = [place for file in sorted((tmp_path / "tests" / "unit").rglob("test_*.py")) for place in _reading(file)]
    assert {Path(__file__).name, "test_command_line.py::test_an_unknown_stack_names_those_that_exist"} <= {
        Path(place).name for place in reading
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not break_no_test", *reading],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b\d\d+ passed", done.stdout.splitlines()[-1]), done.stdout


def test_a_test_that_reads_a_shipped_stack_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/unit/config/test_platform.py::test_a_platform (call)")
    for name in stack_names(ROOT):
        with pytest.raises(RuntimeError, match="testbed/data"):
            read_settings(ROOT / f"Pulumi.{name}.yaml")


def test_the_defaults_are_the_reviewed_ones(golden: Golden) -> None:
    cluster = {"distribution": "kubeadm"}
    tegra = {"kind": "tegra", "tegra_nodes": {"jetson-1": {"gpu_memory_mib": 30720}}}
    queues: Json = {"queues": {"team": {}}}
    stacks: dict[str, Json] = {
        "tegra": {"cluster": cluster, "platform": tegra, "kai": queues},
        "x86": {"cluster": cluster, "platform": {"kind": "x86"}, "kai": queues},
    }
    golden.check("defaults", {name: parse(stack).model_dump(mode="json") for name, stack in stacks.items()})


def test_what_the_comment_says_that_the_shipped_memory_serves_is_kais_arithmetic() -> None:
    text = (ROOT / "Pulumi.jetson.yaml").read_text(encoding="utf-8")
    said = re.findall(
        r"# Shared in steps of 100: of (\d+) MiB KAI shares (\d+), so four pods of (\d+) run, but only three of (\d+)",
        text,
    )
    for label, shared, four, three in said:
        assert shared_mib(int(label)) == int(shared)
        assert (fitting(int(label), four), fitting(int(label), three)) == (4, 3)
    assert said or _COMPLETE not in text, "the comment stands in every file that its user left as it was"
