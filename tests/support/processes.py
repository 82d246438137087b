"""What a machine's process list shows to everybody."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def command_lines() -> Iterator[tuple[Path, bytes]]:
    """Each process's folder below /proc and its command line; those that end meanwhile are left out.

    `Path.glob` would look for each `cmdline` by itself, and fail at a process that has just ended.
    """
    for pid in psutil.pids():
        folder = Path("/proc", str(pid))
        with suppress(OSError):
            yield folder, (folder / "cmdline").read_bytes()


@contextmanager
def sampled_command_lines() -> Iterator[set[str]]:
    """Command lines of every process that ran while the block did, as far as a busy look at /proc sees them."""
    seen: set[str] = set()
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            seen.update(line.replace(b"\0", b" ").decode(errors="replace") for _, line in command_lines())
            over.wait(0.02)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield seen
    finally:
        over.set()
        sampler.join()
