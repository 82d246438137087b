"""Which images become processes, and where their programs come from."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from toolchain import ImageProgram, ToolchainError, name_of, program_of

AGENTS = "agents"
"""Our own image (agents/Containerfile): its admission server runs from this checkout."""
METRICS = "metrics"
"""Our exporter's (agents/metrics/Containerfile), likewise."""
REAL = (
    "admission",
    AGENTS,
    "binder",
    METRICS,
    "nodescaleadjuster",
    "operator",
    "podgroupcontroller",
    "podgrouper",
    "queuecontroller",
    "scheduler",
)
"""The last parts of the names of images that run. KAI's others are emulated: hooks need a shell and kubectl at fixed
paths, and reservation pods need NVML."""
_CHECKOUT = Path(__file__).resolve().parents[2]
_OWN = ImageProgram(
    path=Path(sys.executable),
    arguments=("-m",),
    default_arguments=("agents.admission",),
    environment={"PYTHONPATH": str(_CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
    working_directory=None,
    source=str(_CHECKOUT / AGENTS),
)
"""As the image says it."""
_OURS = {AGENTS: _OWN, METRICS: replace(_OWN, default_arguments=("agents.metrics",))}


class ProgramError(Exception):
    """An image has no program here: the message says why, for the pod's status."""


ProgramOf = Callable[[str], ImageProgram]
"""Gives an image's program, or raises ProgramError."""


def programs_of(place: str) -> ProgramOf:
    """The programs of a folder, or with `images` those of the images themselves; ours are always here."""

    def give(image: str) -> ImageProgram:
        if ours := _OURS.get(name_of(image)):
            return ours
        try:
            return program_of(image, place)
        except ToolchainError as error:
            raise ProgramError(str(error)) from error

    return give
