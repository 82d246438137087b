"""Running other programs: bounded in time, never through a shell, output captured."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.host.root import Root

_LAST_CHARACTERS = 2000
_DYING_SECONDS = 5


class Deadline:
    """A point in time that the whole run must not pass."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, at_most: float | None = None) -> float:
        """The seconds that are left, at least a tenth, at most `at_most`."""
        left = max(self._end - time.monotonic(), 0.1)
        return left if at_most is None else min(left, at_most)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end


@dataclass(frozen=True)
class Finished:
    """How a program ended and what it printed."""

    command: tuple[str, ...]
    code: int
    output: str
    errors: str

    @property
    def trouble(self) -> str:
        """Its last words, without what was only a warning."""
        lines = (self.errors.strip() or self.output.strip()).splitlines()
        grave = [line for line in lines if "level=warning" not in line and "level=info" not in line]
        return "\n".join(grave or lines[-1:] or ["it printed nothing"])[-_LAST_CHARACTERS:]


class Tools:
    """The programs of one host."""

    def __init__(self, root: Root, deadline: Deadline) -> None:
        self.root = root
        self.deadline = deadline

    def find(self, name: str) -> str | None:
        """A program's path on this machine, None where it is missing."""
        return shutil.which(name, path=os.pathsep.join(self.root.program_folders()))

    def need(self, name: str, remedy: str) -> str:
        """Like `find`.

        Raises:
            HostError: It is missing.
        """
        program = self.find(name)
        if program is None:
            raise HostError(f"There is no `{name}` on this host.", remedy)
        return program

    def run(
        self, command: Sequence[str], *, seconds: float = 60, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a program to its end; an exit status other than 0 is the caller's to judge.

        Raises:
            HostError: It can't be started, or took longer than `seconds` or than the run has left.
        """
        limit = self.deadline.left(seconds)
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(
                f"`{command[0]}` can't be started: {error.strerror}.",
                "Check that it is executable and built for this host's architecture.",
            ) from error
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"`{' '.join(command)}` timed out after {limit:.0f} s.", "See what it waits for; run it by hand."
            ) from error
        finally:
            # A grandchild may hold on to what it was given.
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                # What hangs inside a driver can't be killed before the driver lets go: it is left behind.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_DYING_SECONDS)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        return Finished(
            tuple(command), process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
        )

    def check(self, command: Sequence[str], remedy: str, *, seconds: float = 60) -> Finished:
        """Run a program that must succeed.

        Raises:
            HostError: It failed, can't be started or took too long.
        """
        finished = self.run(command, seconds=seconds)
        if finished.code:
            raise HostError(f"`{' '.join(command)}` exited with {finished.code}: {finished.trouble}", remedy)
        return finished

    def output_of(self, name: str, *arguments: str) -> str | None:
        """What a program prints, None where it is missing or fails: what `probe` may ask."""
        program = self.find(name)
        if program is None:
            return None
        try:
            finished = self.run([program, *arguments], seconds=10)
        except HostError:
            return None
        return finished.output if finished.code == 0 else None

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables programs run with: the C locale, and PATH with the usual folders."""
        variables = dict(os.environ)
        variables["LC_ALL"] = "C"
        variables["PATH"] = os.pathsep.join(self.root.program_folders())
        variables.update(more or {})
        return variables
