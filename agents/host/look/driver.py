"""The NVIDIA driver: its version, the folder of its libraries, and its device files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.look import libraries
from agents.host.look.libraries import CUDA, NVML, Libraries

if TYPE_CHECKING:
    from agents.host.look.board import Board
    from agents.host.root import Root

_NVRM = re.compile(r"NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)*)\s")
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
    """What is known of the driver, and why.

    Attributes:
        version: Of its kernel module.
        libraries: Where its libraries are.
        reasons: Of version and library folder.
    """

    version: str | None
    libraries: Libraries
    reasons: tuple[str, ...]

    @property
    def library_folder(self) -> str | None:
        """The folder of NVML's library, else of CUDA's."""
        return self.libraries.folder_of(NVML) or self.libraries.folder_of(CUDA)


def detect(root: Root, board: Board, extra_folders: tuple[str, ...] = ()) -> Driver:
    """Look at the driver without calling it; its libraries also in the folders that are asked for."""
    version, why = _version(root)
    located = libraries.find(root, board, extra_folders)
    reasons = (why, located.where(CUDA), located.where(NVML))
    return Driver(version, located, reasons)


def devices(root: Root) -> list[str]:
    """The device files, sorted."""
    return sorted({path for pattern in _DEVICES for path in root.glob(pattern)})


def _version(root: Root) -> tuple[str | None, str]:
    match = _NVRM.search(root.read_text("/proc/driver/nvidia/version") or "")
    if match:
        return match.group(1), "the version is from /proc/driver/nvidia/version"
    module = (root.read_text("/sys/module/nvidia/version") or "").strip()
    if module:
        return module, "the version is from /sys/module/nvidia/version"
    return None, "no nvidia kernel module tells a version (the nvgpu module of older Jetsons has none)"
