"""What this agent replaced on the host, kept so that `restore` gives the exact bytes back, whenever a run was killed.

Order is everything: originals are on the disk before the journal names them, and the journal names a file before that
file is touched. The journal's own replacement is the one commit point.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agents.host import files
from agents.host.errors import HostError
from agents.host.files import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.host.root import Root

FOLDER = "/var/lib/kai-anywhere/host"
_JOURNAL = f"{FOLDER}/journal.json"
_ORIGINALS = f"{FOLDER}/originals"
_PRIVATE = 0o600


@dataclass(frozen=True)
class Original:
    """A file as it was before the first change; `sha256` and `owner` are None where there was none."""

    path: str
    step: str
    sha256: str | None
    owner: Owner | None


@dataclass
class Journal:
    """The originals by path, in the order of their first change, the folders made, and restarts still owed."""

    root: Root
    originals: dict[str, Original] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    services: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, root: Root) -> Journal:
        """Reads the journal; an empty one where nothing was ever changed.

        Raises:
            HostError: It can't be read.
        """
        content = root.read_bytes(_JOURNAL)
        if content is None:
            return cls(root)
        try:
            data = json.loads(content.decode("utf-8"))
            originals = {item["path"]: _original(item) for item in data["files"]}
            return cls(root, originals, list(data["folders"]), list(data["services"]), list(data["pending"]))
        except (ValueError, KeyError, TypeError) as error:
            raise HostError(
                f"{_JOURNAL} is damaged ({error}).",
                f"The originals lie in {_ORIGINALS}: put them back by hand, then remove {FOLDER}.",
            ) from error

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be taken back."""
        return not (self.originals or self.folders or self.services or self.pending)

    def begin(self, changes: Iterable[tuple[str, str]], services: Iterable[str]) -> None:
        """Notes that files (`(step, host path)`) are about to change and services have to be restarted for it.

        Raises:
            HostError: The originals or the journal can't be written; nothing was changed.
        """
        folder = self.root.path(_ORIGINALS)
        made = [self.root.host_path(missing) for missing in files.missing_folders(self.root.path(FOLDER).parent)]
        files.make_folders(folder, 0o700)
        self._note_folders(made)
        for step, path in changes:
            target = self.root.target(path)
            self._note_folders(self.root.host_path(missing) for missing in files.missing_folders(target.parent))
            if path not in self.originals:
                self.originals[path] = self._keep(step, path)
        for service in services:
            for notes in (self.services, self.pending):
                if service not in notes:
                    notes.append(service)
        self._save()

    def restarted(self, service: str) -> None:
        """Notes that a service runs with what is on the disk.

        Raises:
            HostError: The journal can't be written.
        """
        if service in self.pending:
            self.pending.remove(service)
            self._save()

    def owe(self, services: Iterable[str]) -> None:
        """Notes that services have to be restarted.

        Raises:
            HostError: The journal can't be written.
        """
        more = [service for service in services if service not in self.pending]
        if more:
            self.pending.extend(more)
            self._save()

    def content_of(self, original: Original) -> bytes | None:
        """Gives the original bytes, None where there was no file.

        Raises:
            HostError: They are missing or damaged.
        """
        if original.sha256 is None:
            return None
        content = self.root.read_bytes(f"{_ORIGINALS}/{original.sha256}")
        if content is None or hashlib.sha256(content).hexdigest() != original.sha256:
            raise HostError(
                f"The original of {original.path} in {_ORIGINALS} is missing or damaged.",
                f"Put {original.path} right by hand, then remove {FOLDER}.",
            )
        return content

    def close(self) -> None:
        """Forgets everything, the journal first: a kill after it leaves only what the next run sweeps away.

        Raises:
            HostError: The journal can't be removed.
        """
        files.remove(self.root.path(_JOURNAL))
        shutil.rmtree(str(self.root.path(FOLDER)), ignore_errors=True)
        for folder in self.folders:
            # A folder in which somebody else has put something stays.
            with contextlib.suppress(OSError):
                self.root.path(folder).rmdir()

    def _note_folders(self, folders: Iterable[str]) -> None:
        self.folders[:0] = [folder for folder in folders if folder not in self.folders]

    def _keep(self, step: str, path: str) -> Original:
        target = self.root.target(path)
        content = self.root.read_bytes(path)
        owner = files.owner_of(target)
        if content is None or owner is None:
            return Original(path, step, None, None)
        sha256 = hashlib.sha256(content).hexdigest()
        # Private to root, whatever the original's mode: it may hold a registry's password.
        files.replace(self.root.path(f"{_ORIGINALS}/{sha256}"), content, Owner(_PRIVATE, os.geteuid(), os.getegid()))
        return Original(path, step, sha256, owner)

    def _save(self) -> None:
        data = {
            "version": 1,
            "files": [
                {
                    "path": original.path,
                    "step": original.step,
                    "sha256": original.sha256,
                    "mode": original.owner.mode if original.owner else None,
                    "uid": original.owner.uid if original.owner else None,
                    "gid": original.owner.gid if original.owner else None,
                }
                for original in self.originals.values()
            ],
            "folders": self.folders,
            "services": self.services,
            "pending": self.pending,
        }
        content = json.dumps(data, indent=1).encode()
        files.replace(self.root.path(_JOURNAL), content, Owner(_PRIVATE, os.geteuid(), os.getegid()))


def _original(item: dict[str, Any]) -> Original:
    owner = None if item["mode"] is None else Owner(item["mode"], item["uid"], item["gid"])
    return Original(item["path"], item["step"], item["sha256"], owner)
