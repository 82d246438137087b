"""The corpus of this repository: resources that the pack must refuse, and near to them those that it must let pass."""

from dataclasses import dataclass
from typing import Any

import yaml

from testbed.stacks import ROOT
from tests.policy.objects import Json, changed, pod

_FOLDER = ROOT / "tests/data/policy"


@dataclass(frozen=True)
class Case:
    """One resource.

    Attributes:
        what: it is, as a phrase.
        rule: that refuses it; empty where it must pass.
        token: its type.
        props: its inputs.
        is_pod: whether it is the compliant pod with a change.
    """

    what: str
    rule: str
    token: str
    props: Json
    is_pod: bool


def _read(name: str) -> tuple[Case, ...]:
    entries = yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))
    return tuple(_case(entry) for entry in entries)


def _case(entry: dict[str, Any]) -> Case:
    props = entry.get("props")
    if "pod" in entry:
        props = pod()
        for path, value in entry["pod"].items():
            props = changed(props, path, value)
    assert isinstance(props, dict)
    token = entry.get("token", "kubernetes:core/v1:Pod")
    return Case(entry["what"], entry.get("rule", ""), token, props, "pod" in entry)


BAD = _read("bad.yaml")
GOOD = _read("good.yaml")
