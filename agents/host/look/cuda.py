"""The GPUs as CUDA's driver library tells them: the memory that NVML does not know where it is the host's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.look import driver_child
from agents.host.look.driver_child import Library
from agents.host.look.libraries import CUDA

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.look.driver import Driver
    from agents.host.look.nvml import Nvml

_LIBRARY = Library("CUDA", "cuda_reader", 20)
_BYTES_PER_MIB = 1024 * 1024


@dataclass(frozen=True)
class CudaGpu:
    """One GPU; `uuid` is without the `GPU-` that other programs put before it."""

    uuid: str | None
    name: str
    memory_mib: int | None
    why_no_memory: str | None


@dataclass(frozen=True)
class Cuda:
    """CUDA's answer, or why there is none."""

    reason: str | None
    gpus: tuple[CudaGpu, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it answered."""
        return self.reason is None


def ask(tools: Tools, driver: Driver, nvml: Nvml) -> Cuda:
    """Ask CUDA in a child process where NVML left a question open; never fails.

    Its start wakes every GPU up, which takes seconds each on a server: it is not asked for what is known.
    """
    if nvml.gpus and all(gpu.memory_mib is not None for gpu in nvml.gpus):
        return Cuda("not asked, since NVML tells the memory of every GPU")
    if nvml.hangs:
        return Cuda("not asked, since the driver does not answer NVML either")
    folder, file = driver.libraries.folder_of(CUDA), driver.libraries.file_of(CUDA)
    if folder is None or file is None:
        return Cuda(driver.libraries.where(CUDA))
    data = driver_child.ask(tools, _LIBRARY, folder, str(tools.root.path(tools.root.real(file) or file)))
    if not data["ok"]:
        return Cuda(str(data["reason"]))
    gpus = tuple(
        CudaGpu(gpu["uuid"], gpu["name"], (gpu["memory_bytes"] or 0) // _BYTES_PER_MIB or None, gpu["why_no_memory"])
        for gpu in data["gpus"]
    )
    return Cuda(None, gpus)
