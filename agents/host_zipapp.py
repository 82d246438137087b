"""Builds the host agent as one file that any Python from 3.8 on runs: the package, NVIDIA's `pynvml` and `tomli`.

The same source gives the same bytes, so a stack that did not change changes nothing on its hosts.
"""

import importlib.metadata
import zipfile
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
_SHEBANG = b"#!/usr/bin/env python3\n"
# The oldest moment that a zip archive can tell.
_MOMENT = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o100644 << 16
_UNIX = 3


def build(path: Path) -> Path:
    """Write the zipapp and give its path.

    Raises:
        FileNotFoundError: An installed library lacks a file.
    """
    with path.open("wb") as file:
        file.write(_SHEBANG)
        # Stored, not deflated: another zlib would give other bytes.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(_files()):
                entry = zipfile.ZipInfo(name, _MOMENT)
                entry.create_system = _UNIX
                entry.external_attr = _READABLE
                archive.writestr(entry, content)
    path.chmod(0o755)
    return path


def _files() -> Iterator[tuple[str, bytes]]:
    yield "agents/__init__.py", (_HERE / "__init__.py").read_bytes()
    for source in (_HERE / "host").rglob("*.py"):
        yield f"agents/{source.relative_to(_HERE).as_posix()}", source.read_bytes()
    # One file for both ways of starting: `python3 kai-host.pyz` and `python3 -m agents.host`.
    yield "__main__.py", (_HERE / "host" / "__main__.py").read_bytes()
    yield "pynvml.py", _library("nvidia-ml-py", "pynvml.py")
    # The sources, which lie beside the compiled modules of a wheel: those are for one Python alone.
    for name in ("__init__", "_parser", "_re", "_types"):
        yield f"tomli/{name}.py", _library("tomli", f"tomli/{name}.py")


def _library(distribution: str, file: str) -> bytes:
    return Path(str(importlib.metadata.distribution(distribution).locate_file(file))).read_bytes()
