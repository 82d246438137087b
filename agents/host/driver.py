"""The NVIDIA driver: its version, the folder of its libraries, and its device files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.host.board import Board
    from agents.host.root import Root

_NVRM = re.compile(r"NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)*)\s")
LIBRARY = "libnvidia-ml.so.1"
"""NVML."""
_CUDA = "libcuda.so.1"
_TEGRA_FOLDERS = ("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra")
_DEVICES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm*",
    "/dev/nvmap",
    "/dev/nvhost-*",
    "/dev/nvgpu/igpu0/*",
)


@dataclass(frozen=True)
class Driver:
    """What is known of the driver, and why."""

    version: str | None
    library_folder: str | None
    reasons: tuple[str, ...]


def detect(root: Root, board: Board) -> Driver:
    """Looks at the driver without calling it."""
    version, why = _version(root)
    folder, where = _library_folder(root, library_folders(board))
    return Driver(version, folder, (why, where))


def library_folders(board: Board) -> tuple[str, ...]:
    """Gives where a platform keeps the driver's libraries, the likeliest first; the loader does not know Tegra's."""
    triplet = "aarch64-linux-gnu" if board.architecture == "aarch64" else "x86_64-linux-gnu"
    ordinary = (f"/usr/lib/{triplet}", "/usr/lib64", "/usr/lib/wsl/lib")
    return (*_TEGRA_FOLDERS, *ordinary) if board.kind == "tegra" else ordinary


def devices(root: Root) -> list[str]:
    """Gives the device files, sorted."""
    return sorted({path for pattern in _DEVICES for path in root.glob(pattern)})


def _version(root: Root) -> tuple[str | None, str]:
    found = _NVRM.search(root.read_text("/proc/driver/nvidia/version") or "")
    if found:
        return found.group(1), "the version is from /proc/driver/nvidia/version"
    module = (root.read_text("/sys/module/nvidia/version") or "").strip()
    if module:
        return module, "the version is from /sys/module/nvidia/version"
    return None, "no nvidia kernel module tells a version (the nvgpu module of older Jetsons has none)"


def _library_folder(root: Root, folders: tuple[str, ...]) -> tuple[str | None, str]:
    for library in (LIBRARY, _CUDA):
        for folder in folders:
            if root.exists(f"{folder}/{library}"):
                lacking = "" if library == LIBRARY else f"; {LIBRARY} is in none of {', '.join(folders)}"
                return folder, f"{library} is in {folder}{lacking}"
    return None, f"neither {LIBRARY} nor {_CUDA} is in {', '.join(folders)}"
