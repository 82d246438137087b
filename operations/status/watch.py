"""`status --watch`: the map again and again."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cluster.errors import ClusterError
from operations.status.text import lines
from operations.status.words import clean, summary, warnings
from sharing_map.report import Status

EVERY_SECONDS = 5

Wait = Callable[[], None]


def wait() -> None:
    """The time between two looks."""
    time.sleep(EVERY_SECONDS)


def watch(read: Callable[[], Status], console: Console, *, as_json: bool = False, wait: Wait = wait) -> None:
    """Show the cluster until somebody interrupts.

    On an interactive console one block is kept up to date; elsewhere a line is written whenever something has changed,
    or with `as_json` a document at every look. A cluster that does not answer is said, and asked again.
    """
    if as_json or not console.is_interactive:
        _lines(read, console, as_json=as_json, wait=wait)
        return
    shown: RenderableType = Text("Reading the cluster ...")
    with Live(shown, console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            try:
                status = read()
                gaps = (Text(warning, style="yellow") for warning in warnings(status))
                # First: what is below the terminal's end is not shown.
                shown = Group(*gaps, *lines(status, console.width))
                live.update(shown, refresh=True)
            except ClusterError as error:
                live.update(Group(Text(_away(error), style="yellow"), shown), refresh=True)
            wait()


def _lines(read: Callable[[], Status], console: Console, *, as_json: bool, wait: Wait) -> None:
    last_line = ""
    while True:
        try:
            status = read()
            line = status.model_dump_json() if as_json else " ".join([*summary(status), *warnings(status)])
            when = "" if as_json else f"{status.taken:%H:%M:%S} "
        except ClusterError as error:
            line, when = ("" if as_json else _away(error)), ""
            if as_json:
                typer.echo(_away(error), err=True)
        if line and (as_json or line != last_line):
            console.print(Text(f"{when}{line}"), soft_wrap=True)
        last_line = line
        wait()


def _away(error: ClusterError) -> str:
    return (
        f"{datetime.now(UTC):%H:%M:%S} The cluster could not be read: {clean(str(error).splitlines()[0])} Trying again."
    )
