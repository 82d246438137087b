"""NVIDIA's `nvidia-ctk`, always on a staged copy: it writes in place, and some mistakes it makes with exit status 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError
from agents.host.look.runtime import NVIDIA_FILE
from agents.host.look.toolkit import INSTALL

if TYPE_CHECKING:
    from pathlib import Path

    from agents.host.commands import Tools

_NEWER = "Install a newer NVIDIA Container Toolkit, then run again; nothing was changed."


def set_mode(tools: Tools, staged: Path, mode: str) -> bytes:
    """A toolkit configuration (a staged copy, or none yet) with another mode.

    Raises:
        HostError: nvidia-ctk is missing or fails.
    """
    _run(tools, "config", "--config-file", str(staged), "--set", f"nvidia-container-runtime.mode={mode}", "--in-place")
    return _result(staged)


def containerd_runtime(tools: Tools, source: Path, runtime: str, *, default: bool) -> bytes:
    """A drop-in with the `nvidia` runtime, as the default one or not, beside what a staged source file holds.

    It is in that file's version.

    Raises:
        HostError: nvidia-ctk is missing or fails.
    """
    arguments = ["runtime", "configure", "--runtime", "containerd", "--config", str(source)]
    arguments += ["--nvidia-runtime-path", runtime, *(["--nvidia-set-as-default"] if default else [])]
    help_text = _run(tools, "runtime", "configure", "--help")
    if "--drop-in-config" not in help_text:
        # Before 1.18 it edits the file itself and keeps all else that stands there: the source is a drop-in's content.
        _run(tools, *arguments)
        return _result(source)
    drop_in = source.parent / NVIDIA_FILE
    arguments += ["--drop-in-config", str(drop_in), "--config-source", "file"]
    _run(tools, *arguments)
    return _result(drop_in)


def docker_runtime(tools: Tools, staged: Path, runtime: str, *, default: bool) -> bytes:
    """A staged `daemon.json` (or none yet) with the `nvidia` runtime added.

    Raises:
        HostError: nvidia-ctk is missing or fails.
    """
    arguments = ["runtime", "configure", "--runtime", "docker", "--config", str(staged)]
    arguments += ["--nvidia-runtime-path", runtime]
    _run(tools, *arguments, *(["--nvidia-set-as-default"] if default else []))
    return _result(staged)


def cdi_specification(tools: Tools, staged: Path, mode: str, csv_files: list[str]) -> dict[str, Any]:
    """The host's CDI specification.

    Raises:
        HostError: nvidia-ctk is missing, fails, or prints no specification.
    """
    arguments = ["cdi", "generate", "--mode", mode, "--format", "json", "--output", str(staged)]
    for file in csv_files:
        arguments += ["--csv.file", file]
    if not tools.root.is_machine:
        folder = str(tools.root.path("/"))
        arguments += ["--driver-root", folder, "--dev-root", folder]
    _run(tools, *arguments)
    try:
        specification = json.loads(_result(staged).decode("utf-8"))
    except ValueError as error:
        raise HostError(f"`nvidia-ctk cdi generate` wrote no JSON: {error}.", _NEWER) from error
    if not isinstance(specification, dict) or not isinstance(specification.get("devices"), list):
        raise HostError("`nvidia-ctk cdi generate` wrote no list of devices.", _NEWER)
    return specification


def _run(tools: Tools, *arguments: str) -> str:
    program = tools.need("nvidia-ctk", INSTALL)
    finished = tools.check([program, *arguments], "Read its message; nothing was changed.", seconds=120)
    return finished.output + finished.errors


def _result(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HostError(f"`nvidia-ctk` wrote no {path.name}.", _NEWER) from error
