"""What a machine's process list shows to everybody."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def sampled_command_lines() -> Iterator[set[str]]:
    """Command lines of every process that ran while the block did, as far as a busy look at /proc sees them."""
    seen: set[str] = set()
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            over.wait(0.02)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield seen
    finally:
        over.set()
        sampler.join()
