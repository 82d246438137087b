"""Yields the programs: what the user has, else the cache, else an official download, else a build."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from types import MappingProxyType

from toolchain import cache
from toolchain.build import built, title
from toolchain.download import DownloadUnavailableError, downloaded, reachable
from toolchain.errors import ToolchainError
from toolchain.official import Download, this_platform
from toolchain.path_lookup import PassedOver, Present, look_up, search_path
from toolchain.program import Program
from toolchain.programs import KUBERNETES_PROVIDER, KUBERNETES_PROVIDER_VERSION, PULUMI
from toolchain.progress import say
from toolchain.recipe import Recipe

_PLUGIN_HOST = "https://get.pulumi.com"
# stdout belongs to what the caller prints.
_STDERR = 2


@unique
class Origin(StrEnum):
    """Where a program comes from."""

    PATH = "PATH"
    DOWNLOADED = "downloaded"
    BUILT = "built"


@dataclass(frozen=True, slots=True)
class Located:
    """A program that can be run; the version is None where the program can't tell it."""

    path: Path
    version: str | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class _Plugin:
    """Pulumi itself installs the Kubernetes provider."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there without any work, and one line for each program of the user's that was passed over."""

    located: Mapping[Program, Located]
    notes: tuple[str, ...]


def install(programs: Iterable[Program]) -> Mapping[Program, Path]:
    """Each program's absolute path; what is missing is downloaded or built first.

    Raises:
        ToolchainError: A program can't be had; the message says what to do.
    """
    return MappingProxyType({program: located.path for program, located in install_located(programs).items()})


def environment(programs: Iterable[Program]) -> dict[str, str]:
    """A copy of `os.environ` in which PATH yields exactly these programs; installs what is missing.

    PATH begins with the interpreter's folder (the language host runs the `python` it finds there), then the folders of
    programs that PATH alone would not yield, then the old PATH. Where a proxy is set, Python's gRPC would take it on
    the way to Pulumi's engine, on 127.0.0.1, too.

    Raises:
        ToolchainError: A program can't be had; the message says what to do.
    """
    interpreter, *rest = search_path().split(os.pathsep)
    ours = [
        str(located.path.parent)
        for program, located in install_located(programs).items()
        if shutil.which(program.name, path=search_path()) != str(located.path)
    ]
    path = os.pathsep.join(dict.fromkeys((interpreter, *ours, *rest)))
    return {"no_grpc_proxy": "127.0.0.1"} | os.environ | {"PATH": path}


def survey(programs: Iterable[Program]) -> Survey:
    """Look on PATH, in Pulumi's plugin folder and in the cache; changes nothing and asks no host."""
    located: dict[Program, Located] = {}
    notes: list[str] = []
    for program in programs:
        match look_up(program):
            case Present(path, version):
                located[program] = Located(path, version, Origin.PATH)
                continue
            case PassedOver(note):
                notes.append(note)
            case None:
                pass
        if cached := _cached(program):
            located[program] = cached
    return Survey(MappingProxyType(located), tuple(notes))


def install_located(programs: Iterable[Program]) -> Mapping[Program, Located]:
    """Like `install`, with version and origin of each program.

    Raises:
        ToolchainError: A program can't be had; the message says what to do.
    """
    programs = tuple(dict.fromkeys(programs))
    overview = survey(programs)
    located = dict(overview.located)
    missing = [program for program in programs if program not in located]
    if missing:
        for note in overview.notes:
            say(note)
    plan = {program: _means(program) for program in missing}
    # One recipe may make several programs.
    by_recipe: dict[str, Program] = {}
    for program, means in plan.items():
        if isinstance(means, Recipe):
            by_recipe.setdefault(means.name, program)
    builds = list(by_recipe.values())
    _announce(builds)
    for program, means in plan.items():
        if program in builds:
            number = builds.index(program) + 1
            rest = build_minutes(builds[number:])
            say(
                f"{number} of {len(builds)}: {title(program.recipe)}, about {program.recipe.minutes} min"
                + (f", and {rest} min for the rest" if rest else "")
            )
        located[program] = _obtain(program, means)
    return MappingProxyType({program: located[program] for program in programs})


def build_minutes(programs: Iterable[Program]) -> int:
    """The minutes that builds take on two cores with an empty Go cache; what is made together counts once."""
    return sum({program.recipe.name: program.recipe.minutes for program in programs}.values())


def _cached(program: Program) -> Located | None:
    download = program.download(this_platform())
    if isinstance(download, Download) and (folder := cache.find(download.entry, download.files)):
        return Located(folder / program.name, download.version, Origin.DOWNLOADED)
    recipe = program.recipe
    if folder := cache.find(recipe.entry, recipe.files):
        return Located(folder / program.name, recipe.version, Origin.BUILT)
    return None


def _means(program: Program) -> Download | _Plugin | Recipe:
    if program is KUBERNETES_PROVIDER:
        return _Plugin() if reachable(_PLUGIN_HOST) else program.recipe
    download = program.download(this_platform())
    if isinstance(download, str):
        say(f"{program} has no official download that can be used: {download}")
        return program.recipe
    return download if all(reachable(asset.url) for asset in download.assets) else program.recipe


def _announce(builds: Sequence[Program]) -> None:
    if builds:
        say(f"to build from Go modules, kept in {cache.root()}:")
        for program in builds:
            say(f"  {title(program.recipe)}: {program.recipe.minutes} min, {_not_needed(program)}")
        say(
            f"The first time this takes about {build_minutes(builds)} min on two cores, "
            "later builds much less. What was built is kept, also after Ctrl-C."
        )


def _not_needed(program: Program) -> str:
    if program.check is not None:
        return f"unless {program.check.accepted.text} is on PATH"
    return f"unless it {'is' if program is KUBERNETES_PROVIDER else 'comes with a pulumi'} on PATH"


def _obtain(program: Program, means: Download | _Plugin | Recipe) -> Located:
    # One download or recipe may yield several programs.
    if cached := _cached(program):
        return cached
    match means:
        case Download():
            try:
                folder = downloaded(means)
            except DownloadUnavailableError as error:
                if shutil.which("go") is None:
                    raise ToolchainError(
                        f"{program} can't be downloaded.",
                        why=str(error),
                        remedy="run the same command again, or install Go (https://go.dev/dl/), which builds it",
                    ) from error
                say(f"the official download of {program} can't be used ({error}): building from Go modules instead")
            else:
                return Located(folder / program.name, means.version, Origin.DOWNLOADED)
        case _Plugin():
            if plugin := _install_plugin():
                return plugin
        case Recipe():
            pass
    return Located(built(program.recipe) / program.name, program.recipe.version, Origin.BUILT)


def _install_plugin() -> Located | None:
    pulumi = install((PULUMI,))[PULUMI]
    say(f"installing the Kubernetes provider plugin {KUBERNETES_PROVIDER_VERSION}")
    installed = subprocess.run(
        [pulumi, "plugin", "install", "resource", "kubernetes", KUBERNETES_PROVIDER_VERSION],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        check=False,
    )
    plugin = look_up(KUBERNETES_PROVIDER)
    if isinstance(plugin, Present):
        return Located(plugin.path, plugin.version, Origin.DOWNLOADED)
    say(f"`pulumi plugin install` exited with {installed.returncode}: building the provider from Go modules instead")
    return None
