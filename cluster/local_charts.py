"""Charts that lie on this machine, looked at before Helm is: which chart is it?"""

import re
import tarfile
from pathlib import Path, PurePosixPath

_NAME = re.compile(r"""^name:\s*["']?([^\s"'#]+)""", re.MULTILINE)
_MOST_BYTES = 64 * 1024


def chart_name(path: Path) -> str | None:
    """The name in the Chart.yaml of a chart's folder or archive; None where none can be read, which Helm explains."""
    try:
        text = _of_folder(path) if path.is_dir() else _of_archive(path)
    except (OSError, EOFError, tarfile.TarError):
        return None
    found = _NAME.search(text.decode("utf-8", errors="replace"))
    return None if found is None else found[1]


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
