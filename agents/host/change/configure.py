"""`configure` and `check`: work out what differs, then change it, or say so.

Everything is computed, and tried with the distribution's own programs, before the first write.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.host.change import files, ownership
from agents.host.change.journal import Journal
from agents.host.change.lock import only_run
from agents.host.change.plan import Change, Step
from agents.host.commands import Deadline, Tools
from agents.host.context import Context
from agents.host.errors import HostError, RolledBackError
from agents.host.look import distribution, probe
from agents.host.look.distribution import Mechanism
from agents.host.look.runtime import NVIDIA_FILE
from agents.host.steps import cdi as step_cdi
from agents.host.steps import containerd as step_containerd
from agents.host.steps import docker as step_docker
from agents.host.steps import images as step_images
from agents.host.steps import service
from agents.host.steps import toolkit as step_toolkit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from agents.host.change.files import Owner
    from agents.host.change.journal import Original
    from agents.host.desired import Desired
    from agents.host.steps.service import Service

_ROLLBACK_SECONDS = 120.0
_LEFTOVERS = "leftovers"


@dataclass
class Result:
    """What a run did, as far as it came."""

    steps: list[Step] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    rolled_back: bool = False

    def answer(self) -> dict[str, Any]:
        """The JSON answer."""
        return {
            "changed": any(step.changed for step in self.steps) and not self.rolled_back,
            "steps": [step.answer() for step in self.steps],
            "restarted": self.restarted,
            "rolled_back": self.rolled_back,
        }


def configure(tools: Tools, desired: Desired, result: Result, *, dry_run: bool, stack: str | None = None) -> None:
    """Bring the host to what is desired; `result` tells how far it came, also when this fails.

    Once that is done, the host is the stack's, where one is named: no other one restores it.

    Raises:
        HostError: It can't; nothing was changed, or what was changed is back (`rolled_back`), or a later run or
            `restore` goes on from here.
    """
    if dry_run:
        with _planned(tools, desired, result):
            return
    _need_root(tools)
    with only_run(tools.root), _planned(tools, desired, result) as context:
        _apply(context, result)
        context.journal.belong_to(stack)


def check(tools: Tools, desired: Desired, result: Result) -> None:
    """What `configure` would do; changes nothing.

    Raises:
        HostError: The host can't be judged.
    """
    with _planned(tools, desired, result):
        return


@contextlib.contextmanager
def _planned(tools: Tools, desired: Desired, result: Result) -> Iterator[Context]:
    try:
        staging = Path(tempfile.mkdtemp(prefix="kai-anywhere-host-", dir=_staging_place(tools)))
    except OSError as error:
        raise _no_staging(error) from error
    try:
        yield _plan(tools, desired, result, staging)
    finally:
        shutil.rmtree(str(staging), ignore_errors=True)


def _plan(tools: Tools, desired: Desired, result: Result, staging: Path) -> Context:
    try:
        hardware = probe.hardware(tools)
        _refuse_other_platform(desired, hardware)
        layout = distribution.chosen(tools.root, desired.distribution)
        journal = Journal.load(tools.root)
        context = Context(tools, desired, hardware, layout, journal, staging)
        plans = (step_toolkit.plan, step_containerd.plan, step_docker.plan, step_cdi.plan)
        steps = [plan(context) for plan in plans]
        steps += _no_longer_wanted(context, steps)
        steps.append(step_images.plan(context))
        result.steps = steps
        for step in steps:
            say(f"{step.name}: {step.detail}")
            for planned in step.changes:
                say(planned.diff)
    except OSError as error:
        raise _no_staging(error) from error
    return context


def _staging_place(tools: Tools) -> str | None:
    """/run for this machine: what a killed run leaves there, perhaps a registry's password, no boot keeps."""
    return "/run" if tools.root.is_machine and os.access("/run", os.W_OK) else None


def _no_staging(error: OSError) -> HostError:
    return HostError(
        f"Candidates can't be tried in a temporary folder: {error.strerror}.",
        "Make room in /run, or where that is not writable in TMPDIR; nothing was changed.",
    )


def _apply(context: Context, result: Result) -> None:
    tools, journal = context.tools, context.journal
    services = list({step.service.name: step.service for step in result.steps if step.service}.values())
    owed, earlier = tuple(journal.pending), frozenset(journal.originals)
    changes = _begin(context, result.steps, services)
    written: list[tuple[Change, Owner]] = []
    attempted: list[Service] = []
    try:
        for planned in changes:
            _refuse_changed_meanwhile(tools, planned)
            files.make_folders(tools.root.target(planned.path).parent)
            written.append((planned, files.owner_of(tools.root.target(planned.path)) or planned.owner))
            write(tools, planned)
        for service in services:
            say(f"restarting {service.name}")
            attempted.append(service)
            service.bring_up(tools, context.desired.restart_seconds)
            _refuse_unfound_runtime(context, service)
            journal.restarted(service.name)
            result.restarted.append(service.name)
    except HostError as error:
        if not changes:
            raise
        if written:
            _roll_back(context, written, attempted, error)
        # One that was not even tried still runs with what is back now.
        _forget_this_run(context, earlier, {service.name for service in services}.difference(owed))
        if not written:
            raise
        result.rolled_back = True
        raise RolledBackError(f"{error.message} What was there before is back in force.", error.remedy) from error
    journal.forget([original for original in _leftovers(context, result.steps) if _is_back(context, original)])
    for step in result.steps:
        for reference in step.images:
            say(f"importing {reference}")
            step_images.import_image(tools, context.layout, reference)


def _begin(context: Context, steps: list[Step], services: list[Service]) -> list[Change]:
    """Note in the journal what is about to happen, and give every change, in order."""
    root, journal = context.tools.root, context.journal
    changes = [planned for step in steps for planned in step.changes]
    if not changes and not services:
        return []
    ours = [(step.name, planned) for step in steps if step.name != _LEFTOVERS for planned in step.changes]
    copies = [copy for _, planned in ours for copy in ownership.before_overwriting(root, journal, planned)]
    for copy in copies:
        say(f"somebody else changed a file that is written again: theirs is kept as {copy.path}")
    journal.begin(ours, [service.name for service in services])
    return [*copies, *changes]


def _roll_back(
    context: Context, written: list[tuple[Change, Owner]], attempted: list[Service], error: HostError
) -> None:
    say(f"rolling back: {error.message}")
    # The run's own time may be what ran out.
    tools = Tools(context.tools.root, Deadline(max(_ROLLBACK_SECONDS, context.desired.restart_seconds)))
    try:
        for planned, former in reversed(written):
            # The write that failed has changed nothing, and would fail again; what somebody changed since is theirs.
            if tools.root.read_bytes(planned.path) == planned.after:
                write(tools, Change(planned.path, planned.after, planned.before, former))
        for service in attempted:
            service.bring_up(tools, context.desired.restart_seconds)
            context.journal.restarted(service.name)
    except HostError as second:
        raise HostError(
            f"{error.message} Rolling back failed too: {second.message}",
            "Run `restore` on the host; it knows the originals. " + error.remedy,
        ) from second


def _forget_this_run(context: Context, earlier: Collection[str], restarts: Iterable[str]) -> None:
    """Take what a run noted, and what is back now, out of the journal: what a file becomes later is somebody else's."""
    journal = context.journal
    for name in restarts:
        journal.restarted(name)
    new = [original for path, original in journal.originals.items() if path not in earlier]
    journal.forget([original for original in new if _is_back(context, original)])
    if not (journal.originals or journal.pending):
        journal.close()


def write(tools: Tools, planned: Change) -> None:
    """Make a file what it shall be.

    Raises:
        HostError: It can't; the file is what it was.
    """
    target = tools.root.target(planned.path)
    if planned.after is None:
        files.remove(target)
    else:
        files.replace(target, planned.after, planned.owner)


def _refuse_changed_meanwhile(tools: Tools, planned: Change) -> None:
    if tools.root.read_bytes(planned.path) != planned.before:
        raise HostError(f"{planned.path} was changed by somebody else while this ran.", "Run it again.")


def _no_longer_wanted(context: Context, steps: list[Step]) -> list[Step]:
    """Take back what an earlier run changed and this document does not ask for any more: a step for each file."""
    restarts = {step_containerd.NAME: service.for_layout(context.layout)}
    if service.has_docker(context.tools):
        restarts[step_docker.NAME] = service.docker()
    left = []
    for original in _leftovers(context, steps):
        taken = ownership.taken_back(context.tools.root, context.journal, original)
        # The journal goes on to hold the original of what stays: no copy is needed.
        changes = () if taken.stays else taken.changes
        what = "is taken back, since it is no longer asked for" if changes else "is what it was"
        restart = restarts.get(original.step)
        if restart and not taken.edits(original) and not context.owes_restart(restart.name):
            restart = None
        left.append(Step(_LEFTOVERS, taken.note or f"{original.path} {what}", changes, restart))
    return left or [Step(_LEFTOVERS, "nothing to take back")]


def _is_back(context: Context, original: Original) -> bool:
    """Whether a file holds nothing of this agent's any more, so that what it becomes is no concern of a later run."""
    taken = ownership.taken_back(context.tools.root, context.journal, original)
    return not taken.changes and not taken.stays


def _leftovers(context: Context, steps: list[Step]) -> list[Original]:
    """The files that an earlier run changed and that this document does not ask for any more."""
    by_host = context.desired.toolkit.owner == "host"
    enabled = {
        step_toolkit.NAME: by_host,
        step_containerd.NAME: by_host,
        step_docker.NAME: context.desired.docker.configure,
        step_cdi.NAME: context.desired.cdi.generate,
    }
    mentioned = {planned.path for step in steps if step.name != _LEFTOVERS for planned in step.changes}
    # The GPU Operator's own file relies on the others.
    only_nvidia = context.layout.mechanism is Mechanism.DROP_IN
    return [
        original
        for original in context.journal.originals.values()
        if not enabled.get(original.step, True)
        and original.path not in mentioned
        and (original.step != step_containerd.NAME or not only_nvidia or original.path.endswith(NVIDIA_FILE))
    ]


def _refuse_other_platform(desired: Desired, hardware: probe.Hardware) -> None:
    board = hardware.board
    if board.kind != desired.platform:
        raise HostError(
            f"The stack says this host is '{desired.platform}', but it is '{board.kind}' ({board.architecture}): "
            f"{'; '.join(board.reasons)}.",
            "Correct the platform in the stack's settings, or the host's address; nothing was changed.",
        )


def _refuse_unfound_runtime(context: Context, restarted: Service) -> None:
    """k3s and rke2 say nothing when they do not find the runtime."""
    own = context.layout.mechanism is Mechanism.OWN and restarted.name == context.layout.unit
    if own and context.desired.toolkit.owner == "host" and not step_containerd.finds_nvidia(context):
        raise HostError(
            f"{context.layout.name} restarted, but {context.layout.effective} still lacks the nvidia runtime.",
            f"See that the PATH of the unit {context.layout.unit} holds nvidia-container-runtime.",
        )


def _need_root(tools: Tools) -> None:
    if tools.root.is_machine and os.geteuid() != 0:
        raise HostError("Changing this host needs root.", "Run the agent with sudo.")


def say(text: str) -> None:
    """Print progress to stderr; a cut connection must not end the run halfway."""
    if text:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
