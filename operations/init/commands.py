"""`init`: asks what nobody said, and writes the repository."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from config.cluster import Distribution
from operations.errors import OperationError
from operations.init.choices import Choices, PlatformKind, Way, checked, refusal_of
from operations.init.files import contents, write
from operations.options import asking
from operations.target import ROOT
from operations.version import asked_git, project_version


def init(  # noqa: PLR0913, PLR0917 - one option for each thing that can be chosen
    folder: Annotated[Path, typer.Argument(help="The repository's folder; made if it is not there.")] = Path(),
    stack: Annotated[str, typer.Option(help="The first stack's name.")] = "",
    platform: Annotated[str, typer.Option(help="tegra (with Jetsons) or x86.")] = "",
    distribution: Annotated[str, typer.Option(help=f"One of {', '.join(Distribution)}.")] = "",
    way: Annotated[str, typer.Option(help="component (YAML) or program (Python).")] = Way.COMPONENT,
    repository: Annotated[
        str, typer.Option(help="Where kai-anywhere is; by default where this checkout comes from.")
    ] = "",
    version: Annotated[str, typer.Option(help="Its tag; by default this checkout's version.")] = "",
) -> None:
    """Write a repository of your own for a cluster; kai-anywhere is taken by version, without a fork."""
    # Path.resolve ends with a traceback where links lead in a circle.
    place = Path(os.path.realpath(os.path.expanduser(folder)))
    if place.is_relative_to(ROOT):
        raise OperationError(
            f"{place} is in the checkout of kai-anywhere itself. Nothing was written. Give a folder elsewhere."
        )
    source = repository or _origin()
    choices = checked(
        stack=stack or _asked("--stack", "Name of the stack", "prod"),
        platform=platform or _asked("--platform", "Platform: " + _words(PlatformKind), PlatformKind.TEGRA),
        distribution=distribution
        or _asked("--distribution", "Distribution: " + _words(Distribution), Distribution.K3S),
        way=way,
        repository=source,
        version=version or f"v{project_version()}",
    )
    files = contents(choices)
    written = write(place, files)
    typer.echo(f"Wrote into {place}:\n" + "\n".join(f"  {path}" for path in written))
    for path in sorted(files.keys() - set(written)):
        typer.echo(f"{path} was there already and is as it was. Ours would have said:\n{indent(files[path], '  ')}")
    typer.echo(_next(choices, place))


def _asked(option: str, question: str, default: str) -> str:
    """The answer of the person at the terminal, who is asked again where it is not allowed.

    Raises:
        OperationError: if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise OperationError(f"{option} is missing, and there is no terminal to ask at. Nothing was written.")

    def allowed(answer: str) -> str:
        if refusal := refusal_of(option.removeprefix("--"), answer):
            raise typer.BadParameter(refusal)
        return answer

    with asking():
        return str(typer.prompt(question, default=str(default), value_proc=allowed))


def _words(vocabulary: type[StrEnum]) -> str:
    return ", ".join(vocabulary)


def _origin() -> str:
    """Where this checkout comes from.

    Raises:
        OperationError: if it comes from nowhere that others can reach by https.
    """
    origin = asked_git("remote", "get-url", "origin")
    if not origin.startswith("https://") or "@" in origin:
        raise OperationError(
            "--repository is missing, and this checkout does not tell it: its remote `origin` has no https address. "
            "Give one, such as --repository https://github.com/example/kai-anywhere. Nothing was written."
        )
    return origin


def _next(choices: Choices, place: Path) -> str:
    """What a person does now."""
    lines = []
    if choices.platform is PlatformKind.TEGRA:
        lines.append(f"Edit what is marked EDIT in Pulumi.{choices.stack}.yaml: your Jetsons, and their memory.")
    # Without it, a program does not find the package that it imports; a component is fetched by the preview.
    install = "pulumi install, " if choices.way is Way.PROGRAM else ""
    # `pulumi login` alone asks for an account of Pulumi Cloud.
    lines.append(
        f"Then, in that folder: {install}pulumi login --local (or with your bucket's address), pulumi stack init "
        f"{choices.stack}, pulumi preview."
    )
    if (outer := _repository_around(place)) is not None:
        lines.append(
            f"{place} is a part of the repository {outer}, and GitHub reads workflows at its root only: move .github "
            f"there, and add `folder: {place.relative_to(outer).as_posix()}` to `with:` of each job."
        )
    return "\n".join(lines)


def _repository_around(place: Path) -> Path | None:
    """The Git repository that has the folder below its root; None where there is none, or the folder is its root."""
    return next(
        (parent for parent in place.parents if (parent / ".git").exists() and not (place / ".git").exists()), None
    )
