"""Every value path that is passed to a chart exists in that chart at the pinned version, with the same type.

`tests/data/charts` was read from the charts' `values.yaml` and templates. Helm ignores an unknown path without a word,
so a wrong one is found nowhere else. `commit` is where they were read: of KAI v0.18.6 the newest readable commit of
October 2026, since the release's own was not within reach.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from manifests import gpu_operator, kai
from manifests.objects import HelmRelease
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from testbed.stacks import STACKS, Json, parse
from tests.properties.runs import drawn

_DATA = Path(__file__).parents[2] / "data" / "charts"


class _Subchart(BaseModel, extra="forbid"):
    version: str
    value_paths: dict[str, str]


class _Chart(BaseModel, extra="forbid"):
    chart: str
    version: str
    read_at: str | None = None
    """The release whose sources were read, where it is an earlier patch release than `version`."""
    repository: str
    commit: str
    value_paths: dict[str, str]
    template_only_value_paths: dict[str, str]
    dead_value_paths: list[str]
    documented_but_nonexistent_value_paths: list[str]
    removed_value_paths: dict[str, str]
    subcharts: dict[str, _Subchart]

    def paths(self) -> dict[str, str]:
        """Every path that a template reads, with its type."""
        below = {
            f"{prefix}.{path}": kind for prefix, sub in self.subcharts.items() for path, kind in sub.value_paths.items()
        }
        paths = below | self.template_only_value_paths | self.value_paths
        return {path: kind for path, kind in paths.items() if path not in self.dead_value_paths}


def _chart(pin: ChartPin) -> _Chart:
    return _Chart.model_validate_json((_DATA / f"{pin.name}.json").read_text())


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "map"
        case _:
            raise AssertionError(f"{value!r} is no Helm value")


def _leaves(values: Mapping[str, Any], paths: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Paths and values, down to where the chart knows the path or nothing is below it."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in paths:
            yield from _leaves(value, paths, f"{path}.")
        else:
            yield path, value


_RANDOM_STACKS = 60
"""Enough that each setting is said by many of them: a new one is compared by itself."""


@functools.cache
def _releases(pin: ChartPin) -> dict[str, HelmRelease]:
    build = {KAI_SCHEDULER: kai.release, GPU_OPERATOR: gpu_operator.release}[pin]
    stacks = {name: make() for name, make in STACKS.items()}
    stacks |= {f"random stack {number}": stack for number, stack in enumerate(_random_stacks())}
    return {name: build(parse(stack)) for name, stack in stacks.items()}


@functools.cache
def _random_stacks() -> list[Json]:
    return drawn(_RANDOM_STACKS)


_every_chart = pytest.mark.parametrize("pin", [KAI_SCHEDULER, GPU_OPERATOR], ids=lambda pin: pin.name)


@_every_chart
def test_the_data_is_of_the_pinned_version(pin: ChartPin) -> None:
    chart = _chart(pin)
    assert (chart.chart, chart.version) == (pin.name, pin.version)


@_every_chart
def test_every_path_that_we_pass_exists_with_the_same_type(pin: ChartPin) -> None:
    paths = _chart(pin).paths()
    wrong = {
        f"{path} ({name}): {paths.get(path, 'no such path')}, not {_kind(value)}"
        for name, release in _releases(pin).items()
        for path, value in _leaves(release.values, paths)
        if paths.get(path) != _kind(value)
    }
    assert not wrong


@_every_chart
def test_the_traps_of_the_chart_are_known_and_really_are_none_of_its_paths(pin: ChartPin) -> None:
    chart = _chart(pin)
    traps = {*chart.documented_but_nonexistent_value_paths, *chart.dead_value_paths, *chart.removed_value_paths}
    still_read = {path for path, why in chart.removed_value_paths.items() if "default dropped" in why}
    assert traps - still_read, "the data names at least one trap"
    assert not (traps - still_read) & chart.paths().keys()


@_every_chart
def test_no_trap_is_passed(pin: ChartPin) -> None:
    chart = _chart(pin)
    traps = {*chart.documented_but_nonexistent_value_paths, *chart.dead_value_paths, *chart.removed_value_paths}
    passed = {path for release in _releases(pin).values() for path, _ in _leaves(release.values, {})}
    assert not traps & passed
    assert not {path for path in passed for trap in traps if path.startswith(f"{trap}.")}


def test_a_misspelt_path_would_be_found() -> None:
    paths = _chart(KAI_SCHEDULER).paths()
    leaves = dict(_leaves({"binder": {"resourceReservation": {"runtimeClassName": "nvidia"}}}, paths))
    assert leaves == {"binder.resourceReservation.runtimeClassName": "nvidia"}
    assert not leaves.keys() & paths.keys()


def test_the_stacks_switch_every_optional_path_on() -> None:
    union = {
        path
        for pin in (KAI_SCHEDULER, GPU_OPERATOR)
        for release in _releases(pin).values()
        for path, _ in _leaves(release.values, _chart(pin).paths())
    }
    optional = {
        "global.registry",
        "global.tag",
        "global.imagePullSecrets",
        "scheduler.args",
        "binder.cdiEnabled",
        "toolkit.env",
        "devicePlugin.config.name",
        "devicePlugin.config.default",
        "operator.repository",
        "operator.imagePullSecrets",
        "node-feature-discovery.image.repository",
        "node-feature-discovery.image.pullPolicy",
        "node-feature-discovery.imagePullSecrets",
    }
    assert optional <= union
