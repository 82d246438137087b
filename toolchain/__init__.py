"""One place that yields the programs which this project runs.

They come from PATH, official downloads, pinned Go modules, or container images.
"""

from toolchain.download import reachable
from toolchain.errors import ToolchainError
from toolchain.image_programs import IMAGES, ImageProgram, program_of
from toolchain.install import environment, install
from toolchain.programs import CHARTS, ENGINE, HOSTS, LANGUAGES, NODE, OLDER, REGISTRIES, SIMULATOR, Program

__all__ = [
    "CHARTS",
    "ENGINE",
    "HOSTS",
    "IMAGES",
    "LANGUAGES",
    "NODE",
    "OLDER",
    "REGISTRIES",
    "SIMULATOR",
    "ImageProgram",
    "Program",
    "ToolchainError",
    "environment",
    "install",
    "program_of",
    "reachable",
]
