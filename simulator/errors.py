"""The exceptions of the simulator, and the translation of a failing disk into it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SimulatorError(Exception):
    """Something a person has to act on: the message says what happened, why, and what to do."""


class PortTakenError(SimulatorError):
    """A process ended because another one has its port, which was free when it was chosen."""


@contextmanager
def disk_errors_explained(folder: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write below `folder` into a `SimulatorError`."""
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                raise SimulatorError(
                    f"The disk that holds {folder} is full. The simulator needs about 300 MB there: free some space, "
                    "and run the same command again."
                ) from error
            case errno.EACCES | errno.EPERM | errno.EROFS:
                raise SimulatorError(
                    f"{error.filename or folder} can't be written ({error.strerror}). The simulator keeps all its data "
                    f"in {folder}: make that folder yours, and run the same command again."
                ) from error
            case errno.ENOTDIR | errno.EEXIST:
                raise SimulatorError(
                    f"{folder} can't be the simulator's folder, because a file is in the way "
                    f"({error.filename or folder}). Move that file elsewhere, and run the same command again."
                ) from error
            case _:
                raise
