"""What a person sees on stderr while something long runs: a bar on a terminal, a line every few seconds elsewhere."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

PLAIN_INTERVAL_SECONDS = 10.0
MEBIBYTE = 1 << 20
_SECONDS_PER_MINUTE = 60
_BAR_FROM_COLUMNS = 80
"""On a narrower terminal the title and the numbers need the room."""

Describe = Callable[[int, int], str]


def say(line: str) -> None:
    """Write one line to stderr: stdout belongs to tables and to the programs that `run` starts."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def redraws(stream: TextIO) -> bool:
    """Whether a block on this stream can be kept up to date: a terminal that moves its cursor, and no log of CI.

    FORCE_COLOR asks for colours, not for this.
    """
    return stream.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"} and not os.environ.get("CI")


def packages(done: int, total: int) -> str:
    """Describe progress in Go packages, where linking follows the last one."""
    return f"{done} of {total} packages" if done < total else "linking"


def mebibytes(done: int, total: int) -> str:
    """Describe progress in bytes; a total of 0 means that the server did not tell the size."""
    have = f"{done / MEBIBYTE:.1f}"
    return f"{have} of {total / MEBIBYTE:.1f} MiB" if total else f"{have} MiB"


def duration(seconds: float) -> str:
    """`45 s` or `1 min 20 s`."""
    minutes, rest = divmod(int(seconds), _SECONDS_PER_MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def progress(
    title: str, total: int, describe: Describe, *, plain_interval: float = PLAIN_INTERVAL_SECONDS
) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs; the block calls what it is given with each amount done.

    A bar is one line, however narrow the terminal is, and is gone at the end.
    """
    with (_bar if redraws(sys.stderr) else _lines)(title, total, describe, plain_interval) as advance:
        yield advance


@contextmanager
def _bar(title: str, total: int, describe: Describe, _interval: float) -> Iterator[Callable[[int], None]]:
    # A cached toolchain never shows a bar, and rich takes longer to import than all the rest.
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - see above
    from rich.table import Column  # noqa: PLC0415 - see above

    console = Console(stderr=True)
    title_column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns = (
        TextColumn("{task.description}", table_column=title_column, markup=False),
        *([BarColumn(bar_width=None, table_column=Column(ratio=1))] if console.width >= _BAR_FROM_COLUMNS else []),
        TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True), markup=False),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(title, total=total or None, state=describe(0, total))
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            bar.update(task, completed=done, state=describe(done, total))

        yield advance


@contextmanager
def _lines(title: str, total: int, describe: Describe, interval: float) -> Iterator[Callable[[int], None]]:
    done = 0
    started = time.monotonic()
    finished = threading.Event()

    def advance(amount: int) -> None:
        nonlocal done
        done += amount

    # A thread, because the work may be silent for longer than the interval (linking, a slow server).
    def tell() -> None:
        while not finished.wait(interval):
            say(f"{title}: {describe(done, total)}, {duration(time.monotonic() - started)}")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield advance
    finally:
        finished.set()
        teller.join()
