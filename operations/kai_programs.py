"""Whether KAI's own programs run on the simulator, and where they come from: KAI_PROGRAMS, or what can be had."""

import os
from pathlib import Path

import simulator
import toolchain
from config.stack import StackSettings
from manifests import kai
from operations.errors import OperationError
from toolchain.progress import say

NAMES = ("admission", "binder", "operator", "podgroupcontroller", "podgrouper", "queuecontroller", "scheduler")
"""The images whose programs are needed: what KAI's operator starts where nothing more is switched on."""
EMULATED = "emulated"
"""Of KAI_PROGRAMS: no program of KAI runs."""
_NO_TAG = (
    "the settings do not tell the tag of KAI's images: kai.chart is a local chart, or its version is no single release"
)


def choose(settings: StackSettings, status: simulator.Status, *, official_chart: bool) -> str | None:
    """What KAI_PROGRAMS says; without it, the images on a new simulator if they can be had, which is said.

    Args:
        settings: the stack's.
        status: the stack's simulator as it is.
        official_chart: whether KAI's chart is not our stand-in.

    Returns:
        A folder, or `images`; None where KAI is emulated, or runs as the last time.

    Raises:
        OperationError: KAI's chart is our stand-in, whose RBAC and CRDs KAI can't work with; the settings do not tell
            which images; or this simulator runs KAI's programs, and is to emulate KAI.
        ToolchainError: a program of KAI_PROGRAMS can't be had from there.
    """
    chosen = os.environ.get(toolchain.FOLDER_VARIABLE)
    if chosen == EMULATED:
        if status.kai_programs:
            raise OperationError(
                "This simulator runs KAI's programs. Forget it with `make reset`, then run the same command again."
            )
        return None
    if chosen:
        return _said(chosen, settings, official_chart=official_chart)
    if status.exists:
        if status.kai_programs and not official_chart:
            raise OperationError(
                "This simulator runs KAI's programs, and KAI's own chart can't be reached now. Say where a copy lies "
                "(kai.chart.source in the stack file), or forget the simulator with `make reset`: then KAI is emulated."
            )
        return None
    if reason := _reason_to_emulate(settings, official_chart=official_chart):
        say(f"KAI is emulated: {reason}. {simulator.NOT_CHECKED}")
        return None
    say(
        f"KAI's programs run, out of their images at {kai.registry(settings)}. To emulate KAI: make reset, then "
        f"{toolchain.FOLDER_VARIABLE}={EMULATED}"
    )
    return toolchain.IMAGES


def _said(chosen: str, settings: StackSettings, *, official_chart: bool) -> str:
    if not official_chart:
        raise OperationError(
            "KAI_PROGRAMS needs KAI's own chart, which can't be reached from here, and our stand-in has neither its "
            "RBAC nor its CRDs. Say where a copy lies: kai.chart.source in the stack file, a folder or an archive."
        )
    programs = chosen if chosen == toolchain.IMAGES else str(Path(os.path.expanduser(chosen)).resolve())
    for name in NAMES:
        image = kai.image(settings, name)
        if image is None and programs == toolchain.IMAGES:
            raise OperationError(f"KAI_PROGRAMS=images: {_NO_TAG}. Set kai.image_tag.")
        toolchain.program_of(image or name, programs)
    return programs


def _reason_to_emulate(settings: StackSettings, *, official_chart: bool) -> str | None:
    """Why the images' programs can't be run, as part of a sentence; None where they are here."""
    if reason := simulator.no_programs():
        return f"KAI's programs can't be run here, {reason}"
    if not official_chart:
        return "its own chart can't be reached from here"
    images = [image for name in NAMES if (image := kai.image(settings, name))]
    if len(images) < len(NAMES):
        return f"{_NO_TAG} (kai.image_tag)"
    if not toolchain.registry_reachable(images[0]):
        return f"the registry of its images, {kai.registry(settings)}, can't be reached from here"
    try:
        for image in images:
            toolchain.program_of(image, toolchain.IMAGES)
    except toolchain.ToolchainError as error:
        return f"the programs of its images can't be had, {error.why}"
    return None
