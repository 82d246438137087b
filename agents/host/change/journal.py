"""What was on the host and what this agent made of it, so that `restore` gives back the one and knows the other again.

Order is everything: both contents are on the disk before the journal names them, and the journal names a file before
that file is touched. The journal's own replacement is the one commit point.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agents.host.change import files
from agents.host.change.files import PRIVATE, Owner
from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.host.change.plan import Change
    from agents.host.root import Root

HOME = "/var/lib/kai-anywhere"
FOLDER = f"{HOME}/host"
_JOURNAL = f"{FOLDER}/journal.json"
ORIGINALS = f"{FOLDER}/originals"
_VERSION = 2
_READ = (1, _VERSION)
"""Version 1 does not tell what was written, nor where to."""


@dataclass(frozen=True)
class Original:
    """A file as it was before the first change, and what this agent made of it.

    Attributes:
        path: Its host path.
        step: Of the plan.
        sha256: Of what was there; None where there was no file.
        owner: Likewise.
        written: Of what this agent wrote, the last at the end; two while a change is under way. Empty where the journal
            does not tell.
        target: Where the path led then: a link that came later is somebody else's. None where the journal does not
            tell.
    """

    path: str
    step: str
    sha256: str | None
    owner: Owner | None
    written: tuple[str, ...] = ()
    target: str | None = None


@dataclass
class Journal:
    """The originals by path, in the order of their first change, the folders made, and restarts still owed.

    `stack` is whose this host is; None where nobody said it, as in earlier versions.
    """

    root: Root
    originals: dict[str, Original] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    stack: str | None = None

    @classmethod
    def load(cls, root: Root) -> Journal:
        """Read the journal; an empty one where nothing was ever changed.

        Raises:
            HostError: It can't be read.
        """
        content = root.read_bytes(_JOURNAL)
        if content is None:
            return cls(root)
        try:
            data = json.loads(content.decode("utf-8"))
            if data["version"] not in _READ:
                raise HostError(
                    f"{_JOURNAL} is of version {data['version']!r}, which this agent does not know.",
                    "Use the version of the program that prepared this host last; nothing was changed.",
                )
            originals = {item["path"]: _original(item) for item in data["files"]}
            folders, services, pending = (list(data[name]) for name in ("folders", "services", "pending"))
            return cls(root, originals, folders, services, pending, data.get("stack"))
        except (ValueError, KeyError, TypeError) as error:
            raise HostError(
                f"{_JOURNAL} is damaged ({error}).",
                f"The originals lie in {ORIGINALS}: put them back by hand, then remove {FOLDER}.",
            ) from error

    @property
    def is_absent(self) -> bool:
        """Whether this host was never changed, or everything was taken back."""
        return not self.root.exists(HOME)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be taken back."""
        return not (self.originals or self.folders or self.services or self.pending)

    def begin(self, changes: Iterable[tuple[str, Change]], services: Iterable[str]) -> None:
        """Note that files (by their step) are about to change and services have to be restarted for it.

        Raises:
            HostError: The contents or the journal can't be written; nothing was changed.
        """
        files.make_folders(self.root.path(ORIGINALS), 0o700)
        for step, change in changes:
            target = self.root.target(change.path)
            self._note_folders(self.root.host_path(folder) for folder in files.missing_folders(target.parent))
            original = self.originals.get(change.path) or Original(
                change.path,
                step,
                None if change.before is None else self._store(change.before),
                None if change.before is None else files.owner_of(target),
            )
            # Until it is replaced, what was written before is ours too.
            former = tuple(sha256 for sha256 in original.written if sha256 == _sha256(change.before))
            new = () if change.after is None else (self._store(change.after),)
            self.originals[change.path] = replace(original, written=former + new, target=self._led_to(change.path))
        for service in services:
            for notes in (self.services, self.pending):
                if service not in notes:
                    notes.append(service)
        self._save()

    def rebase(self, original: Original, content: bytes | None, planned: Change) -> None:
        """Make what somebody else made of a file what was there; `begin` writes it down.

        What the file is now, theirs with this agent's part, is what this agent wrote: a run that fails leaves it so.

        Args:
            original: The file.
            content: What somebody else made of it, without this agent's part.
            planned: What is about to be written over it.

        Raises:
            HostError: The content can't be written; nothing was changed.
        """
        files.make_folders(self.root.path(ORIGINALS), 0o700)
        self.originals[original.path] = Original(
            original.path,
            original.step,
            None if content is None else self._store(content),
            None if content is None else planned.owner,
            () if planned.before is None else (self._store(planned.before),),
        )

    def adopt(self, original: Original, content: bytes) -> None:
        """Take a file's content for written by this agent, where the journal does not tell; `begin` writes it down.

        Raises:
            HostError: The content can't be written; nothing was changed.
        """
        files.make_folders(self.root.path(ORIGINALS), 0o700)
        self.originals[original.path] = replace(original, written=(self._store(content),))

    def forget(self, originals: Iterable[Original]) -> None:
        """Drop files that were taken back, so that what others put there later is theirs.

        Raises:
            HostError: The journal can't be written.
        """
        paths = [original.path for original in originals if self.originals.pop(original.path, None)]
        if paths:
            self._save()

    def restarted(self, service: str) -> None:
        """Note that a service runs with what is on the disk.

        Raises:
            HostError: The journal can't be written.
        """
        if service in self.pending:
            self.pending.remove(service)
            self._save()

    def belong_to(self, stack: str | None) -> None:
        """Note whose this host is, where there is anything to take back.

        Raises:
            HostError: The journal can't be written.
        """
        if stack not in {None, self.stack} and not self.is_empty:
            self.stack = stack
            self._save()

    def owe(self, services: Iterable[str]) -> None:
        """Note that services have to be restarted.

        Raises:
            HostError: The journal can't be written.
        """
        more = [service for service in services if service not in self.pending]
        if more:
            self.pending.extend(more)
            self._save()

    def content_of(self, original: Original) -> bytes | None:
        """The original bytes, None where there was no file.

        Raises:
            HostError: They are missing or damaged.
        """
        return None if original.sha256 is None else self._stored(original, original.sha256)

    def has_content_of(self, original: Original) -> bool:
        """Whether `content_of` tells what was there."""
        try:
            self.content_of(original)
        except HostError:
            return False
        return True

    def written_to(self, original: Original) -> bytes | None:
        """What this agent wrote last, None where the journal does not tell.

        Raises:
            HostError: It is missing or damaged.
        """
        return self._stored(original, original.written[-1]) if original.written else None

    def is_as_written(self, original: Original, content: bytes) -> bool:
        """Whether nobody has changed a file since this agent wrote it."""
        return _sha256(content) in original.written

    def leads_elsewhere(self, original: Original) -> bool:
        """Whether a path leads to another file than the one that this agent wrote."""
        if original.target is None:
            return self.root.path(original.path).is_symlink()
        return self._led_to(original.path) != original.target

    def close(self) -> None:
        """Remove the folders that were made, then forget everything.

        The journal goes before its originals: a kill in between leaves only what `sweep` finds.

        Raises:
            HostError: The journal can't be removed.
        """
        for folder in self.folders:
            # A folder in which somebody else has put something stays.
            with contextlib.suppress(OSError):
                self.root.path(folder).rmdir()
        files.remove(self.root.path(_JOURNAL))
        self.sweep()

    def sweep(self) -> None:
        """Remove what a killed run left where no journal tells of it: before its first note, or after its last."""
        shutil.rmtree(str(self.root.path(FOLDER)), ignore_errors=True)
        with contextlib.suppress(OSError):
            self.root.path(HOME).rmdir()

    def _note_folders(self, folders: Iterable[str]) -> None:
        self.folders[:0] = [folder for folder in folders if folder not in self.folders]

    def _store(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        # Private to root, whatever the file's mode: it may hold a registry's password.
        files.replace(self.root.path(f"{ORIGINALS}/{sha256}"), content, Owner(PRIVATE, os.geteuid(), os.getegid()))
        return sha256

    def _stored(self, original: Original, sha256: str) -> bytes:
        content = self.root.read_bytes(f"{ORIGINALS}/{sha256}")
        if content is None or _sha256(content) != sha256:
            raise HostError(
                f"What is kept of {original.path} in {ORIGINALS} is missing or damaged.",
                f"Put {original.path} right by hand, then remove {FOLDER}.",
            )
        return content

    def _led_to(self, path: str) -> str:
        return os.path.realpath(str(self.root.path(path)))

    def _save(self) -> None:
        data = {
            "version": _VERSION,
            "files": [
                {
                    "path": original.path,
                    "step": original.step,
                    "sha256": original.sha256,
                    "mode": original.owner.mode if original.owner else None,
                    "uid": original.owner.uid if original.owner else None,
                    "gid": original.owner.gid if original.owner else None,
                    "written": original.written,
                    "target": original.target,
                }
                for original in self.originals.values()
            ],
            "folders": self.folders,
            "services": self.services,
            "pending": self.pending,
            "stack": self.stack,
        }
        content = json.dumps(data, indent=1).encode()
        files.replace(self.root.path(_JOURNAL), content, Owner(PRIVATE, os.geteuid(), os.getegid()))


def _original(item: dict[str, Any]) -> Original:
    owner = None if item["mode"] is None else Owner(item["mode"], item["uid"], item["gid"])
    written = tuple(item.get("written", ()))
    return Original(item["path"], item["step"], item["sha256"], owner, written, item.get("target"))


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
