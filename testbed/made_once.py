"""What the processes that run tests beside each other make once for all of them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

FOLDER = "KAI_ANYWHERE_MADE_ONCE"
"""The variable that names the folder of a run of the tests; whoever sets it takes the folder away."""


def in_tests() -> bool:
    """Whether tests run."""
    return FOLDER in os.environ


def made_once(name: str, make: Callable[[Path], None]) -> Path | None:
    """The folder that somebody has made under this name, or that is made now; None where nobody runs tests.

    Args:
        name: of the folder.
        make: writes it, or leaves none behind.
    """
    if not in_tests():
        return None
    made = Path(os.environ[FOLDER]) / name
    with FileLock(f"{made}.lock"):
        if not made.is_dir():
            unfinished = made.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(made)
    return made
