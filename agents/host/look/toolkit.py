"""The NVIDIA Container Toolkit on the host: its programs, version and mode."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomli  # Packed into the one file: Python has its own from 3.11 on only, and hosts have older ones.

from agents.host.errors import HostError

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.root import Root

CONFIG = "/etc/nvidia-container-runtime/config.toml"
CSV_FOLDER = "/etc/nvidia-container-runtime/host-files-for-container.d"
"""Lists of a Jetson's files and devices, in the modes that read them."""
OPERATOR_FOLDER = "/usr/local/nvidia/toolkit"
"""Where the GPU Operator's toolkit container installs its own; k3s and rke2 prefer it over /usr/bin."""
INSTALL = (
    "Install the NVIDIA Container Toolkit on the host: `apt-get install nvidia-container` on Jetson, else the package "
    "nvidia-container-toolkit."
)
_RUNTIME = "nvidia-container-runtime"
RUNTIME_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/bin")
_IGNORES = re.compile(r"^\s*accept-nvidia-visible-devices-envvar-when-unprivileged\s*=\s*false\b", re.MULTILINE)
_MODE = re.compile(r"""^\s*mode\s*=\s*["']([^"']*)["']""", re.MULTILINE)
_SECTION = re.compile(r"^\s*\[nvidia-container-runtime\]\s*$(.*?)(?=^\s*\[|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Toolkit:
    """What is installed; None for what is not there or does not tell."""

    version: str | None
    mode: str | None
    config: str | None
    reasons: tuple[str, ...]


def detect(tools: Tools) -> Toolkit:
    """Look at the host's own toolkit."""
    match = re.search(r"version\s+v?(\d+\.\d+\.\d+\S*)", tools.output_of("nvidia-ctk", "--version") or "")
    config = tools.root.read_text(CONFIG)
    mode = mode_of(config)
    if match:
        program = "nvidia-ctk tells its version"
    else:
        program = "nvidia-ctk tells no version" if tools.find("nvidia-ctk") else "nvidia-ctk is not found"
    if config is None:
        file = f"{CONFIG} does not exist" if not tools.root.exists(CONFIG) else f"{CONFIG} can't be read"
    else:
        file = f"the mode is from {CONFIG}" if mode else f"{CONFIG} says no mode"
    return Toolkit(match.group(1) if match else None, mode, None if config is None else CONFIG, (program, file))


def ignores_fractions(config: str | None) -> bool:
    """Whether the toolkit ignores what an unprivileged container's environment asks for, as KAI's fractions do.

    NVIDIA Container Toolkit v1.20.0, internal/config/image/cuda_image.go.
    """
    return bool(_IGNORES.search((config or "").partition("\n[")[0]))


def with_mode_of(text: str, other: str | None) -> str:
    """A configuration with the line of the mode that another one has; without any where that has none."""
    span, other_span, mode = _mode_line(text), _mode_line(other or ""), mode_of(other)
    # A string of JSON is one of TOML.
    written = f"mode = {json.dumps(mode, ensure_ascii=False)}\n" if mode else ""
    line = (other or "")[slice(*other_span)] if other_span else written
    return text if span is None else text[: span[0]] + line + text[span[1] :]


def runtime_path(root: Root) -> str:
    """The host path of the NVIDIA container runtime.

    Raises:
        HostError: It is not installed.
    """
    for folder in RUNTIME_FOLDERS:
        if root.exists(f"{folder}/{_RUNTIME}"):
            return f"{folder}/{_RUNTIME}"
    raise HostError(f"There is no `{_RUNTIME}` in {', '.join(RUNTIME_FOLDERS)} on this host.", INSTALL)


def refuse_two_owners(root: Root) -> None:
    """Refuse a host-owned toolkit where the GPU Operator has installed its own.

    Raises:
        HostError: It has.
    """
    if root.exists(f"{OPERATOR_FOLDER}/{_RUNTIME}"):
        raise HostError(
            f"The container toolkit shall be the host's, but the GPU Operator's lies in {OPERATOR_FOLDER}; "
            "it would win, and ignore the host's configuration.",
            "Label the node nvidia.com/gpu.deploy.container-toolkit=false, wait until its toolkit pod is gone, "
            f"remove {OPERATOR_FOLDER}, then run again; or set the toolkit's owner to 'operator'.",
        )


def mode_of(config: str | None) -> str | None:
    """The mode that a configuration says, however it is written; None where it says none."""
    try:
        section = tomli.loads(config or "").get("nvidia-container-runtime")
    except tomli.TOMLDecodeError:
        return None
    mode = section.get("mode") if isinstance(section, dict) else None
    return mode if isinstance(mode, str) else None


def _mode_line(config: str) -> tuple[int, int] | None:
    """Where the line of the mode begins and ends, its end of line included."""
    section = _SECTION.search(config)
    mode = _MODE.search(section.group(1)) if section else None
    if section is None or mode is None:
        return None
    end = config.find("\n", section.start(1) + mode.end())
    # The pattern takes in empty lines before it.
    start = config.rfind("\n", 0, section.start(1) + mode.start(1)) + 1
    return start, len(config) if end < 0 else end + 1
