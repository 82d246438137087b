"""Charts that lie on this machine, looked at before Helm is: which chart is it?"""

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml

from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER

_MOST_BYTES = 64 * 1024


def wrong_charts(settings: StackSettings, folder: Path) -> Iterator[Finding]:
    """Local charts that are not where the stack says, or are another one's; Helm itself looks for remote ones."""
    charts = (("gpu_operator", settings.gpu_operator.chart, GPU_OPERATOR), ("kai", settings.kai.chart, KAI_SCHEDULER))
    for key, chart, pin in charts:
        if not chart.is_local or chart.source is None or (key == "gpu_operator" and not settings.gpu_operator.install):
            continue
        path = folder / chart.source
        if not path.is_file() and not (path / "Chart.yaml").is_file():
            yield Finding(
                f"{key}.chart.source is {path}, which is neither a chart folder (with Chart.yaml) nor an archive.",
                "Correct the path, or remove 'source' to use the official chart.",
            )
        elif (name := chart_name(path)) not in {pin.name, None}:
            yield Finding(
                f"{key}.chart.source is {path}, which is the chart '{name}' and not '{pin.name}'.",
                f"Give the path of the chart '{pin.name}', or remove 'source' to use the official one.",
            )


def chart_name(path: Path) -> str | None:
    """The name in the Chart.yaml of a chart's folder or archive; None where none can be read, which Helm explains."""
    try:
        content = yaml.safe_load(_of_folder(path) if path.is_dir() else _of_archive(path))
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, yaml.YAMLError):
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
