"""Replacing files so that a kill at any moment leaves the old or the new, never half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path


PRIVATE = 0o600
_OF_THE_CONTENT = ("security.capability", "security.evm", "security.ima")
"""Extended attributes that vouch for the bytes that were there. The others stay: SELinux' context, who has rights of
their own, and what people note there. With such an access list, the mode's group bits are the most that anybody in it
has, and the group itself may have none."""


@dataclass(frozen=True)
class Owner:
    """A file's permission bits and owners."""

    mode: int
    uid: int
    gid: int


def owner_of(path: Path) -> Owner | None:
    """Mode and owners, None where there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Owner(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def replace(path: Path, content: bytes, owner: Owner) -> None:
    """Put content in place of a file in one step, on the disk when this returns.

    The temporary file has a fixed name: what a killed run left is overwritten by the next.

    Raises:
        HostError: The folder is read-only, the disk is full, or the like; the file is what it was.
    """
    temporary = temporary_of(path)
    try:
        descriptor = os.open(
            str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            _write_all(descriptor, content)
            if owner_of(path) == owner:
                _keep_attributes(path, descriptor)
            os.fchmod(descriptor, owner.mode)
            if (os.geteuid(), os.getegid()) != (owner.uid, owner.gid):
                os.fchown(descriptor, owner.uid, owner.gid)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _failed(path, error) from error


def remove(path: Path) -> None:
    """Remove a file if it is there, and what a killed run left beside it.

    Raises:
        HostError: It can't be removed.
    """
    try:
        for name in (temporary_of(path), path):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                name.unlink()
        if path.parent.is_dir():
            _sync(path.parent)
    except OSError as error:
        raise _failed(path, error) from error


def make_folders(path: Path, mode: int = 0o755) -> None:
    """Make a folder and the missing ones above it, of that mode; those that are there stay as they are.

    Raises:
        HostError: One can't be made.
    """
    try:
        for folder in reversed(missing_folders(path)):
            folder.mkdir(mode)
            # Whatever the login's umask: others must reach what is theirs to read.
            folder.chmod(mode)
            _sync(folder.parent)
    except OSError as error:
        raise _failed(path, error) from error


def missing_folders(path: Path) -> list[Path]:
    """A folder and those above it that do not exist, the deepest first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def temporary_of(path: Path) -> Path:
    """The temporary file's path, where no runtime reads it: containerd may import every file of `conf.d`."""
    folder = path.parent.parent if path.parent.name == "conf.d" else path.parent
    return folder / f".{path.name}.kai-anywhere"


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _keep_attributes(path: Path, descriptor: int) -> None:
    names: list[str] = []
    # Not every file has them, nor every file system.
    with contextlib.suppress(OSError):
        names = os.listxattr(str(path))
    for name in names:
        with contextlib.suppress(OSError):
            if name not in _OF_THE_CONTENT:
                os.setxattr(descriptor, name, os.getxattr(str(path), name))


def _sync(folder: Path) -> None:
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(path: Path, error: OSError) -> HostError:
    remedy = "See that the disk has room and the file system is writable, run as root, then run again."
    if error.errno == errno.EPERM and os.geteuid() == 0:
        remedy = (
            f"Look whether it is immutable: `lsattr -d {path.parent} {path}` shows an `i` then. Ask who set it, take "
            "it away with `chattr -i`, then run again."
        )
    return HostError(f"{path} can't be changed: {error.strerror}. It is what it was.", remedy)
