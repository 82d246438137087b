"""One start of a pod's program."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from simulator.pods import addresses, launcher


class Process:
    """A running program at an address of its own.

    Attributes:
        address: where each of its ports is.
    """

    def __init__(self, process: asyncio.subprocess.Process, listener: int | None, answers: addresses.Answers) -> None:
        self.address = answers.address
        self._answers = answers
        self._process = process
        self._listener = listener
        if listener is not None:
            asyncio.get_running_loop().add_reader(listener, self._answer, listener)

    async def ended(self) -> int:
        """Wait for the end, and give the status; the signal's number, negative, where one ended it."""
        code = await self._process.wait()
        # The group outlives its leader where the program left children.
        self._signal(signal.SIGKILL)
        self._close()
        return code

    async def stop(self, grace_seconds: float) -> None:
        """Ask it to end, and its children; kill what has not ended after `grace_seconds` seconds."""
        if self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        self._signal(signal.SIGKILL)
        await self.ended()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answer(self, listener: int) -> None:
        try:
            more = self._answers.answer(listener)
        except OSError:
            more = False
        if not more:
            self._close()

    def _close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            os.close(self._listener)
            self._listener = None


async def start(  # noqa: PLR0913, PLR0917 - what a process has
    command: Sequence[str],
    variables: Mapping[str, str],
    directory: Path,
    log: Path,
    name: str = "pod",
    mounts: Sequence[str] = (),
) -> Process:
    """Start a program; it dies with this process. What goes wrong after the start stands in its log.

    Args:
        command: the program and its arguments.
        variables: its environment.
        directory: where it runs.
        log: gets its output.
        name: how its machine is called.
        mounts: paths that it has below `directory`, and not on this machine.

    Raises:
        OSError: the log or the folder can't be used.
    """
    ours, theirs = socket.socketpair()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", launcher.__file__, str(theirs.fileno()), str(os.getpid()), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(variables),
            cwd=directory,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(output)
        theirs.close()
    with ours:
        # Nothing comes where the launcher fails.
        _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 1, 1)
    answers = addresses.Answers(addresses.any_address(), name, mounts)
    return Process(process, descriptors[0] if descriptors else None, answers)
