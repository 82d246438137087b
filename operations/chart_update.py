"""Checks a newer chart before its version is pinned: does it have what this program passes to it and expects of it?

Helm ignores a value path that no template reads, so a renamed one is found nowhere else.
"""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from config.stack import StackSettings
from manifests import gpu_operator, kai
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from operations.errors import OperationError

_PINS = {pin.name: pin for pin in (GPU_OPERATOR, KAI_SCHEDULER)}
NAMES: Mapping[str, tuple[str, ...]] = {
    # Kinds of which this program makes objects, and the labels and names that its admission policies match.
    KAI_SCHEDULER.name: ("scheduling.run.ai", "Queue", "SchedulingShard", "kai-resource-reservation"),
    GPU_OPERATOR.name: ("ClusterPolicy", "NodeFeatureRule", "nfd.k8s-sigs.io"),
}
"""Names that must stand somewhere in each chart."""
_MOST_BYTES = 64 * 1024 * 1024


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    version: str


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    value_paths: dict[str, str]


@dataclass(frozen=True)
class Chart:
    """A chart as it lies on disk.

    Attributes:
        name: the chart's name.
        version: its version.
        values: its default values, those of sub-charts below their names.
        text: every file, for names that must stand somewhere.
    """

    name: str
    version: str
    values: Mapping[str, Any]
    text: str


@dataclass(frozen=True)
class Report:
    """What a chart is to this program.

    Attributes:
        pin: the version that is pinned.
        version: the chart's own.
        missing: value paths that a stack passes and the chart does not have, or has with another type.
        absent: names that stand nowhere in the chart.
        changes: how the chart's value paths differ from those of the pinned version.
    """

    pin: ChartPin
    version: str
    missing: tuple[str, ...]
    absent: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the version can be pinned as far as this check sees."""
        return not self.missing and not self.absent

    def text(self) -> str:
        """The report for a person."""
        lines = [f"{self.pin.name}: pinned {self.pin.version}, this chart {self.version}"]
        lines += [f"  missing: {path}" for path in self.missing]
        lines += [f"  absent:  {name}" for name in self.absent]
        lines += [f"  changed: {change}" for change in self.changes]
        lines.append(
            "  It has what the stacks pass to it." if self.fits else "  Do not pin it before these are solved."
        )
        return "\n".join(lines)


def check(chart: Chart, stacks: Mapping[str, StackSettings], facts: Path) -> Report:
    """Compare a chart with what the stacks pass to it, and with what is known of the pinned version.

    Args:
        chart: the newer chart.
        stacks: settings by the stack's name.
        facts: the folder with what is known of each pinned chart, as `NAME.json`.

    Raises:
        OperationError: if it is a chart that this program does not use.
    """
    if chart.name not in _PINS:
        raise OperationError(f"The chart is '{chart.name}'; this program uses {' and '.join(sorted(_PINS))}.")
    pin = _PINS[chart.name]
    build = {KAI_SCHEDULER.name: kai.release, GPU_OPERATOR.name: gpu_operator.release}[chart.name]
    missing: dict[str, None] = {}
    for stack, settings in sorted(stacks.items()):
        for path, value in _leaves(build(settings).values, chart.values):
            if problem := _problem(path, value, chart):
                missing[f"{path}: {problem} (stack {stack})"] = None
    return Report(
        pin=pin,
        version=chart.version,
        missing=tuple(missing),
        absent=tuple(name for name in NAMES[chart.name] if name not in chart.text),
        changes=tuple(_changes(_known(facts / f"{chart.name}.json"), dict(_types(chart.values)))),
    )


def read_chart(path: Path) -> Chart:
    """Read a chart's folder or archive.

    Raises:
        OperationError: if it is neither.
    """
    if not path.exists():
        raise OperationError(f"There is no {path}. Give a chart's folder or archive: make update CHART=path")
    files = _folder(path) if path.is_dir() else _archive(path)
    try:
        metadata = _Metadata.model_validate(yaml.safe_load(files.get("Chart.yaml", "")))
        values = yaml.safe_load(files.get("values.yaml", "")) or {}
        for name, text in files.items():
            parts = PurePosixPath(name).parts
            if len(parts) == 3 and parts[0] == "charts" and parts[2] == "values.yaml":  # noqa: PLR2004 - charts/NAME/values.yaml
                below = yaml.safe_load(text) or {}
                values[parts[1]] = _merged(below, values.get(parts[1], {}))
    except (yaml.YAMLError, ValidationError, AttributeError) as error:
        raise OperationError(
            f"{path} is not a Helm chart: it needs Chart.yaml (name, version) and values.yaml."
        ) from error
    return Chart(metadata.name, metadata.version, values, "\n".join(files.values()))


def _folder(path: Path) -> dict[str, str]:
    return {
        file.relative_to(path).as_posix(): file.read_text(encoding="utf-8", errors="replace")
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def _archive(path: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                size += member.size
                if size > _MOST_BYTES:
                    raise OperationError(f"{path} holds more than {_MOST_BYTES} bytes: it is no Helm chart.")
                if content is not None:
                    # The archive's one folder has the chart's name.
                    name = PurePosixPath(*PurePosixPath(member.name).parts[1:]).as_posix()
                    files[name] = content.read().decode("utf-8", errors="replace")
    except tarfile.TarError as error:
        raise OperationError(f"{path} is neither a folder nor a chart archive (.tgz).") from error
    return files


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if nested else value
    return result


def _leaves(values: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Paths and values, down to where the chart leaves the rest to the user: an empty map of its own."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        theirs = known.get(key)
        if isinstance(value, Mapping) and value and isinstance(theirs, Mapping) and theirs:
            yield from _leaves(value, theirs, f"{path}.")
        else:
            yield path, value


def _problem(path: str, value: object, chart: Chart) -> str | None:
    node: object = chart.values
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            # A template may read what the values do not list, as a whole path or within a part of it (`with`).
            leaf = re.escape(path.rsplit(".", 1)[-1])
            return None if re.search(rf"\.{leaf}\b", chart.text) else "no such value"
        node = node[key]
    if node is None or _kind(node) == _kind(value):
        return None
    return f"{_kind(node)}, where {_kind(value)} is passed"


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
        return _Facts.model_validate(json.loads(file.read_text(encoding="utf-8"))).value_paths
    except (FileNotFoundError, ValueError) as error:
        raise OperationError(f"What is known of the pinned chart can't be read from {file}: {error}") from error


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            # A map that was empty may have got content.
            if not any(other.startswith(f"{path}.") for other in new):
                yield f"{path} is gone"
        elif path not in old:
            yield f"{path} is new ({new[path]})"
        elif old[path] != new[path] and new[path] != "null":
            yield f"{path} was {old[path]}, is {new[path]}"
