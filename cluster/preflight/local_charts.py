"""Charts that lie on this machine, looked at before Helm is: which chart is it?"""

import tarfile
from pathlib import Path, PurePosixPath

import yaml

_MOST_BYTES = 64 * 1024


def chart_name(path: Path) -> str | None:
    """The name in the Chart.yaml of a chart's folder or archive; None where none can be read, which Helm explains."""
    try:
        content = yaml.safe_load(_of_folder(path) if path.is_dir() else _of_archive(path))
    except (OSError, EOFError, ValueError, tarfile.TarError, yaml.YAMLError):
        return None
    name = content.get("name") if isinstance(content, dict) else None
    return name if isinstance(name, str) else None


def _of_folder(path: Path) -> bytes:
    with (path / "Chart.yaml").open("rb") as file:
        return file.read(_MOST_BYTES)


def _of_archive(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        for member in archive:
            # The archive's one folder has the chart's name; those of sub-charts lie deeper.
            if member.isfile() and PurePosixPath(member.name).parts[1:] == ("Chart.yaml",):
                content = archive.extractfile(member)
                return b"" if content is None else content.read(_MOST_BYTES)
    return b""
