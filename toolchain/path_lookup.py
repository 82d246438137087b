"""What the user already has: programs on PATH with their versions, and the provider plugin in Pulumi's own folder."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from toolchain import cache
from toolchain.program import Program, Version, VersionCheck, parse_version, show_version
from toolchain.programs import (
    KUBE_SERVER_CHECK,
    KUBE_SERVERS,
    KUBERNETES_PROVIDER,
    KUBERNETES_PROVIDER_VERSION,
    LANGUAGE_EXEC,
    LANGUAGE_PYTHON,
    LANGUAGES,
    PULUMI,
)

_ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Present:
    """A program of the user's that is accepted; the version is None where the program can't tell it."""

    path: Path
    version: str | None


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A program of the user's that is not accepted, with the reason in one line."""

    note: str


def search_path() -> str:
    """PATH as it is for the programs: the interpreter's folder first, without this toolchain's own folders."""
    folders = [str(Path(sys.executable).parent), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return os.pathsep.join(
        dict.fromkeys(folder for folder in folders if folder and not Path(folder).is_relative_to(cache.root()))
    )


def look_up(program: Program) -> Present | PassedOver | None:
    """What the user has of a program: accepted, passed over, or not there."""
    if program is LANGUAGE_PYTHON:
        return _python_host()
    if program in LANGUAGES:
        host = _language_host(program)
        return Present(host, None) if host else None
    if program is KUBERNETES_PROVIDER:
        return _provider()
    if program in KUBE_SERVERS:
        return _kube_server(program)
    return _checked(program, program.check) if program.check else None


def plugin_folder() -> Path:
    """The folder into which `pulumi plugin install` lays the Kubernetes provider."""
    base = Path(os.environ.get("PULUMI_HOME") or os.path.expanduser("~/.pulumi"))
    return base / "plugins" / f"resource-kubernetes-v{KUBERNETES_PROVIDER_VERSION}"


def _which(program: str, folder: Path | None = None) -> Path | None:
    program_path = shutil.which(program, path=str(folder) if folder else search_path())
    return Path(program_path).absolute() if program_path else None


def _checked(program: Program, check: VersionCheck) -> Present | PassedOver | None:
    path = _which(program.name)
    if path is None:
        return None
    version = _ask(path, check)
    if version is None:
        return PassedOver(f"{program} on PATH ({path}) does not tell its version: passed over")
    if version not in check.accepted:
        return PassedOver(
            f"{program} on PATH ({path}) is {show_version(version)}, accepted is {check.accepted.text}: passed over"
        )
    return Present(path, show_version(version))


def _kube_server(program: Program) -> Present | PassedOver | None:
    """The servers come from PATH together, in one version, or not at all."""
    checks = {server: _checked(server, KUBE_SERVER_CHECK) for server in KUBE_SERVERS}
    mine = checks[program]
    if not isinstance(mine, Present):
        return mine
    versions = {server: present.version for server, present in checks.items() if isinstance(present, Present)}
    if set(versions.values()) == {mine.version} and len(versions) == len(KUBE_SERVERS):
        return mine
    listing = ", ".join(f"{server} {versions.get(server, 'none')}" for server in KUBE_SERVERS)
    return PassedOver(
        f"{program} on PATH ({mine.path}) is passed over: the three servers must be of one version, there are {listing}"
    )


def _language_host(program: Program) -> Path | None:
    """A language host belongs to the `pulumi` on PATH; with another `pulumi`, it is left alone."""
    pulumi = look_up(PULUMI)
    if not isinstance(pulumi, Present):
        return None
    # An installer may link `pulumi` into a folder on PATH and leave the language host beside the link's target.
    beside = pulumi.path.resolve().parent
    return _which(program.name, pulumi.path.parent) or _which(program.name, beside) or _which(program.name)


def _python_host() -> Present | PassedOver | None:
    host = _language_host(LANGUAGE_PYTHON)
    if host is None:
        return None
    if not (_which(LANGUAGE_EXEC, host.parent) or _which(LANGUAGE_EXEC)):
        return PassedOver(f"{host} has no {LANGUAGE_EXEC} beside it or on PATH: passed over")
    return Present(host, None)


def _provider() -> Present | None:
    on_path = _which(KUBERNETES_PROVIDER.name)
    if on_path:
        return Present(on_path, None)
    folder = plugin_folder()
    # Pulumi leaves this mark beside the folder while, or after, an installation was cut off.
    if folder.with_name(f"{folder.name}.partial").exists():
        return None
    plugin = _which(KUBERNETES_PROVIDER.name, folder)
    return Present(plugin, KUBERNETES_PROVIDER_VERSION) if plugin else None


@functools.cache
def _ask(path: Path, check: VersionCheck) -> Version | None:
    # Not remembered beyond this process: what snap, asdf or a wrapper script starts changes, and its file does not.
    # Files, not pipes: a child of a wrapper script that hangs would keep a pipe open past the deadline.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        try:
            subprocess.run(
                [path, *check.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=_ASK_SECONDS,
                check=False,
                env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        for answer in (out, err):
            answer.seek(0)
            if version := parse_version(answer.read()):
                return version
    return None
