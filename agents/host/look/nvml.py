"""The GPUs as NVML tells them, whatever its library does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.look import driver_child
from agents.host.look.driver_child import Library
from agents.host.look.libraries import NVML

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.look.driver import Driver

_LIBRARY = Library("NVML", "nvml_reader", 30)
_BYTES_PER_MIB = 1024 * 1024


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU; the memory is None where NVML does not know it (unified memory), which `why_no_memory` explains."""

    index: int
    uuid: str | None
    name: str
    memory_mib: int | None
    why_no_memory: str | None


@dataclass(frozen=True)
class Nvml:
    """NVML's answer, or why there is none."""

    reason: str | None
    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    hangs: bool = False

    @property
    def ok(self) -> bool:
        """Whether it answered."""
        return self.reason is None


def ask(tools: Tools, driver: Driver, *, jetpack: str | None) -> Nvml:
    """Ask NVML in a child process, with the driver's folder on the loader's path; never fails."""
    if jetpack == "5":
        return Nvml("JetPack 5 has no NVML; fractions need JetPack 6 or later")
    folder = driver.libraries.folder_of(NVML)
    # The loader would find this machine's own library for a prepared root that has none.
    if folder is None and not tools.root.is_machine:
        return Nvml(driver.libraries.where(NVML))
    file = driver.libraries.file_of(NVML)
    own = [] if tools.root.is_machine or file is None else [str(tools.root.path(tools.root.real(file) or file))]
    data = driver_child.ask(tools, _LIBRARY, folder, *own)
    if not data["ok"]:
        return Nvml(str(data["reason"]), hangs=bool(data.get("hangs")))
    gpus = tuple(
        NvmlGpu(
            gpu["index"],
            gpu["uuid"],
            gpu["name"],
            (gpu["memory_bytes"] or 0) // _BYTES_PER_MIB or None,
            gpu["why_no_memory"],
        )
        for gpu in data["gpus"]
    )
    return Nvml(None, data["driver"], gpus)
