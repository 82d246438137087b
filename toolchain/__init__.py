"""One place that yields the programs which this project runs: from PATH, official downloads, or pinned Go modules."""

from toolchain.download import reachable
from toolchain.errors import ToolchainError
from toolchain.install import environment, install
from toolchain.programs import CHARTS, ENGINE, HOSTS, LANGUAGES, NODE, OLDER, SIMULATOR, Program

__all__ = [
    "CHARTS",
    "ENGINE",
    "HOSTS",
    "LANGUAGES",
    "NODE",
    "OLDER",
    "SIMULATOR",
    "Program",
    "ToolchainError",
    "environment",
    "install",
    "reachable",
]
