"""The GPUs as NVML tells them, whatever its library does."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agents.host.driver import LIBRARY
from agents.host.errors import HostError

if TYPE_CHECKING:
    from agents.host.commands import Finished, Tools
    from agents.host.driver import Driver

_SECONDS = 30
_READER = "import sys; sys.path.insert(0, sys.argv[1]); from agents.host.nvml_reader import main; main()"
_BYTES_PER_MIB = 1024 * 1024


@dataclass(frozen=True)
class NvmlGpu:
    """One GPU; the memory is None where NVML does not know it (unified memory)."""

    index: int
    uuid: str | None
    name: str
    memory_mib: int | None


@dataclass(frozen=True)
class Nvml:
    """NVML's answer, or why there is none."""

    reason: str | None
    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it answered."""
        return self.reason is None


def ask(tools: Tools, driver: Driver, *, jetpack: str | None) -> Nvml:
    """Asks NVML in a child process, with the driver's folder on the loader's path; never fails."""
    if jetpack == "5":
        return Nvml("JetPack 5 has no NVML; fractions need JetPack 6 or later")
    folder = driver.library_folder
    # The loader would find this machine's own library for a prepared root that has none.
    if not tools.root.is_machine and not tools.root.exists(f"{folder}/{LIBRARY}"):
        return Nvml(driver.reasons[-1])
    folders = [str(tools.root.path(folder))] if folder else []
    inherited = os.environ.get("LD_LIBRARY_PATH")
    variables = {"LD_LIBRARY_PATH": os.pathsep.join([*folders, *([inherited] if inherited else [])])}
    # The zipapp, or the folder that holds the package `agents`.
    home = Path(__file__).parents[2]
    try:
        finished = tools.run([sys.executable, "-I", "-c", _READER, str(home)], seconds=_SECONDS, environment=variables)
    except HostError:
        return Nvml("NVML's library does not answer: it hangs")
    return _answer(finished)


def _answer(finished: Finished) -> Nvml:
    if finished.code < 0:
        return Nvml(f"NVML's library crashed with {signal.Signals(-finished.code).name}")
    try:
        data = json.loads(finished.output)
        if not data["ok"]:
            return Nvml(str(data["reason"]))
        gpus = tuple(
            NvmlGpu(gpu["index"], gpu["uuid"], gpu["name"], (gpu["memory_bytes"] or 0) // _BYTES_PER_MIB or None)
            for gpu in data["gpus"]
        )
        return Nvml(None, data["driver"], gpus)
    except (ValueError, KeyError, TypeError):
        return Nvml(f"NVML's library can't be used: {finished.trouble.splitlines()[-1]}")
