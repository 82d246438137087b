"""What a run would change, worked out before the first write."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.host.change import files
from agents.host.change.files import Owner

if TYPE_CHECKING:
    from agents.host.root import Root
    from agents.host.steps.service import Service

# A file of JSON may be one line, so a key stands anywhere.
_SECRET_KEY = re.compile(
    r"""(?i)((?<![\w.-])[\w.-]*(?:passw|auth|token|secret|credential|(?:api|private)[_-]?key)[\w.-]*["']?\s*[=:]\s*).+$"""
)
_NO_VALUE = re.compile(r"(---|\+\+\+|@@) .*|.\s*(\[\[?[^\]]*\]\]?|[][{},]*)\s*")
_KEY = re.compile(r"""(.\s*[\w.*/"'-]+\s*[=:]\s*)\S.*""")
"""Lines of a diff: a table, a bracket or the like, and a key with its value."""
_URL_LOGIN = re.compile(r"(://)[^/\s\"']+@")
_READABLE = 0o644
_OTHERS = 0o077


@dataclass(frozen=True)
class Change:
    """One file's content, before and after; None stands for no file."""

    path: str
    before: bytes | None
    after: bytes | None
    owner: Owner
    hidden: bool = False
    """Whether it is for its owner alone, so that of its lines only the keys are shown."""

    @property
    def diff(self) -> str:
        """A unified diff in which values that look secret are masked; what is new where only mode and owners change."""
        if self.before == self.after:
            return f"{self.path}: mode {self.owner.mode:04o}, owner {self.owner.uid}:{self.owner.gid}"
        lines = difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            "/dev/null" if self.before is None else self.path,
            "/dev/null" if self.after is None else self.path,
            lineterm="",
        )
        return "\n".join((_keys_alone if self.hidden else _masked)(line) for line in lines)


@dataclass(frozen=True)
class Step:
    """One part of the plan.

    Attributes:
        name: The step, one word.
        detail: What it comes to, for a person.
        changes: The files that change.
        service: What must be restarted for it to be in force; None where nothing or where it already is.
        images: References of images to import.
    """

    name: str
    detail: str
    changes: tuple[Change, ...] = ()
    service: Service | None = None
    images: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the step does anything."""
        return bool(self.changes or self.service or self.images)

    def answer(self) -> dict[str, Any]:
        """The step as it stands in the JSON answer."""
        return {
            "name": self.name,
            "changed": self.changed,
            "detail": self.detail,
            "files": [{"path": change.path, "diff": change.diff} for change in self.changes],
        }


def change(root: Root, path: str, after: bytes | None, *, like: str | None = None) -> tuple[Change, ...]:
    """The change that makes a file `after`; empty where it is that already.

    Args:
        root: The host.
        path: The file's host path.
        after: Its content, None for no file.
        like: A file whose mode and owners a new file takes over, since it repeats what stands there.
    """
    return change_of(root, path, root.read_bytes(path), after, like=like)


def private_change(root: Root, path: str, after: bytes) -> tuple[Change, ...]:
    """The change that makes a file `after`, for root alone whoever could read it before; empty where it is that."""
    before, owner = root.read_bytes(path), Owner(files.PRIVATE, os.geteuid(), os.getegid())
    if before == after and files.owner_of(root.target(path)) == owner:
        return ()
    return (Change(path, before, after, owner, hidden=True),)


def change_of(
    root: Root, path: str, before: bytes | None, after: bytes | None, *, like: str | None = None
) -> tuple[Change, ...]:
    """Likewise, where `after` was worked out from `before`: a file that changes meanwhile is not written over."""
    if before == after:
        return ()
    owner = files.owner_of(root.target(path)) or (files.owner_of(root.target(like)) if like else None)
    owner = owner or Owner(_READABLE, os.geteuid(), os.getegid())
    return (Change(path, before, after, owner, hidden=not owner.mode & _OTHERS),)


def _lines(content: bytes | None) -> list[str]:
    return [] if content is None else content.decode("utf-8", "replace").splitlines()


def _masked(line: str) -> str:
    return _URL_LOGIN.sub(r"\1***@", _SECRET_KEY.sub(r"\1***", line))


def _keys_alone(line: str) -> str:
    if _NO_VALUE.fullmatch(line):
        return line
    key = _KEY.fullmatch(line)
    return f"{key.group(1) if key else line[:1]}***"
