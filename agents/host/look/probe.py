"""What a host is: everything that `probe` answers, each conclusion with its reasons. Changes nothing, needs no root."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError
from agents.host.look import board, cuda, distribution, driver, gpus, kernel, nvml, toolkit
from agents.host.look.runtime import DOCKER_CONFIG

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.look.board import Board
    from agents.host.look.driver import Driver
    from agents.host.look.nvml import Nvml

_MEM_TOTAL = re.compile(r"^MemTotal:\s*(\d+)\s*kB", re.MULTILINE)
_KIB_PER_MIB = 1024
_VERSION = 2
"""Of the answer: 1 had neither `libraries` nor `kernel`."""


@dataclass(frozen=True)
class Hardware:
    """The board, its driver and NVML's answer."""

    board: Board
    driver: Driver
    nvml: Nvml


def hardware(tools: Tools, folders: tuple[str, ...] = ()) -> Hardware:
    """Look at the hardware, and in further folders for the driver; NVML may correct the first view of the board."""
    first = board.detect(tools.root)
    host_driver = driver.detect(tools.root, first, folders)
    answer = nvml.ask(tools, host_driver, jetpack=first.jetpack)
    return Hardware(board.detect(tools.root, tuple(gpu.name for gpu in answer.gpus)), host_driver, answer)


def probe(tools: Tools, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """The probe's answer; what is missing on the host is missing in the answer, never a failure.

    Args:
        tools: The host's programs.
        folders: Where the driver's libraries are looked for too.
    """
    machine = hardware(tools, folders)
    signs = distribution.detect(tools.root)
    installed = toolkit.detect(tools)
    total = _memory_mib(tools)
    by_cuda = cuda.ask(tools, machine.driver, machine.nvml)
    return {
        "version": _VERSION,
        "architecture": machine.board.architecture,
        "python": platform.python_version(),
        "platform": {
            "kind": machine.board.kind,
            "generation": machine.board.generation,
            "model": machine.board.model,
            "jetpack": machine.board.jetpack,
            "reasons": list(machine.board.reasons),
        },
        "driver": {
            "version": machine.driver.version or machine.nvml.driver,
            "library_folder": machine.driver.library_folder,
            "reasons": list(machine.driver.reasons),
        },
        "libraries": asdict(machine.driver.libraries),
        "kernel": asdict(kernel.review(tools.root)),
        "devices": driver.devices(tools.root),
        "gpus": gpus.listed(tools.root, machine.board, machine.nvml, by_cuda, total_mib=total),
        "nvml": {"ok": machine.nvml.ok, "reason": machine.nvml.reason},
        "cuda": {"ok": by_cuda.ok, "reason": by_cuda.reason},
        "memory": {"total_mib": total},
        "runtimes": _runtimes(tools, signs.name),
        "kubernetes": {
            "distribution": signs.name,
            "version": distribution.version(tools, signs.name),
            "reasons": [reason for _, reason in signs.reasons] or ["no sign of a Kubernetes distribution"],
        },
        "toolkit": {
            "version": installed.version,
            "mode": installed.mode,
            "config": installed.config,
            "reasons": list(installed.reasons),
        },
        "user": {"uid": os.geteuid()},
    }


def _memory_mib(tools: Tools) -> int:
    match = _MEM_TOTAL.search(tools.root.read_text("/proc/meminfo") or "")
    return int(match.group(1)) // _KIB_PER_MIB if match else 0


def _runtimes(tools: Tools, name: str) -> list[dict[str, Any]]:
    runtimes = []
    layout = _layout(tools, name)
    program = layout.program(tools, "containerd") if layout else tools.find("containerd")
    config = layout.effective if layout else "/etc/containerd/config.toml"
    if program or tools.root.exists(config):
        reasons = [f"`{program}` is its program" if program else "its program is not found"]
        reasons.append(f"{config} {'exists' if tools.root.exists(config) else 'does not exist'}")
        reasons.extend([f"Kubernetes is {name}"] if layout else [])
        runtimes.append(_runtime("containerd", _containerd_version(tools, program), config, reasons))
    docker = tools.find("dockerd") or tools.find("docker")
    config = DOCKER_CONFIG
    if docker or tools.root.exists(config):
        reasons = [f"`{docker}` is its program" if docker else "its program is not found"]
        reasons.append(f"{config} {'exists' if tools.root.exists(config) else 'does not exist'}")
        text = tools.output_of("docker", "--version") or tools.output_of("dockerd", "--version") or ""
        runtimes.append(_runtime("docker", _number(text), config, reasons))
    return runtimes


def _runtime(name: str, version: str | None, config: str, reasons: list[str]) -> dict[str, Any]:
    return {"name": name, "version": version, "config": config, "reasons": reasons}


def _layout(tools: Tools, name: str) -> distribution.Layout | None:
    if name == "none":
        return None
    try:
        return distribution.layout(tools.root, name)
    except HostError:
        return None


def _containerd_version(tools: Tools, program: str | None) -> str | None:
    return _number(tools.output_of(program, "--version") or "") if program else None


def _number(text: str) -> str | None:
    match = re.search(r"v?(\d+\.\d+\.\d+[^\s,]*)", text)
    return match.group(1) if match else None
