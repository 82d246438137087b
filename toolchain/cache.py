"""The user's cache folder: one folder per entry, which appears whole or not at all.

Safe under concurrent runs (a file lock per entry, freed by the operating system when its holder dies) and after a kill
(unfinished work lies in `<entry>.partial-*` folders, which the next run that takes a lock removes).
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from toolchain.errors import ToolchainError
from toolchain.progress import say

LOCATION_VARIABLE = "KAI_ANYWHERE_CACHE"
_PARTIAL = ".partial-"
# Only Linux tells it.
_NOEXEC = getattr(os, "ST_NOEXEC", 0)


def root() -> Path:
    """The cache folder of the toolchain; it need not exist yet."""
    return location() / "toolchain"


def location() -> Path:
    """The folder that KAI_ANYWHERE_CACHE names, or the user's own.

    Raises:
        ToolchainError: the user has none.
    """
    if chosen := os.environ.get(LOCATION_VARIABLE):
        return Path(os.path.expanduser(chosen)).absolute()
    try:
        return platformdirs.user_cache_path("kai-anywhere")
    except RuntimeError as error:
        raise ToolchainError(
            "There is no folder for the programs that are fetched.",
            why="HOME is not set, and the user has no account that tells it.",
            remedy=f"export HOME, or choose a folder: export {LOCATION_VARIABLE}=/a/folder/of/yours",
        ) from error


def entry_name(name: str, version: str, *content: object) -> str:
    """`<name>-<version>-<first 12 hex digits of the SHA-256 over the content>`."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name}-{version}-{digest[:12]}"


def find(entry: str, files: Iterable[str]) -> Path | None:
    """An entry's folder when all its files are there, executable and not empty."""
    folder = root() / entry
    return folder if all(_is_whole(folder / file) for file in files) else None


def _is_whole(file: Path) -> bool:
    # A power cut may leave a file without its content.
    return os.access(file, os.X_OK) and file.is_file() and file.stat().st_size > 0


def obtain(entry: str, files: Iterable[str], *, what: str, fill: Callable[[Path], None]) -> Path:
    """An entry's folder, filled first by `fill` when it is missing or damaged.

    Args:
        entry: The folder's name.
        files: The executables which `fill` leaves in the folder.
        what: What the entry holds, for a person.
        fill: Gets an empty folder. When it raises, nothing of the entry remains.

    Raises:
        ToolchainError: The cache folder can't be written, or its disk is full.
    """
    files = tuple(files)
    # What is there needs no lock: the folder may be read-only, such as another user's.
    if folder := find(entry, files):
        return folder
    try:
        _make_root()
        with _locked(entry, what):
            if folder := find(entry, files):
                return folder
            _remove_leftovers(entry)
            return _fill(entry, files, fill)
    except OSError as error:
        raise unusable(error, what) from error


def _make_root() -> None:
    root().mkdir(parents=True, exist_ok=True)
    if os.statvfs(root()).f_flag & _NOEXEC:
        raise OSError("it is on a file system that is mounted with noexec")


@contextmanager
def _locked(entry: str, what: str) -> Iterator[None]:
    lock = _lock(entry)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"waiting for {what}: another run is getting it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _lock(entry: str) -> FileLock:
    # A soft lock (where a file system has no flock) would outlive a killed holder.
    return FileLock(root() / f"{entry}.lock", fallback_to_soft=False)


def _fill(entry: str, files: tuple[str, ...], fill: Callable[[Path], None]) -> Path:
    partial = Path(tempfile.mkdtemp(prefix=f"{entry}{_PARTIAL}", dir=root()))
    try:
        fill(partial)
        if missing := [file for file in files if not os.access(partial / file, os.X_OK)]:
            raise AssertionError(f"{entry} was filled without {missing}")
        partial.chmod(0o755)
        final = root() / entry
        if final.exists():
            shutil.rmtree(final)
        return partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_leftovers(held: str) -> None:
    """Remove unfinished work of killed runs, which is all that lies under a lock that nobody else holds."""
    for partial in root().glob(f"*{_PARTIAL}*"):
        entry = partial.name.rpartition(_PARTIAL)[0]
        if entry == held:
            shutil.rmtree(partial, ignore_errors=True)
            continue
        # In a shared folder, another user's locks can't be taken.
        with suppress(Timeout, OSError), _lock(entry).acquire(blocking=False):
            shutil.rmtree(partial, ignore_errors=True)


def unusable(error: OSError, what: str) -> ToolchainError:
    """The error for a cache folder that can't be written, or whose disk is full."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full(root(), what, os.strerror(error.errno))
    return ToolchainError(
        f"The cache folder {root()} can't be used for {what}.",
        why=str(error),
        remedy=f"make that folder writable, or choose another: export {LOCATION_VARIABLE}=/a/folder/of/yours",
    )


def disk_full(folder: Path, what: str, why: str) -> ToolchainError:
    """The error for a full disk."""
    return ToolchainError(
        f"There is not enough disk space at {folder} for {what}.",
        why=why,
        remedy=f"free some space there (`go clean -cache` empties Go's build cache), or choose another disk with "
        f"{LOCATION_VARIABLE} (our cache) and GOCACHE (Go's)",
    )
