"""One place that yields the programs which this project runs.

They come from PATH, official downloads, pinned Go modules, or container images.
"""

from toolchain.download import reachable
from toolchain.errors import ToolchainError
from toolchain.image_programs import FOLDER_VARIABLE, IMAGES, ImageProgram, name_of, program_of
from toolchain.install import Origin, environment, install, install_located
from toolchain.program import Program
from toolchain.programs import CHARTS, ENGINE, LANGUAGES, OLDER, PACKAGES, REGISTRIES, SIMULATOR, YAML
from toolchain.registry import reachable as registry_reachable

__all__ = [
    "CHARTS",
    "ENGINE",
    "FOLDER_VARIABLE",
    "IMAGES",
    "LANGUAGES",
    "OLDER",
    "PACKAGES",
    "REGISTRIES",
    "SIMULATOR",
    "YAML",
    "ImageProgram",
    "Origin",
    "Program",
    "ToolchainError",
    "environment",
    "install",
    "install_located",
    "name_of",
    "program_of",
    "reachable",
    "registry_reachable",
]
