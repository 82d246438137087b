"""One place that yields the programs which this project runs: from PATH, official downloads, or pinned Go modules."""

from toolchain.download import reachable
from toolchain.errors import ToolchainError
from toolchain.install import environment, install
from toolchain.programs import ENGINE, HOSTS, LANGUAGES, NODE, SIMULATOR, Program

__all__ = [
    "ENGINE",
    "HOSTS",
    "LANGUAGES",
    "NODE",
    "SIMULATOR",
    "Program",
    "ToolchainError",
    "environment",
    "install",
    "reachable",
]
