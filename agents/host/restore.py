"""`restore`: the host as it was before the first `configure`, byte for byte; also after a run that was killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agents.host import files, service, step_containerd, step_docker
from agents.host.configure import say
from agents.host.journal import Journal
from agents.host.lock import only_run
from agents.host.plan import Step, change

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.journal import Original

_RESTART_SECONDS = 120.0


@dataclass
class Restored:
    """What was put back, as far as it came."""

    steps: list[Step] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        """The JSON answer, in the shape of `configure`'s."""
        return {
            "changed": bool(self.steps or self.restarted),
            "steps": [step.answer() for step in self.steps],
            "restarted": self.restarted,
            "rolled_back": False,
        }


def restore(tools: Tools, restored: Restored) -> None:
    """Puts every original back and restarts what ran with something else.

    Imported images stay: pods may run from them.

    Raises:
        HostError: A file can't be put back, or a runtime does not come up; running it again goes on from there.
    """
    # Without a journal there is nothing to guard, and nothing to write on a host that was never changed.
    if Journal.load(tools.root).is_empty:
        return
    with only_run(tools.root):
        journal = Journal.load(tools.root)
        touched = {
            original.step for original in journal.originals.values() if _put_back(tools, journal, original, restored)
        }
        journal.owe(name for name in journal.services if _step_of(name) in touched)
        for name in list(journal.pending):
            if service.is_gone(tools, name):
                say(f"{name} is not on this host any more: nothing to restart")
            else:
                say(f"restarting {name}")
                service.by_name(tools, name).bring_up(tools, _RESTART_SECONDS)
                restored.restarted.append(name)
            journal.restarted(name)
        journal.close()


def _put_back(tools: Tools, journal: Journal, original: Original, restored: Restored) -> bool:
    content = journal.content_of(original)
    target = tools.root.target(original.path)
    changes = change(tools.root, original.path, content)
    if content is None or original.owner is None:
        files.remove(target)
    elif changes or files.owner_of(target) != original.owner:
        files.make_folders(target.parent)
        files.replace(target, content, original.owner)
    files.remove(files.temporary_of(target))
    for planned in changes:
        say(planned.diff)
    if changes:
        restored.steps.append(Step(original.step, f"{original.path} is what it was", changes))
    return bool(changes)


def _step_of(name: str) -> str:
    return step_docker.NAME if name == "docker" else step_containerd.NAME
