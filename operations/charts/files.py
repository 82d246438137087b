"""A Helm chart as it lies on disk: a folder, or an archive."""

import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel

from operations.errors import OperationError

_MOST_BYTES = 64 * 1024 * 1024
_GIVE = "Give a chart's folder or archive."

# The C loader where there is one: ten times as fast, and definitions are long.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HelmYaml: type[yaml.SafeLoader] = type(
    "HelmYaml",
    (_Loader,),
    {
        "yaml_implicit_resolvers": {
            letter: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:timestamp"]
            for letter, forms in _Loader.yaml_implicit_resolvers.items()
        }
    },
)
"""Reads YAML as Helm does, for which a date is a text."""
NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What it raises: also at numbers of thousands of digits, and at what is nested too deep."""


class _Metadata(BaseModel, extra="ignore", frozen=True):
    name: str
    version: str


@dataclass(frozen=True)
class Chart:
    """A chart as it lies on disk.

    Attributes:
        path: its folder or archive.
        name: the chart's name.
        version: its version.
        values: its default values, those of sub-charts below their names.
        text: every file, for names that must stand somewhere.
    """

    path: Path
    name: str
    version: str
    values: Mapping[str, Any]
    text: str


def read_chart(path: Path) -> Chart:
    """Read a chart's folder or archive.

    Raises:
        OperationError: if it is neither.
    """
    # zsh hands on `CHART=~/chart.tgz` as it is.
    path = Path(os.path.expanduser(path))
    if not path.exists():
        raise OperationError(f"There is no {path}. {_GIVE}")
    files = _folder(path) if path.is_dir() else _archive(path)
    try:
        metadata = _Metadata.model_validate(_mapping(files.get("Chart.yaml", "")))
        values = _mapping(files.get("values.yaml", ""))
        for name, text in files.items():
            parts = PurePosixPath(name).parts
            if len(parts) == 3 and parts[0] == "charts" and parts[2] == "values.yaml":  # noqa: PLR2004 - charts/NAME/values.yaml
                above = values.get(parts[1])
                # As for Helm, nothing is said where only comments are.
                values[parts[1]] = _merged(_mapping(text), above if isinstance(above, Mapping) else {})
    except (*NOT_YAML, TypeError) as error:
        raise OperationError(
            f"{path} is not a Helm chart: it needs Chart.yaml (name, version) and values.yaml. {_GIVE}"
        ) from error
    return Chart(path, metadata.name, metadata.version, values, "\n".join(files.values()))


def _mapping(text: str) -> dict[str, Any]:
    content = yaml.load(text, HelmYaml) or {}  # noqa: S506 - a safe one
    if not isinstance(content, dict):
        raise TypeError
    return content


def _folder(path: Path) -> dict[str, str]:
    if not (path / "Chart.yaml").is_file():
        # Whatever lies there is not read: without CHART, make names this folder.
        return {}
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
    except (OSError, EOFError, zlib.error) as error:
        raise OperationError(f"{path} can't be read to its end: {error}. Fetch it anew.") from error
    return files


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if nested else value
    return result
