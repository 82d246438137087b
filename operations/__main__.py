"""The command `kai-anywhere`, by the panels of its help; what each command does is in its own room.

`kai-anywhere` (bin/) runs them from any folder, `python -m operations` from the checkout.
"""

import errno
import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import simulator
import toolchain
from cluster.errors import ClusterError
from config.stack import StackConfigError
from operations.bundle.commands import bundle
from operations.charts.commands import images, update
from operations.doctor.commands import app as doctor_app
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.fleet.commands import app as fleet_app
from operations.init.commands import init
from operations.lifecycle.commands import down, preflight, preview, repair, reset, up
from operations.plan.commands import plan
from operations.policy_check.commands import policy
from operations.privilege_probe.commands import probe_privilege
from operations.pull_request.commands import drift, post, retire, review
from operations.release.commands import release
from operations.release.docs_site import docs_site
from operations.rollback.commands import rollback
from operations.settings.commands import app as settings_app
from operations.stacks import stacks
from operations.status.commands import status
from operations.status.words import printable
from operations.verify.commands import verify
from operations.version import version_text
from toolchain.progress import say

_PANELS = {
    "Install and remove": (up, preview, preflight, repair, down, rollback, reset),
    "Look and plan": (status, plan, verify, doctor_app, bundle),
    "Settings, charts and boards": (init, settings_app, probe_privilege, images, update),
    "Pull requests, drift and many clusters": (review, policy, drift, fleet_app, stacks, post, retire),
    "Releases of this program": (release, docs_site),
}
_WIDTH_OF_TABLES = 80
"""Columns of a terminal, below which the help's tables would cut the names of options."""
_REFUSALS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if Console().width < _WIDTH_OF_TABLES else "rich",
)
for panel, commands in _PANELS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)


def _say_version(value: bool) -> None:
    if value:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
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


def _open_closed_streams() -> None:
    """Let what was closed before the command began (`>&-`) lead nowhere.

    Python has None in its place, and the next file that is opened would get its number: pulumi would write into that.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def main() -> None:
    """Run a command; a failure is a text on stderr, not a traceback."""
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
    except (
        OperationError,
        StackConfigError,
        ClusterError,
        simulator.SimulatorError,
        toolchain.ToolchainError,
    ) as error:
        # It may quote what others wrote, into a cluster or into a file.
        sys.stderr.writelines(f"{printable(line)}\n" for line in str(error).split("\n"))
        sys.exit(ExitStatus.COULD_NOT_RUN)
    except OSError as error:
        if _folder_is_gone():
            sys.stderr.write("The folder in which this runs was removed. Change into one that is there.\n")
            sys.exit(ExitStatus.COULD_NOT_RUN)
        if error.errno not in _REFUSALS:
            raise
        where = error.filename or "The output"
        remedy = "Make room, give the right to it, or choose another place."
        sys.stderr.write(f"{where} can't be written or read: {error.strerror}. {remedy}\n")
        sys.exit(ExitStatus.COULD_NOT_RUN)
    except SystemExit as end:
        if end.code == ExitStatus.INTERRUPTED:
            say("Interrupted. The same command goes on from what is there.")
        raise


if __name__ == "__main__":
    main()
