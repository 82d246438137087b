"""Checks a newer chart before its version is pinned: does it have what this program passes to it and expects of it?"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from config.charts import ChartSettings
from config.stack import StackSettings
from manifests import gpu_operator, kai
from manifests.objects import HelmRelease, StackObject
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from operations.charts.files import Chart
from operations.charts.helm import Definitions, Helm, RenderingError, fields
from operations.charts.values import Reading, ValuePath, leaves, value_at
from operations.errors import OperationError
from operations.stack_file import with_settings
from toolchain.programs import KUBERNETES_VERSION
from toolchain.progress import progress

_PINS = {pin.name: pin for pin in (GPU_OPERATOR, KAI_SCHEDULER)}
NAMES: Mapping[str, tuple[str, ...]] = {
    # Kinds of which this program makes objects, and the labels and names that its admission policies match.
    KAI_SCHEDULER.name: ("scheduling.run.ai", "Queue", "SchedulingShard", "kai-resource-reservation"),
    GPU_OPERATOR.name: ("ClusterPolicy", "NodeFeatureRule", "nfd.k8s-sigs.io"),
}
"""Names that must stand somewhere in each chart."""


class _SubChart(BaseModel, extra="ignore", frozen=True):
    value_paths: dict[str, str]


class _Facts(_SubChart):
    subcharts: dict[str, _SubChart]


@dataclass(frozen=True)
class Report:
    """What a chart is to this program.

    Attributes:
        pin: the version that is pinned.
        version: the chart's own.
        refused: what helm says to a stack's values, where it does not render the chart with them.
        missing: values that a stack passes and nothing depends on that the chart renders, or that have another type.
        absent: names that stand nowhere in the chart, and what its definitions lack of the objects that we make.
        changes: how the chart's value paths differ from those of the pinned version.
        values: how many values were looked at.
        defaults: those of them that the chart would have by itself.
    """

    pin: ChartPin
    version: str
    refused: tuple[str, ...]
    missing: tuple[str, ...]
    absent: tuple[str, ...]
    changes: tuple[str, ...]
    values: int
    defaults: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the version can be pinned as far as this check sees."""
        return not self.refused and not self.missing and not self.absent

    def text(self) -> str:
        """The report for a person."""
        lines = [f"{self.pin.name}: pinned {self.pin.version}, this chart {self.version}"]
        lines += [f"  refused: {text}" for text in self.refused]
        lines += [f"  missing: {path}" for path in self.missing]
        lines += [f"  absent:  {name}" for name in self.absent]
        lines += [f"  changed: {change}" for change in self.changes]
        lines.append(
            f"  It has what the stacks pass to it: {self.values} values, {len(self.defaults)} of them its defaults."
            if self.fits
            else "  Do not pin it before these are solved."
        )
        return "\n".join(lines)


def check(chart: Chart, stacks: Mapping[str, StackSettings], facts: Path, helm: Helm) -> Report:
    """Compare a chart with what the stacks pass to it, and with what is known of the pinned version.

    Args:
        chart: the newer chart.
        stacks: settings by the stack's name.
        facts: the folder with what is known of each pinned chart, as `NAME.json`.
        helm: renders the chart, several times for each value.

    Raises:
        OperationError: if it is a chart that this program does not use.
    """
    if chart.name not in _PINS:
        raise OperationError(f"The chart is '{chart.name}'; this program uses {' and '.join(sorted(_PINS))}.")
    pin = _PINS[chart.name]
    module = {KAI_SCHEDULER.name: kai, GPU_OPERATOR.name: gpu_operator}[chart.name]
    pinned = _pinned_types(facts / f"{chart.name}.json")
    stacks = {name: _with_version(chart.version, settings) for name, settings in stacks.items()}
    releases = {name: module.release(settings) for name, settings in sorted(stacks.items())}
    paths = {name: [path for path, _ in leaves(release.values)] for name, release in releases.items()}
    refused: list[str] = []
    missing: list[str] = []
    absent = {name: None for name in NAMES[chart.name] if name not in chart.text}
    defaults: dict[str, None] = {}
    with progress(f"rendering {chart.name}", sum(map(len, paths.values())), _values_done) as advance:
        for stack, release in releases.items():
            reading = Reading(helm, chart, release, _kubernetes(stacks[stack]))
            try:
                definitions = reading.definitions()
                reading.look()
            except RenderingError as error:
                refused.append(f"{error} (stack {stack})")
                advance(len(paths[stack]))
                continue
            absent |= dict.fromkeys(_lacking(definitions, module.objects(stacks[stack]).values()))
            for path in paths[stack]:
                if problem := _type_problem(path, chart.values, release.values) or reading.problem(path):
                    missing.append(f"{'.'.join(path)}: {problem} (stack {stack})")
                elif reading.is_default(path):
                    defaults[".".join(path)] = None
                advance(1)
    return Report(
        pin=pin,
        version=chart.version,
        refused=tuple(refused),
        missing=tuple(missing),
        absent=tuple(absent),
        changes=tuple(_changes(pinned, dict(_types(chart.values)))),
        values=len({path for stack_paths in paths.values() for path in stack_paths}),
        defaults=tuple(sorted(defaults)),
    )


def _with_version(version: str, settings: StackSettings) -> StackSettings:
    """The settings with the chart's version, on which KAI's values depend; a stack with a local chart says none."""
    scheduler = settings.kai.model_copy(update={"chart": ChartSettings(version=version)})
    return settings.model_copy(update={"kai": scheduler})


def with_every_option(content: dict[str, Any]) -> dict[str, Any]:
    """A stack file's content that says what else can be said of charts, images and taints: every value is passed."""
    images = {"registry": "registry.example.com/mirror", "pull_policy": "Never", "pull_secrets": ["site"]}
    changes: dict[str, dict[str, Any]] = {
        "cluster": {"tolerated_taints": ["dedicated=gpus:NoSchedule"]},
        # One of the others goes with no `cdi_enabled: false`; what a file says is asked for without these options.
        "platform": {"container_runtime_mode": "auto"},
        "gpu_operator": {"images": images, "mig_strategy": "mixed", "toolkit_env": {"CONTAINERD_SET_AS_DEFAULT": "1"}},
        "kai": {
            "images": images,
            "image_tag": "site",
            "cdi_enabled": False,
            "scheduler": {"placement": "spread", "args": {"v": "4"}},
        },
        "node_profiles": {"sliced": {"sharing": "time_slicing", "nodes": ["nobody.invalid"], "replicas": 2}},
    }
    return with_settings(content, changes)


def _type_problem(path: ValuePath, defaults: Mapping[str, Any], passed: Mapping[str, Any]) -> str | None:
    theirs, ours = value_at(defaults, path), value_at(passed, path)
    if theirs is None or _kind(theirs) == _kind(ours):
        return None
    return f"{_kind(theirs)}, where {_kind(ours)} is passed"


def _kubernetes(settings: StackSettings) -> str:
    return settings.cluster.kubernetes_version or KUBERNETES_VERSION


def _values_done(done: int, total: int) -> str:
    return f"{done} of {total} values"


def _lacking(definitions: Definitions, made: Iterable[StackObject]) -> Iterator[str]:
    """What the chart does not define of the objects that we make of its kinds."""
    for stack_object in made:
        if isinstance(stack_object.content, HelmRelease):
            continue
        version, kind = stack_object.content["apiVersion"], stack_object.content["kind"]
        group = version.partition("/")[0]
        if "." not in group or group.endswith(".k8s.io"):
            # Kubernetes' own.
            continue
        if not definitions.serves(version, kind):
            yield f"{kind} of {version}: the chart defines no such kind"
            continue
        dropped = fields([stack_object.content]).keys() - fields([definitions.kept(stack_object.content)]).keys()
        yield from (f"{place.partition('.')[2]} of {kind}: no such field" for place in sorted(dropped))


def _types(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _types(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _kind(value)


def _kind(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return kinds.get(type(value), "map" if isinstance(value, Mapping) else "array")


def _pinned_types(file: Path) -> dict[str, str]:
    try:
        facts = _Facts.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError) as error:
        raise OperationError(f"What is known of the pinned chart can't be read from {file}: {error}") from error
    below = {f"{name}.{path}": kind for name, sub in facts.subcharts.items() for path, kind in sub.value_paths.items()}
    return below | facts.value_paths


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            # A map that was empty may have got content.
            if not any(other.startswith(f"{path}.") for other in new):
                yield f"{path} is gone"
        elif path not in old:
            # What lies in a map that is known as one is its content.
            if not any(old.get(above) == "map" for above in _above(path)):
                yield f"{path} is new ({new[path]})"
        elif old[path] != new[path] and "null" not in (old[path], new[path]):
            yield f"{path} was {old[path]}, is {new[path]}"


def _above(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
