"""A Helm chart as it lies on disk: a folder, or an archive."""

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from operations.errors import OperationError

_MOST_BYTES = 64 * 1024 * 1024


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

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
    return Chart(path, metadata.name, metadata.version, values, "\n".join(files.values()))


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
    except (OSError, EOFError, zlib.error) as error:
        raise OperationError(f"{path} can't be read to its end: {error}. Fetch it anew.") from error
    return files


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if nested else value
    return result
