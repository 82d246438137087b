"""`kai-anywhere status`: reads the cluster, and shows it in one of four ways."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.snapshot import read_snapshot
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.new_files import write_whole
from operations.options import Context, Stack
from operations.reading import Place, open_place
from operations.status.page import page
from operations.status.server import Latest, Server
from operations.status.text import lines
from operations.status.watch import watch as watch_cluster
from operations.status.words import warnings
from sharing_map.build import build
from sharing_map.report import Status
from toolchain.progress import redraws

_WIDE = 10_000
"""Where the output is no terminal: a line stays a line, for programs that read it."""


def status(  # noqa: PLR0913 - the options of a command
    *,
    stack: Stack = "jetson",
    context: Context = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print it as JSON; its schema is docs/status.schema.json.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look every few seconds, until Ctrl-C.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page of HTML.")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve that page on 127.0.0.1, always fresh.")] = False,
    port: Annotated[int, typer.Option("--port", help="For --serve; 0 takes a free one.", min=0, max=65535)] = 0,
) -> None:
    """Show which pod has which share of which GPU, what is free, and what is Pending and why. Changes nothing."""
    chosen = [name for name, given in (("--watch", watch), ("--html", html), ("--serve", serve)) if given]
    if len(chosen) > 1 or (as_json and chosen not in ([], ["--watch"])):
        raise typer.BadParameter(
            f"{' and '.join([*chosen, *(['--json'] if as_json else [])])} can't be together: choose one of --json, "
            "--watch, --html and --serve, or --watch with --json."
        )
    if port and not serve:
        raise typer.BadParameter("--port is for --serve.")
    # Ctrl-C is how a person ends these two.
    ended = contextlib.suppress(KeyboardInterrupt) if watch or serve else contextlib.nullcontext()
    with open_place(stack, context) as place, ended:
        if serve:
            _serve(place, port)
        elif watch:
            watch_cluster(_again(place), Console(force_interactive=redraws(sys.stdout)), as_json=as_json)
        else:
            _show(_read(place.cluster, simulated=place.simulated), html=html, as_json=as_json)


def _read(cluster: Cluster, *, simulated: bool, again: bool = False) -> Status:
    """The map; where it is read again and again, one with a gap does not take the place of a whole one."""
    snapshot = read_snapshot(cluster, whole=again)
    return build(snapshot, context=cluster.context, server=cluster.server, simulated=simulated)


def _again(place: Place) -> Callable[[], Status]:
    """What reads the map at every call; after one that failed by what the kubeconfig says then.

    Symptom without it: a token that ended stays refused for ever, though its file has had a new one for hours.
    """
    cluster, in_vain = place.cluster, False

    def read() -> Status:
        nonlocal cluster, in_vain
        # A program that logs in is asked anew where its login is refused: opened anew, it would be at every look.
        if in_vain and not cluster.chosen.login:
            with contextlib.suppress(ClusterError):
                # By the context's name: another one may be the current one by now.
                opened = Cluster.open(cluster.kubeconfig, cluster.context)
                cluster.close()
                cluster = opened
        in_vain = True
        status = _read(cluster, simulated=place.simulated, again=True)
        in_vain = False
        return status

    return read


def _show(read: Status, *, html: Path | None, as_json: bool) -> None:
    if html is not None:
        try:
            write_whole(html, page(read))
        except OSError as error:
            raise OperationError(f"{html} can't be written: {error.strerror}. Choose another file.") from error
        typer.echo(f"Written to {html}.")
    elif as_json:
        typer.echo(read.model_dump_json(indent=2))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_WIDE)
        # All at once: line by line takes rich three times as long.
        console.print(Group(*lines(read, console.width)))
    for warning in warnings(read):
        typer.echo(warning, err=True)
    if read.unseen:
        raise typer.Exit(ExitStatus.WARNINGS)


def _serve(place: Place, port: int) -> None:
    try:
        server = Server(Latest(_again(place)), port)
    except OSError as error:
        raise OperationError(f"Port {port} can't be had: {error.strerror}. Choose another --port.") from error
    with server:
        typer.echo(f"GPU sharing on {place.cluster.context}: {server.address} (Ctrl-C ends it)")
        sys.stdout.flush()
        server.serve_forever()
