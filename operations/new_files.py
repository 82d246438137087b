"""Files that a command makes: whole, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from operations.errors import OperationError


def check_new(file: Path, *, option: str) -> None:
    """Look whether the file can be made, before the work that it is for.

    Args:
        file: to be made later.
        option: that names it.

    Raises:
        OperationError: the file exists, or its folder can't be written to.
    """
    if file.exists():
        raise OperationError(f"{file} exists. Choose another name with {option}.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise _not_made(file, option=option)


def check_writable(file: Path, *, option: str) -> None:
    """Look whether `write_whole` can write the file, before the work that it is for.

    Args:
        file: to be written later.
        option: that names it.

    Raises:
        OperationError: the file is a folder, or neither it nor its folder can be written to.
    """
    if file.is_dir():
        raise OperationError(f"{file} is a folder. Choose a file with {option}.")
    place = Path(os.path.realpath(file))
    if not (os.access(place, os.W_OK) or os.access(place.parent, os.W_OK | os.X_OK)):
        raise _not_made(place, option=option)


def _not_made(file: Path, *, option: str) -> OperationError:
    why = "it can't be written to" if file.parent.is_dir() else "there is no such folder"
    return OperationError(f"{file} can't be made in {file.parent}: {why}. Choose another one with {option}.")


@contextmanager
def new_file(file: Path, *, option: str) -> Iterator[BinaryIO]:
    """A new file, which its owner alone can read.

    Raises:
        OperationError: the file exists, or can't be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as out:
                yield out
        except BaseException:
            # Half of it would be taken for the whole, and be in the way of the next run.
            file.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        raise OperationError(f"{file} exists. Choose another name with {option}.") from error
    except OSError as error:
        raise OperationError(f"{file} can't be written: {error.strerror}. Choose another one with {option}.") from error


def write_whole(file: Path, text: str) -> None:
    """Write a text, in the place of what was there: on a full disk that stays, and who reads meanwhile sees no half.

    Raises:
        OSError: the file can't be written.
    """
    place = Path(os.path.realpath(file))
    if (place.exists() and not place.is_file()) or not os.access(place.parent, os.W_OK):
        # A pipe; or a file that is the user's where no other can be made.
        place.write_text(text, encoding="utf-8")
        return
    half = place.with_name(f".{place.name}.{os.getpid()}")
    half.touch(exist_ok=False)
    try:
        if place.exists():
            shutil.copymode(place, half)
        half.write_text(text, encoding="utf-8")
        half.replace(place)
    except BaseException as error:
        half.unlink()
        if isinstance(error, OSError):
            # A write tells of no file, and nobody knows the other one.
            error.filename = str(file)
        raise
