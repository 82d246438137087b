"""Checks a newer chart before its version is pinned: does it have what this program passes to it and expects of it?

Helm ignores a value path that no template reads, so a renamed one is found nowhere else. A name in a template is no
proof either, as another value may have the same. So the chart is rendered: with each value as it is passed, and with
another.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict

from config.charts import ChartSettings
from config.stack import StackSettings
from manifests import gpu_operator, kai
from manifests.objects import HelmRelease, StackObject
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from operations.chart_files import Chart
from operations.errors import OperationError
from operations.helm import Circumstances, Definitions, Helm, RenderingError, fields, objects
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
ValuePath: TypeAlias = tuple[str, ...]
"""The keys that lead to a value."""
_UNSET: Final = object()
_NO_VALUE = "kai-anywhere-tries-this"
"""A value, and the key of one, that no chart has."""


class _SubChart(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

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
    known = _known(facts / f"{chart.name}.json")
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
        changes=tuple(_changes(known, dict(_types(chart.values)))),
        values=len({path for found in paths.values() for path in found}),
        defaults=tuple(sorted(defaults)),
    )


def _with_version(version: str, settings: StackSettings) -> StackSettings:
    """The settings with the chart's version, on which KAI's values depend; a stack with a local chart says none."""
    scheduler = settings.kai.model_copy(update={"chart": ChartSettings(version=version)})
    return settings.model_copy(update={"kai": scheduler})


def with_every_option(content: dict[str, Any]) -> dict[str, Any]:
    """A stack file's content that says what else can be said of charts and images, so that every value is passed."""
    images = {"registry": "registry.example.com/mirror", "pull_policy": "Never", "pull_secrets": ["site"]}
    changes: dict[str, dict[str, Any]] = {
        "gpu_operator": {"images": images, "mig_strategy": "mixed", "toolkit_env": {"CONTAINERD_SET_AS_DEFAULT": "1"}},
        "kai": {
            "images": images,
            "image_tag": "site",
            "cdi_enabled": False,
            "scheduler": {"placement": "spread", "args": {"v": "4"}},
        },
        "node_profiles": {"sliced": {"sharing": "time_slicing", "nodes": ["another-node"], "replicas": 2}},
    }
    return with_settings(content, changes)


def leaves(values: Mapping[str, Any], above: ValuePath = ()) -> Iterator[tuple[ValuePath, Any]]:
    """Paths and values, as deep as there are any."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _at(values: Mapping[str, Any], path: ValuePath) -> Any:  # noqa: ANN401 - JSON
    node: Any = values
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _put(values: Mapping[str, Any], path: ValuePath, value: object) -> dict[str, Any]:
    """A copy with one value changed, or without it."""
    key, *rest = path
    result = dict(values)
    if rest:
        below = result.get(key)
        result[key] = _put(below if isinstance(below, Mapping) else {}, tuple(rest), value)
    elif value is _UNSET:
        result.pop(key, None)
    else:
        result[key] = value
    return result


def _type_problem(path: ValuePath, defaults: Mapping[str, Any], passed: Mapping[str, Any]) -> str | None:
    theirs, ours = _at(defaults, path), _at(passed, path)
    if theirs is None or _kind(theirs) == _kind(ours):
        return None
    return f"{_kind(theirs)}, where {_kind(ours)} is passed"


def _kubernetes(settings: StackSettings) -> str:
    return settings.cluster.kubernetes_version or KUBERNETES_VERSION


def _values_done(done: int, total: int) -> str:
    return f"{done} of {total} values"


def _lacking(definitions: Definitions, made: Iterable[StackObject]) -> Iterator[str]:
    """What the chart does not define of the objects that we make of its kinds."""
    for each in made:
        if isinstance(each.content, HelmRelease):
            continue
        version, kind = each.content["apiVersion"], each.content["kind"]
        group = version.partition("/")[0]
        if "." not in group or group.endswith(".k8s.io"):
            # Kubernetes' own.
            continue
        if not definitions.serves(version, kind):
            yield f"{kind} of {version}: the chart defines no such kind"
            continue
        dropped = fields([each.content]).keys() - fields([definitions.kept(each.content)]).keys()
        yield from (f"{place.partition('.')[2]} of {kind}: no such field" for place in sorted(dropped))


@dataclass(frozen=True)
class _Scene:
    """Values and circumstances under which each value is tried.

    Attributes:
        values: what is passed.
        circumstances: what the chart is told of the cluster.
        text: what it renders.
        fields: the fields of that which are the same each time; some charts make passwords or certificates.
        stable: whether all are.
    """

    values: Mapping[str, Any]
    circumstances: Circumstances
    text: str
    fields: frozenset[tuple[str, str]]
    stable: bool


class Reading:
    """Which of the values that a release passes to a chart something depends on."""

    def __init__(self, helm: Helm, chart: Chart, release: HelmRelease, kubernetes: str) -> None:
        """Take what is rendered; nothing is yet."""
        self._helm, self._chart, self._release = helm, chart, release
        apis = tuple(dict.fromkeys(re.findall(r'APIVersions\.Has\s+"([^"]+)"', chart.text)))
        self._circumstances = (Circumstances(kubernetes), Circumstances(kubernetes, apis, upgrade=True))
        self._echoes: dict[tuple[int, ValuePath], frozenset[str]] = {}

    def look(self) -> None:
        """Render the chart with the release's own values in all circumstances.

        Raises:
            RenderingError: helm refuses.
        """
        _ = self._plain

    def problem(self, path: ValuePath) -> str | None:
        """What is wrong with a value, or None where something depends on it.

        Raises:
            RenderingError: helm does not render the chart with the release's own values.
        """
        value = _at(self._release.values, path)
        # A switch that the stack leaves off may hide it: the image of a part that is not wanted.
        if self._any_matters(self._plain, path, value) or self._any_matters(self._switched_on, path, value):
            return None
        return "nothing that the chart renders depends on it"

    def is_default(self, path: ValuePath) -> bool:
        """Whether the chart renders the same without the value."""
        return all(self._same(scene, _put(scene.values, path, _UNSET)) for scene in self._plain)

    @functools.cache  # noqa: B019 - as many as there are stacks
    def definitions(self) -> Definitions:
        """The kinds that the chart defines.

        Raises:
            RenderingError: helm does not render the chart with the release's own values.
        """
        first, *_ = self._circumstances
        text = self._helm.render(self._chart.path, self._release, first, definitions=True)
        return Definitions(objects(text))

    @functools.cached_property
    def _plain(self) -> tuple[_Scene, ...]:
        return tuple(self._scene(self._release.values, circumstances) for circumstances in self._circumstances)

    @functools.cached_property
    def _switched_on(self) -> tuple[_Scene, ...]:
        """With each switch of the chart on that can be on together with those before it."""
        values = self._release.values
        for path, default in leaves(self._chart.values):
            if default is False and not _at(self._release.values, path):
                more = _put(values, path, True)
                with suppress(RenderingError):
                    self._render(more, self._circumstances[0])
                    values = more
        return tuple(self._scene(values, circumstances) for circumstances in self._circumstances)

    def _scene(self, values: Mapping[str, Any], circumstances: Circumstances) -> _Scene:
        first, second = (self._render(values, circumstances) for _ in range(2))
        return _Scene(values, circumstances, first, self._fields(first) & self._fields(second), first == second)

    def _any_matters(self, scenes: Iterable[_Scene], path: ValuePath, value: object) -> bool:
        return any(self._matters(scene, path, other) for scene in scenes for other in _others(value))

    def _matters(self, scene: _Scene, path: ValuePath, other: object) -> bool:
        try:
            changed = self._changed(scene, _put(scene.values, path, other))
        except RenderingError:
            # It rendered with the release's own value, so a template looks at this one.
            return True
        return bool(changed and changed - self._echo(scene, path))

    def _echo(self, scene: _Scene, path: ValuePath) -> frozenset[str]:
        """Places that any value beside this one changes, such as a checksum of a whole section."""
        key = (id(scene), path[:-1])
        if key not in self._echoes:
            self._echoes[key] = self._changed(scene, _put(scene.values, (*path[:-1], _NO_VALUE), _NO_VALUE))
        return self._echoes[key]

    def _changed(self, scene: _Scene, values: Mapping[str, Any]) -> frozenset[str]:
        text = self._render(values, scene.circumstances)
        if text == scene.text:
            return frozenset()
        found = self._fields(text)
        if not scene.stable:
            found &= self._fields(self._render(values, scene.circumstances))
        return frozenset(place for place, _ in found ^ scene.fields)

    def _same(self, scene: _Scene, values: Mapping[str, Any]) -> bool:
        try:
            return not self._changed(scene, values)
        except RenderingError:
            return False

    def _fields(self, text: str) -> frozenset[tuple[str, str]]:
        # What an API server drops of an object has no effect.
        kept = self.definitions().kept
        return frozenset(fields(kept(each) for each in objects(text)).items())

    def _render(self, values: Mapping[str, Any], circumstances: Circumstances) -> str:
        # A schema may refuse the values that are tried here; the release's own are judged with it in `definitions`.
        return self._helm.render(self._chart.path, replace(self._release, values=values), circumstances, schema=False)


def _others(value: object) -> tuple[object, ...]:
    """Values of the same type to try instead."""
    match value:
        case bool():
            return (not value,)
        case int() | float():
            return (value + 1,)
        case str():
            return (f"{value}-{_NO_VALUE}",)
        case list():
            return ([],) if value else ([_NO_VALUE], [{"name": _NO_VALUE}])
        case _:
            return ({_NO_VALUE: _NO_VALUE},)


def _types(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _types(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _kind(value)


def _kind(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return kinds.get(type(value), "map" if isinstance(value, Mapping) else "array")


def _known(file: Path) -> dict[str, str]:
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
