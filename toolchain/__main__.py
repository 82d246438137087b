"""`python -m toolchain`: install the programs, list them, or run a command that finds them."""

import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from typing import Annotated

import typer

from toolchain.errors import ToolchainError
from toolchain.image_programs import from_image
from toolchain.install import Located, environment, install_located, survey
from toolchain.program import Program
from toolchain.programs import ALL, CHARTS, ENGINE, KUBECTL, LANGUAGES, OLDER, PACKAGES, REGISTRIES, SIMULATOR
from toolchain.progress import say

_COMMAND_NOT_FOUND = 127
_INTERRUPTED = 128 + signal.SIGINT


@unique
class Group(StrEnum):
    """Which programs."""

    ENGINE = "engine"
    SIMULATOR = "simulator"
    LANGUAGES = "languages"
    CHARTS = "charts"
    REGISTRIES = "registries"
    OLDER = "older"
    SHELL = "shell"
    ALL = "all"

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of the group."""
        return _PROGRAMS[self]


_PROGRAMS = {
    Group.ENGINE: ENGINE,
    Group.SIMULATOR: SIMULATOR,
    Group.LANGUAGES: LANGUAGES,
    Group.CHARTS: CHARTS,
    Group.REGISTRIES: REGISTRIES,
    Group.OLDER: OLDER,
    Group.SHELL: (*ENGINE, KUBECTL),
    # The others are asked for by name: who has an official pulumi needs no stand-in.
    Group.ALL: tuple(program for program in ALL if program not in PACKAGES),
}


_GROUP_HELP = (
    "engine: what `pulumi up` needs; simulator: what the simulated cluster needs; "
    "older: what makes that cluster an older one; languages: what programs in other languages than Python need; "
    "charts: what renders Helm charts; registries: what asks registries for images; "
    "shell: what a person calls by hand."
)
GroupOption = Annotated[Group | None, typer.Option(help=_GROUP_HELP)]


def _program(name: str) -> Program:
    for program in ALL:
        if program.name == name:
            return program
    raise typer.BadParameter(f"'{name}' is not one of {', '.join(map(str, ALL))}.")


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def install(
    group: Annotated[list[Group] | None, typer.Option(help=_GROUP_HELP)] = None,
    programs: Annotated[
        list[Program] | None,
        typer.Argument(help="Single programs; without any, whole groups.", parser=_program, metavar="PROGRAM"),
    ] = None,
) -> None:
    """Get what is missing and show where each program lies."""
    chosen = _chosen(group or (), programs or ())
    located = install_located(chosen)
    _show(chosen, located, survey(chosen).notes)


@app.command(name="list")
def list_programs(group: GroupOption = None) -> None:
    """Show what would be used, without getting anything."""
    chosen = _chosen(filter(None, [group]), ())
    overview = survey(chosen)
    _show(chosen, overview.located, overview.notes)


@app.command()
def image(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Names as pods say them.")],
    *,
    anew: Annotated[bool, typer.Option("--anew", help="Ask the registry again what a tag stands for.")] = False,
) -> None:
    """Get the programs of images, for machines without a container engine, and show where they lie."""
    for name in images:
        program = from_image(name, anew=anew)
        typer.echo(f"{program.path}\n  from {program.source}")


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGS]...", help="What to run.")],
    group: GroupOption = None,
) -> None:
    """Run a command with the programs on PATH, in place of this process; gets what is missing first."""
    variables = environment(_chosen(filter(None, [group]), ()))
    executable = shutil.which(command[0], path=variables["PATH"])
    if executable is None:
        say(f"There is no command {command[0]!r} on PATH.")
        raise typer.Exit(_COMMAND_NOT_FOUND)
    os.execve(executable, command, variables)  # noqa: S606 - replacing this process hands on signals and the exit status


def _chosen(groups: Iterable[Group], programs: Iterable[Program]) -> tuple[Program, ...]:
    """The named programs and those of the named groups; everything when neither is named."""
    named = (*(program for group in groups for program in group.programs), *programs)
    return tuple(dict.fromkeys(named or Group.ALL.programs))


def _show(programs: Iterable[Program], located: Mapping[Program, Located], notes: Iterable[str]) -> None:
    rows = [("PROGRAM", "VERSION", "SOURCE", "PATH")]
    for program in programs:
        location = located.get(program)
        rows.append(
            (program.name, location.version or "not told", location.origin, str(location.path))
            if location
            else (program.name, "missing", "-", f"to download, or to build in about {program.recipe.minutes} min")
        )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        typer.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]))
    for note in notes:
        say(note)


def main() -> None:
    """Run the command line; a `ToolchainError` is shown without its traceback."""
    # Whoever ends this process ends what it builds too: unfinished work is removed, and no `go` is left behind.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        app()
    except ToolchainError as error:
        say(str(error))
        sys.exit(1)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            say("Interrupted. The same command goes on: what was downloaded or built is kept.")
        raise


if __name__ == "__main__":
    main()
