"""The step `toolkit`: how NVIDIA's container runtime injects a GPU. Read at each container's start: no restart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agents.host.change.plan import Step, change_of
from agents.host.errors import HostError
from agents.host.look import toolkit
from agents.host.look.toml_dump import flatten
from agents.host.look.toolkit import CSV_FOLDER
from agents.host.steps import ctk

if TYPE_CHECKING:
    from agents.host.context import Context

NAME = "toolkit"
_SINCE_THOR = (1, 17, 7)
"""Older ones take Thor for a discrete GPU (NVIDIA/nvidia-container-toolkit#1078)."""


def plan(context: Context) -> Step:
    """Plan the toolkit's mode.

    Raises:
        HostError: The toolkit is missing, has two owners, or can't serve this platform.
    """
    root, desired = context.tools.root, context.desired
    if desired.toolkit.owner == "operator":
        return Step(NAME, "the GPU Operator installs and configures the toolkit")
    toolkit.refuse_two_owners(root)
    toolkit.runtime_path(root)
    installed = toolkit.detect(context.tools)
    mode = desired.toolkit.mode
    _refuse_too_old(context, installed.version)
    detail = f"mode {installed.mode or 'not set'} -> {mode}" if installed.mode != mode else f"mode is {mode}"
    if desired.platform == "tegra" and not root.glob(f"{CSV_FOLDER}/*.csv"):
        detail += f"; {CSV_FOLDER} holds no files, so containers would start without the GPU: install nvidia-container"
    if toolkit.ignores_fractions(root.read_text(toolkit.CONFIG)):
        detail += (
            f"; {toolkit.CONFIG} says accept-nvidia-visible-devices-envvar-when-unprivileged = false, so pods with a "
            "fraction of a GPU would start without it"
        )
    if installed.mode == mode:
        return Step(NAME, detail)
    staged = context.staging / "toolkit.toml"
    before = root.read_bytes(toolkit.CONFIG)
    if before is not None:
        staged.write_bytes(before)
    return Step(NAME, detail, change_of(root, toolkit.CONFIG, before, ctk.set_mode(context.tools, staged, mode)))


def without_ours(original: bytes | None, written: bytes | None, current: bytes, *, every: bool = False) -> bytes | None:
    """The toolkit's configuration with the mode that it had, unless somebody has set another one since.

    nvidia-ctk writes comments of its own and drops others, so the original comes back where nothing but the mode
    differs from what was written.

    Args:
        original: What was there.
        written: What this agent wrote, None where that is not known.
        current: What is there.
        every: Whether the mode goes also where somebody has set another one.

    Raises:
        HostError: The configuration can't be read.
    """
    now = current.decode("utf-8", "replace")
    former, ours = (None if part is None else part.decode("utf-8", "replace") for part in (original, written))
    if ours is not None and toolkit.mode_of(now) != toolkit.mode_of(ours) and not every:
        return current
    left = toolkit.with_mode_of(now, former)
    if ours is not None:
        same = toolkit.with_mode_of(now, ours) == ours
    else:
        same = former is not None and flatten(left) == flatten(former)
    return original if same else left.encode()


def _refuse_too_old(context: Context, version: str | None) -> None:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:3])
    thor = context.hardware.board.generation == "thor"
    if thor and context.desired.toolkit.mode == "auto" and numbers and numbers < _SINCE_THOR:
        raise HostError(
            f"The NVIDIA Container Toolkit {version} does not recognise Thor in mode auto.",
            "Install version 1.17.7 or later, or set the mode to 'csv'.",
        )
