"""Whose a file is by now, and how what is ours is taken out of it.

What nobody has changed since this agent wrote it gets its original bytes back. Of what somebody has changed, only this
agent's own part is taken out, where the file has parts; else it stays, with the original beside it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional, Tuple

from agents.host.change.files import PRIVATE, Owner
from agents.host.change.plan import Change, change
from agents.host.errors import HostError
from agents.host.steps import cdi as step_cdi
from agents.host.steps import containerd as step_containerd
from agents.host.steps import docker as step_docker
from agents.host.steps import toolkit as step_toolkit

if TYPE_CHECKING:
    from agents.host.change.journal import Journal, Original
    from agents.host.root import Root

_Left = Tuple[Optional[bytes], str]
"""What stays of a file, and what a person should know."""
_SHOWN_CHARACTERS = 12


@dataclass(frozen=True)
class TakenBack:
    """What has to change for a file to hold nothing of this agent's, and what a person should know of it.

    Attributes:
        changes: Of the file, and of what is kept beside it.
        note: For a person.
        stays: Whether this agent's part can't be taken out by now, but perhaps later.
    """

    changes: tuple[Change, ...]
    note: str = ""
    stays: bool = False

    def edits(self, original: Original) -> bool:
        """Whether the file itself changes, so that what reads it has to be restarted."""
        return any(planned.path == original.path for planned in self.changes)


def taken_back(root: Root, journal: Journal, original: Original) -> TakenBack:
    """Work out how a file gets rid of what this agent wrote; without changes where nothing is left of it.

    Raises:
        HostError: What the journal keeps is damaged.
    """
    former = journal.content_of(original)
    try:
        return _taken_back(root, journal, original, former)
    except HostError as error:
        return TakenBack(beside(root, original.path, former), f"{error.message.rstrip('.')}: left as it is", stays=True)


def before_overwriting(root: Root, journal: Journal, planned: Change) -> tuple[Change, ...]:
    """Keep what somebody else made of a file since this agent wrote it, before it is written again.

    Where the file has parts, theirs become what `restore` gives back. Else a copy is made beside it.

    Raises:
        HostError: What the journal keeps is damaged, or can't be written.
    """
    original, current = journal.originals.get(planned.path), planned.before
    if original is None or current == journal.content_of(original):
        return ()
    if current is None:
        journal.rebase(original, None, planned)
        return ()
    if journal.is_as_written(original, current):
        return ()
    if not _has_parts(original):
        if _looks_written(original, current):
            journal.adopt(original, current)
            return ()
        return beside(root, planned.path, current)
    # What is written again was the agent's before: its values go back to what was there first.
    journal.rebase(original, _edited(journal, original, current, every=True)[0], planned)
    return ()


def beside(root: Root, path: str, content: bytes | None) -> tuple[Change, ...]:
    """The change that keeps content beside a file, for root alone, where no runtime reads it.

    A drop-in's lies beside its folder, of which an import may take in every file.
    """
    if content is None:
        return ()
    folder, _, file = path.rpartition("/")
    place = f"{folder.rpartition('/')[0]}/{file}" if step_containerd.is_whole(path) else path
    name = f"{place}.kept-{hashlib.sha256(content).hexdigest()[:_SHOWN_CHARACTERS]}"
    before = root.read_bytes(name)
    return () if before == content else (Change(name, before, content, Owner(PRIVATE, os.geteuid(), os.getegid())),)


def _taken_back(root: Root, journal: Journal, original: Original, former: bytes | None) -> TakenBack:
    path = original.path
    root.target(path)  # What is no file is refused.
    current = root.read_bytes(path)
    if current == former:
        return TakenBack(())
    if current is None:
        return TakenBack((), f"{path} was removed by somebody else: left so")
    needed = step_containerd.needed_by_others(root, journal, original) if original.step == step_containerd.NAME else ""
    if needed:
        return TakenBack((), f"{path} stays: {needed}", stays=True)
    left, note = (former, "") if journal.is_as_written(original, current) else _edited(journal, original, current)
    if left is None and journal.leads_elsewhere(original):
        return TakenBack((), f"{path} is a link that somebody else made: left as it is, with the file that it leads to")
    if left == current and original.step == step_docker.NAME and step_docker.needed_by_others(former, left):
        return TakenBack((), f"{path} stays: somebody else made nvidia the default runtime", stays=True)
    # What stays as a whole does not hold the original any more.
    copies = beside(root, path, former) if left == current and not _has_parts(original) else ()
    changes = change(root, path, left)
    if left == former and original.owner and step_containerd.is_whole(path):
        # It was made private, since it repeated what others may not read.
        changes = tuple(replace(planned, owner=original.owner) for planned in changes)
    return TakenBack(changes + copies, "" if left == former else note)


def _edited(journal: Journal, original: Original, current: bytes, *, every: bool = False) -> _Left:
    """What is left of a file that is neither what was there nor what was written.

    Raises:
        HostError: It can't be taken apart, or what the journal keeps is damaged.
    """
    former = journal.content_of(original)
    if not _has_parts(original):
        if _looks_written(original, current):
            return former, ""
        return current, f"{original.path} was changed by somebody else: left as it is"
    written = journal.written_to(original)
    if original.step == step_docker.NAME:
        left = step_docker.without_ours(former, written, current, every=every)
    elif original.step == step_containerd.NAME:
        left = step_containerd.without_ours(original.path, former, current)
    else:
        left = step_toolkit.without_ours(former, written, current, every=every)
    return left, f"{original.path} was changed by somebody else: only what this agent added is taken out"


def _has_parts(original: Original) -> bool:
    return original.step != step_cdi.NAME and not step_containerd.is_whole(original.path)


def _looks_written(original: Original, current: bytes) -> bool:
    """Whether a file is this agent's where the journal does not tell."""
    if original.written:
        return False
    if original.step == step_cdi.NAME:
        return step_cdi.looks_written(current)
    return step_containerd.looks_written(original.path, current)
