"""Which images become processes, and where their programs come from."""

from collections.abc import Callable

from toolchain import ImageProgram, ToolchainError, program_of

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
"""The last parts of the images that run. KAI's others are emulated: hooks need a shell and kubectl at fixed paths, and
reservation pods need NVML."""


class ProgramError(Exception):
    """An image has no program here: the message says why, for the pod's status."""


ProgramOf = Callable[[str], ImageProgram]
"""Gives an image's program, or raises ProgramError."""


def name_of(image: str) -> str:
    """The last part of an image's name: `binder` of `registry:5000/kai/binder:v0.17.0@sha256:...`."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def programs_of(place: str) -> ProgramOf:
    """The programs of a folder, or with `images` those of the images themselves."""

    def give(image: str) -> ImageProgram:
        try:
            return program_of(image, place)
        except ToolchainError as error:
            raise ProgramError(str(error)) from error

    return give
