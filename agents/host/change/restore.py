"""`restore`: the host as it was before the first `configure`, byte for byte but for what others changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.host.change import files, ownership
from agents.host.change.configure import say, write
from agents.host.change.journal import FOLDER, ORIGINALS, Journal
from agents.host.change.lock import only_run
from agents.host.change.plan import Step
from agents.host.errors import HostError
from agents.host.steps import containerd as step_containerd
from agents.host.steps import docker as step_docker
from agents.host.steps import service

if TYPE_CHECKING:
    from agents.host.change.journal import Original
    from agents.host.change.ownership import TakenBack
    from agents.host.commands import Tools


@dataclass
class Restored:
    """What was put back, as far as it came."""

    steps: list[Step] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    left_to: str | None = None
    """The stack that has configured the host since, so that nothing was put back."""

    def answer(self) -> dict[str, Any]:
        """The JSON answer, in the shape of `configure`'s."""
        return {
            "changed": any(step.changed for step in self.steps) or bool(self.restarted),
            "steps": [step.answer() for step in self.steps],
            "restarted": self.restarted,
            "rolled_back": False,
        }


def restore(tools: Tools, restored: Restored, *, stack: str | None = None) -> None:
    """Take back what this agent wrote and nobody has changed since, and restart what ran with it.

    Imported images stay: pods may run from them. Where a stack is named and another one has configured the host since,
    nothing is put back.

    Raises:
        HostError: A file can't be put back, or a runtime does not come up; running it again goes on from there. Or what
            the journal keeps of a file is damaged; everything else is back then.
    """
    # There is nothing to guard, so that a host that was never changed stays untouched, even by a lock.
    if Journal.load(tools.root).is_absent:
        return
    with only_run(tools.root):
        journal = Journal.load(tools.root)
        if journal.is_empty:
            journal.sweep()
            return
        if stack is not None and journal.stack not in {None, stack}:
            restored.left_to = journal.stack
            say(f"stack {journal.stack} has configured this host since, so it is left as it is")
            return
        damaged = [original.path for original in journal.originals.values() if not journal.has_content_of(original)]
        planned = [
            (original, ownership.taken_back(tools.root, journal, original))
            for original in journal.originals.values()
            if original.path not in damaged
        ]
        touched = {original.step for original, taken in planned if taken.edits(original)}
        # Before the first file changes, so that a kill does not lose the restart.
        journal.owe(name for name in journal.services if _step_of(name) in touched)
        for original, taken in planned:
            _put_back(tools, original, taken, restored)
        for name in list(journal.pending):
            if service.is_gone(tools, name):
                say(f"there is no service {name} on this host: nothing to restart")
            else:
                say(f"restarting {name}")
                # A run has more than twice the time that the settings give to a restart (config/hosts.py).
                service.by_name(tools, name).bring_up(tools, tools.deadline.seconds / 2)
                restored.restarted.append(name)
            journal.restarted(name)
        if damaged:
            journal.forget([original for original, _ in planned])
            raise _without(damaged)
        journal.close()


def _without(damaged: list[str]) -> HostError:
    paths = ", ".join(damaged)
    return HostError(
        f"What is kept of {paths} in {ORIGINALS} is missing or damaged. Everything else was taken back.",
        f"Put {paths} right by hand, then remove {FOLDER}.",
    )


def _put_back(tools: Tools, original: Original, taken: TakenBack, restored: Restored) -> None:
    for planned in taken.changes:
        write(tools, planned)
        say(planned.diff)
    place = Path(original.target) if original.target else tools.root.path(original.path)
    files.remove(files.temporary_of(place))
    detail = taken.note or f"{original.path} is what it was"
    if taken.changes or taken.note:
        say(detail)
        restored.steps.append(Step(original.step, detail, taken.changes))


def _step_of(name: str) -> str:
    return step_docker.NAME if name == "docker" else step_containerd.NAME
