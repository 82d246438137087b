"""What a person is told when a command can't do its work."""

import errno
from pathlib import Path

import simulator
import toolchain
from cluster.errors import ClusterError
from config.stack import StackConfigError
from operations.errors import OperationError
from operations.status.words import printable

_REFUSALS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


def explained(error: Exception) -> str | None:
    """The text of a failure, in lines; None for a mistake of the program, whose traceback is to be seen."""
    match error:
        case (
            OperationError()
            | StackConfigError()
            | ClusterError()
            | simulator.SimulatorError()
            | toolchain.ToolchainError()
        ):
            # It may quote what others wrote, into a cluster or into a file.
            return "".join(f"{printable(line)}\n" for line in str(error).split("\n"))
        case OSError() if _folder_is_gone():
            return "The folder in which this runs was removed. Change into one that is there.\n"
        case OSError() if error.errno in _REFUSALS:
            where = error.filename or "The output"
            remedy = "Make room, give the right to it, or choose another place."
            return f"{where} can't be written or read: {error.strerror}. {remedy}\n"
        case _:
            return None


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
