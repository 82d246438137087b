"""Detached processes: start, recognise, stop."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GRACE_SECONDS = 5.0
"""How long a process may take to stop by itself before it is killed."""


@dataclass(frozen=True)
class Running:
    """A process that was seen running: `started` tells it from a later process with the same number."""

    pid: int
    started: str


def start(arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> Running:
    """Start a program in `folder`, in a session of its own, its output appended to `log`.

    Raises:
        OSError: the program can't be executed or the log can't be written.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # Not os.posix_spawn: `setsid` is missing in a Python built for a glibc before 2.26, as uv's are.
        process = subprocess.Popen(
            list(arguments),
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    # It outlives us: the object would warn of that when it is dropped, and wait for it whenever another one is made.
    process.returncode = 0
    return Running(process.pid, _started(process.pid) or "")


def alive(process: Running) -> bool:
    """Whether exactly this process still runs."""
    with suppress(ChildProcessError):
        # A dead child of ours stays in the process table until it is waited for.
        os.waitpid(process.pid, os.WNOHANG)
    return bool(process.started) and _started(process.pid) == process.started


def stop(process: Running) -> None:
    """Stop a process and wait until it is gone; a number that another process took over is left alone."""
    for number, patience_seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        if not alive(process):
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        deadline = time.monotonic() + patience_seconds
        while alive(process) and time.monotonic() < deadline:
            time.sleep(0.02)


def find(program: str, folder: Path) -> Iterator[Running]:
    """Processes that run `program` on the data of `folder`, whoever started them.

    A start that was killed between starting a process and recording it leaves one that only its arguments identify.
    """
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or [""]
        works_here = any(argument.startswith("--") and f"={folder}{os.sep}" in argument for argument in arguments)
        is_program = Path(arguments[0]).name == program or program in arguments[1:]
        if works_here and is_program and (started := _started(process.pid)):
            yield Running(process.pid, started)


def _started(pid: int) -> str | None:
    """What tells this process from any other that ever had its number; None if it does not run."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # Since the machine's start: both times move when the clock is set.
        return f"{process.create_time() - psutil.boot_time():.2f}"
    except psutil.Error:
        return None
