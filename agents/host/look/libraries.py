"""Where the driver's libraries really are: every place that the host names, with what is there once links are followed.

JetPack 7.2 keeps CUDA's library for both of its drivers in /opt/nvidia/l4t-gpu-libs and chooses one at each start of
the board, so a name says nothing: files without a byte and links to nowhere stand in for libraries.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.look.toolkit import CSV_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents.host.look.board import Board
    from agents.host.root import Root

NVML = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"
_NAMES = {NVML: (NVML,), CUDA: (CUDA, "libcuda.so.1.1")}
"""A library's file names, the one that programs load first. Tegra's CUDA has the second (L4T R36 to R39)."""
_TEGRA_FOLDERS = ("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra")
_VARIANTS = "/opt/nvidia/l4t-gpu-libs"
"""CUDA's library since L4T R39: a folder `nvgpu` (Orin) and one `openrm` (Thor), both on every board."""
_CHOSEN = "/run/nvidia-gpu-driver-active"
_VARIANT = re.compile(r"nvgpu|openrm")
_LOADER = "/etc/ld.so.conf.d/*.conf"
_TOOLKIT = (f"{CSV_FOLDER}/drivers.csv", f"{CSV_FOLDER}/l4t.csv")
CDI = ("/etc/cdi/*", "/var/run/cdi/*")
"""The folders in which container runtimes look for CDI specifications."""
_ROW = re.compile(r"^\s*(?:lib|sym)\s*,\s*(/\S+)", re.MULTILINE)
_CDI_PATH = re.compile(r"""["']?hostPath["']?\s*:\s*["']?(/[^"'\s,}]+)""")
_ELF = b"\x7fELF"
LIBRARY, STUB, DANGLING = "library", "stub", "dangling"


@dataclass(frozen=True)
class Folder:
    """A folder in which libraries are looked for.

    Attributes:
        path: As the host names it.
        real: Without links; None where it is not there.
        named_by: The files that name it; none for a usual one.
    """

    path: str
    real: str | None
    named_by: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A file with a library's name.

    Attributes:
        folder: Where it is, as the host names the folder.
        path: The file, as the host names it.
        real: What it is without links; where a link leads to nothing, what is missing.
        bytes: Its size; None where it is missing.
        state: One of `LIBRARY`, `STUB` (a file that is none) and `DANGLING`.
    """

    folder: str
    path: str
    real: str
    bytes: int | None
    state: str


@dataclass(frozen=True)
class Libraries:
    """What was found.

    Attributes:
        folders: Where it was looked, in this order.
        nvml: The places of NVML's library.
        cuda: Those of CUDA's driver library.
        findings: What is wrong with them, and what only looks as if.
    """

    folders: tuple[Folder, ...]
    nvml: tuple[Place, ...]
    cuda: tuple[Place, ...]
    findings: tuple[str, ...]

    def folder_of(self, name: str) -> str | None:
        """The first folder with a library, without links."""
        real = {folder.path: folder.real for folder in self.folders}
        return next((real[place.folder] for place in self._places(name) if place.state == LIBRARY), None)

    def file_of(self, name: str) -> str | None:
        """The first library, as the host names it."""
        return next((place.path for place in self._places(name) if place.state == LIBRARY), None)

    def where(self, name: str) -> str:
        """Say where a library is, or what there is in its place."""
        folder = self.folder_of(name)
        if folder is not None:
            return f"{name} is in {folder}"
        instead = "; ".join(_defect(place) for place in self._places(name))
        folders = ", ".join(candidate.path for candidate in self.folders)
        return f"{name} is in none of {folders}" + (f": {instead}" if instead else "")

    def _places(self, name: str) -> tuple[Place, ...]:
        return self.nvml if name == NVML else self.cuda


def find(root: Root, board: Board, extra_folders: tuple[str, ...] = ()) -> Libraries:
    """Look in every folder that is usual on the board, that the host's own files name, and that is asked for.

    On Tegra, the loader's order comes first: its files are what the board's start chooses a driver by.

    Args:
        root: The host's tree.
        board: What the host is.
        extra_folders: Further folders.
    """
    usual = _usual(board)
    named = [(path, "") for path in usual]
    toolkit: dict[str, str] = {}
    if board.kind == "tegra":
        toolkit = dict(_named_by_toolkit(root))
        named = [
            *_named_by_loader(root),
            *_named_by_start(root),
            *named,
            *((path.rpartition("/")[0], by) for path, by in toolkit.items()),
        ]
    named += [(path, "") for path in extra_folders]
    by_path: dict[str, list[str]] = {}
    for path, by in named:
        files = by_path.setdefault(path, [])
        if by and by not in files:
            files.append(by)
    folders = tuple(Folder(path, _real_folder(root, path), tuple(by)) for path, by in by_path.items())
    nvml, cuda = (tuple(_places(root, folders, name)) for name in (NVML, CUDA))
    return Libraries(folders, nvml, cuda, tuple(_findings(root, board, folders, (*nvml, *cuda), toolkit)))


def _usual(board: Board) -> tuple[str, ...]:
    triplet = "aarch64-linux-gnu" if board.architecture == "aarch64" else "x86_64-linux-gnu"
    ordinary = (f"/usr/lib/{triplet}", "/usr/lib64", "/usr/lib/wsl/lib")
    return (*_TEGRA_FOLDERS, *ordinary) if board.kind == "tegra" else ordinary


def _named_by_loader(root: Root) -> Iterator[tuple[str, str]]:
    for file in root.glob(_LOADER):
        for line in (root.read_text(file) or "").splitlines():
            folder = line.partition("#")[0].strip()
            if folder.startswith("/") and len(folder.split()) == 1:
                yield folder.rstrip("/"), file


def _named_by_start(root: Root) -> Iterator[tuple[str, str]]:
    variant = _VARIANT.search(root.read_text(_CHOSEN) or "")
    if variant:
        yield f"{_VARIANTS}/{variant.group()}", _CHOSEN


def _named_by_toolkit(root: Root) -> Iterator[tuple[str, str]]:
    """The libraries that containers get: the toolkit's lists, and CDI specifications, YAML or JSON alike."""
    names = {name for aliases in _NAMES.values() for name in aliases}
    for pattern, row in (*((file, _ROW) for file in _TOOLKIT), *((folder, _CDI_PATH) for folder in CDI)):
        for file in root.glob(pattern):
            for path in row.findall(root.read_text(file) or ""):
                if path.rpartition("/")[2] in names:
                    yield path, file


def _real_folder(root: Root, path: str) -> str | None:
    real = root.real(path)
    return real if real is not None and root.path(real).is_dir() else None


def _places(root: Root, folders: tuple[Folder, ...], name: str) -> Iterator[Place]:
    """Every file with a library's name; a folder under two names is looked at once, under the first."""
    seen = set()
    for folder in folders:
        if folder.real is None or folder.real in seen:
            continue
        seen.add(folder.real)
        for alias in _NAMES[name]:
            place = _place(root, folder.path, alias)
            if place is not None:
                yield place
                break


def _place(root: Root, folder: str, name: str) -> Place | None:
    path = f"{folder}/{name}"
    if not os.path.lexists(str(root.path(root.real(folder) or folder) / name)):
        return None
    real = root.real(path)
    if real is None:
        return Place(folder, path, path, None, DANGLING)
    file = root.path(real)
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return Place(folder, path, real, 0, STUB)
        with file.open("rb") as content:
            state = LIBRARY if content.read(len(_ELF)) == _ELF else STUB
    except FileNotFoundError:
        return Place(folder, path, real, None, DANGLING)
    except OSError:
        # The agent's user may not read it; the driver's libraries are for everybody.
        return Place(folder, path, real, 0, STUB)
    return Place(folder, path, real, status.st_size, state)


def _defect(place: Place) -> str:
    if place.state == DANGLING:
        return f"{place.path} is a link to {place.real}, which is not there"
    return f"{place.path} has {place.bytes} bytes and is no library"


def _findings(
    root: Root, board: Board, folders: tuple[Folder, ...], places: tuple[Place, ...], toolkit: dict[str, str]
) -> Iterator[str]:
    yield from (_defect(place) for place in places if place.state != LIBRARY)
    if board.kind != "tegra":
        return
    variants = [folder for folder in folders if folder.path.startswith(f"{_VARIANTS}/") and folder.named_by]
    for folder in variants:
        if folder.real is None:
            yield f"{folder.path} is not there; it is named by {', '.join(folder.named_by)}"
    if len(variants) > 1:
        drivers = "; ".join(f"{folder.path} by {', '.join(folder.named_by)}" for folder in variants)
        yield f"the host's files name more than one driver: {drivers}"
    for path, file in toolkit.items():
        real = root.real(path)
        if real is None or not root.path(real).exists():
            yield f"{file} gives containers {path}, which is not there"
