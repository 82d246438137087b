"""The NVIDIA driver: its version, the folder of its libraries, and its device files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.host.look.board import Board
    from agents.host.root import Root

_NVRM = re.compile(r"NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)*)\s")
NVML = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"
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
    """What is known of the driver, and why.

    Attributes:
        version: Of its kernel module.
        library_folder: The folder of NVML's library, else of CUDA's.
        cuda_folder: The folder of CUDA's library, which on Tegra may be another one.
        folders: Where both were looked for.
        reasons: Of version and library folder.
    """

    version: str | None
    library_folder: str | None
    cuda_folder: str | None
    folders: tuple[str, ...]
    reasons: tuple[str, ...]


def detect(root: Root, board: Board) -> Driver:
    """Looks at the driver without calling it."""
    version, why = _version(root)
    folders = library_folders(board)
    nvml, cuda = (_folder_of(root, library, folders) for library in (NVML, CUDA))
    return Driver(version, nvml or cuda, cuda, folders, (why, _where(nvml, cuda, folders)))


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


def _folder_of(root: Root, library: str, folders: tuple[str, ...]) -> str | None:
    return next((folder for folder in folders if root.exists(f"{folder}/{library}")), None)


def _where(nvml: str | None, cuda: str | None, folders: tuple[str, ...]) -> str:
    looked = ", ".join(folders)
    if nvml is not None:
        return f"{NVML} is in {nvml}"
    if cuda is not None:
        return f"{CUDA} is in {cuda}; {NVML} is in none of {looked}"
    return f"neither {NVML} nor {CUDA} is in {looked}"
