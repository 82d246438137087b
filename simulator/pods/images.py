"""Which images become processes, and where their programs come from."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REAL = (
    "admission",
    "binder",
    "nodescaleadjuster",
    "operator",
    "podgroupcontroller",
    "podgrouper",
    "queuecontroller",
    "scheduler",
)
"""The last parts of the images that run. KAI's others are played: hooks need a shell and kubectl at fixed paths, and
reservation pods need NVML."""


class ProgramError(Exception):
    """An image has no program here: the message says why, for the pod's status."""


@dataclass(frozen=True)
class Program:
    """What an image runs.

    Attributes:
        path: the executable.
        source: where it comes from, in words.
        arguments: of a container that says none.
        environment: which the container's own goes before.
        working_directory: where it starts; None for the pod's own folder.
    """

    path: Path
    source: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: Path | None = None


ProgramOf = Callable[[str], Program]
"""Gives an image's program, or raises ProgramError."""


def name_of(image: str) -> str:
    """The last part of an image's name: `binder` of `registry:5000/kai/binder:v0.17.0@sha256:...`."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def in_folder(folder: Path) -> ProgramOf:
    """The executables of a folder, each called as the last part of its image."""

    def program_of(image: str) -> Program:
        path = folder / name_of(image)
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise ProgramError(f"image {image}: {path} is no executable file. Build or copy that program there.")
        return Program(path, f"folder {folder}")

    return program_of
