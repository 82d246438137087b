"""The driver's files as each release of L4T lays them out, on a prepared Jetson.

Read from the packages' contents (nvidia-l4t-nvml, nvidia-l4t-cuda, nvidia-l4t-cuda-nvgpu and -openrm, nvidia-l4t-core)
and from what R39's service nv-load-gpu-libs leaves when the board has started.
"""

import shutil
from enum import StrEnum, unique
from pathlib import Path

from tests.support.hosts.roots import ELF, Board, HostRoot, prepare

TRIPLET = "/usr/lib/aarch64-linux-gnu"
NVIDIA = f"{TRIPLET}/nvidia"
VARIANTS = "/opt/nvidia/l4t-gpu-libs"
LOADER = "/etc/ld.so.conf.d/000-nvidia-gpu-libs.conf"
CHOSEN = "/run/nvidia-gpu-driver-active"
CSV = "/etc/nvidia-container-runtime/host-files-for-container.d"
LIBRARY = ELF + bytes(1000)


@unique
class L4t(StrEnum):
    """A release, with the driver that the board's start has chosen where there are two."""

    R36 = "R36"
    R38 = "R38"
    R39_NVGPU = "R39-nvgpu"
    R39_OPENRM = "R39-openrm"

    @property
    def variant(self) -> str | None:
        """The chosen driver, None where there is one only."""
        return self.partition("-")[2] or None

    @property
    def board(self) -> Board:
        """A board that it runs on."""
        return Board.JETPACK_6 if self in {L4t.R36, L4t.R39_NVGPU} else Board.JETPACK_7

    @property
    def cuda_folder(self) -> str:
        """The folder of CUDA's driver library."""
        return NVIDIA if self.variant is None else f"{VARIANTS}/{self.variant}"


def jetson(folder: Path, release: L4t) -> HostRoot:
    """A Jetson with a release's driver."""
    host = prepare(folder, release.board)
    number = release.partition("-")[0]
    host.write("/etc/nv_tegra_release", f"# {number} (release), REVISION: 2.0, GCID: 1, BOARD: generic\n")
    shutil.rmtree(host.path(f"{TRIPLET}/tegra"))
    host.write(f"{NVIDIA}/libnvidia-ml.so.1", LIBRARY)
    link(host, f"{TRIPLET}/tegra", "nvidia")
    host.write("/etc/ld.so.conf.d/aarch64-linux-gnu.conf", f"# Multiarch support\n{TRIPLET}\n")
    host.write("/etc/ld.so.conf.d/nvidia-tegra.conf", f"{TRIPLET}/tegra\n")
    rows = [f"lib, {NVIDIA}/libnvidia-ml.so.1"]
    if release.variant is None:
        _cuda(host, NVIDIA)
        rows.append(f"lib, {NVIDIA}/libcuda.so.1.1")
    else:
        # Both are installed, whatever the chip.
        for variant in ("nvgpu", "openrm"):
            _cuda(host, f"{VARIANTS}/{variant}")
        host.write(LOADER, f"{release.cuda_folder}\n")
        host.write(CHOSEN, f"{release.variant}-l4t\n")
        for name in ("libcuda.so", "libcuda.so.1"):
            link(host, f"{TRIPLET}/{name}", f"{release.cuda_folder}/libcuda.so.1.1")
        host.write(f"{CSV}/l4t.csv", f"lib, {release.cuda_folder}/libcuda.so.1.1\n")
    host.write(f"{CSV}/drivers.csv", "\n".join(rows) + "\n")
    return host


def link(host: HostRoot, path: str, target: str) -> None:
    """Put a link at a host path."""
    host.path(path).parent.mkdir(parents=True, exist_ok=True)
    host.path(path).unlink(missing_ok=True)
    host.path(path).symlink_to(target)


def _cuda(host: HostRoot, folder: str) -> None:
    host.write(f"{folder}/libcuda.so.1.1", LIBRARY)
    link(host, f"{folder}/libcuda.so.1", "libcuda.so.1.1")
