"""Strict JSON files: an unknown key or a wrong type is an error that names file and place."""

from pathlib import Path
from typing import TypeVar

import msgspec

from agents.admission.errors import SettingsError

T = TypeVar("T")


def read(path: Path, kind: type[T]) -> T:
    """Read a JSON file as a struct.

    Raises:
        SettingsError: the file can't be read, or is not what `kind` says.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise SettingsError(f"{path}: can't be read: {error.strerror}") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
