"""The command `kai-anywhere`, by the panels of its help; what each command does is in its own room.

`kai-anywhere` (bin/) runs them from any folder, `python -m operations` from the checkout.
"""

import gc
import io
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from typer.core import TyperGroup
from typing_extensions import override

from operations.exit_status import ExitStatus

_PANELS: Mapping[str, Mapping[str, str]] = {
    "Install and remove": {
        "up": "lifecycle.commands:up",
        "preview": "lifecycle.commands:preview",
        "preflight": "lifecycle.commands:preflight",
        "repair": "lifecycle.commands:repair",
        "down": "lifecycle.commands:down",
        "rollback": "rollback.commands:rollback",
        "reset": "lifecycle.commands:reset",
    },
    "Look and plan": {
        "status": "status.commands:status",
        "plan": "plan.commands:plan",
        "verify": "verify.commands:verify",
        "doctor": "doctor.commands:app",
        "bundle": "bundle.commands:bundle",
    },
    "Settings, charts and boards": {
        "init": "init.commands:init",
        "settings": "settings.commands:app",
        "probe-privilege": "privilege_probe.commands:probe_privilege",
        "images": "charts.commands:images",
        "update": "charts.commands:update",
    },
    "Pull requests, drift and many clusters": {
        "review": "pull_request.commands:review",
        "policy": "policy_check.commands:policy",
        "drift": "pull_request.commands:drift",
        "fleet": "fleet.commands:app",
        "stacks": "stacks:stacks",
        "post": "pull_request.commands:post",
        "retire": "pull_request.commands:retire",
    },
    "Releases of this program": {
        "release": "release.commands:release",
        "docs-site": "release.docs_site:docs_site",
    },
}
"""The commands, and where each of them is."""
_PANEL_OF = {command: panel for panel, commands in _PANELS.items() for command in commands}
_WIDTH_OF_TABLES = 80
"""Columns of a terminal, below which the help's tables would cut the names of options."""
_MARKUP: Final = None if Console().width < _WIDTH_OF_TABLES else "rich"


class _Commands(TyperGroup):
    """The commands; only what is asked for is imported, since all of them together take a second."""

    @override
    def list_commands(self, ctx: object) -> list[str]:
        return list(_PANEL_OF)

    @override
    def get_command(self, ctx: object, cmd_name: str) -> Any:
        # Where there is none of that name, typer suggests one of those that it knows.
        for name in [cmd_name] if cmd_name in _PANEL_OF else _PANEL_OF:
            if name not in self.commands:
                self.commands[name] = _imported(name)
        return self.commands.get(cmd_name)


def _imported(name: str) -> Any:  # noqa: ANN401 - typer keeps the type to itself
    panel = _PANEL_OF[name]
    with _ended_by_an_interrupt():
        commands = pkgutil.resolve_name(f"operations.{_PANELS[panel][name]}")
    room = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=_MARKUP)
    if isinstance(commands, typer.Typer):
        room.add_typer(commands, rich_help_panel=panel)
    else:
        room.command(rich_help_panel=panel)(commands)
    return typer.main.get_group(room).commands[name]


@contextmanager
def _ended_by_an_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process without words: where it stops an import, Python may make another error of it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


app = typer.Typer(cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=_MARKUP)


def _say_version(value: bool) -> None:
    if value:
        from operations.version import version_text  # noqa: PLC0415 - no command needs it

        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_say_version,
            help="Say the version, and where each program comes from.",
        ),
    ] = False,
) -> None:
    """Fractional GPU sharing with the KAI scheduler: install it, and look at it."""
    if not gc.isenabled():
        # See `main`: the command's modules are there.
        gc.freeze()
        gc.enable()


def _open_closed_streams() -> None:
    """Let what was closed before the command began (`>&-`) lead nowhere.

    Python has None in its place, and the next file that is opened would get its number: pulumi would write into that.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))


def main() -> None:
    """Run a command; a failure is a text on stderr, not a traceback."""
    # Imports make what stays: to look for garbage meanwhile was a seventh of a command's time.
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # As bin/kai-anywhere leaves it while modules are imported: an interrupt then ends the process, without words.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_closed_streams()
    if os.environ.get("COLUMNS") == "0":
        # Somebody who does not know it, such as a job without a terminal; in no columns nothing would be printed.
        del os.environ["COLUMNS"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What others write into a cluster may have letters that the locale's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="kai-anywhere")
    except SystemExit as end:
        if end.code == ExitStatus.INTERRUPTED:
            sys.stderr.write("Interrupted. The same command goes on from what is there.\n")
        raise
    except Exception as error:
        from operations.failures import explained  # noqa: PLC0415 - what does its work need not wait for it

        if (text := explained(error)) is None:
            raise
        sys.stderr.write(text)
        sys.exit(ExitStatus.COULD_NOT_RUN)


if __name__ == "__main__":
    main()
