"""Reads the states of many stacks by pulumi: no cluster is asked, and nothing is decrypted."""

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import toolchain
from config.stack import StackConfigError
from operations.engine import NO_SUCH_STACK, Checkpoint, read_export
from operations.errors import OperationError
from operations.fleet.report import HistoryEntry, Site, site_of
from operations.stack_file import project_of, read_settings
from operations.target import ROOT, check_exported_options, folder, own_cluster, own_project
from toolchain.programs import PULUMI
from toolchain.progress import progress

_AT_ONCE = 8
_SECONDS = 120
_HISTORY = TypeAdapter(list[HistoryEntry])


def read_sites(names: Sequence[str], stacks: Path, waves: Mapping[str, str]) -> tuple[Site, ...]:
    """What every site's state says; of one that can't be read, why.

    Args:
        names: of the sites.
        stacks: the folder with their files.
        waves: the wave of each site, as far as there are any.

    Raises:
        OperationError: if somebody has exported options of pulumi.
        ToolchainError: if there is no pulumi.
    """
    check_exported_options()
    environment = toolchain.environment((PULUMI,))
    tags = tags_of(ROOT)

    def read(name: str) -> Site:
        try:
            return _read(name, stacks, environment, tags, waves.get(name))
        except (OperationError, StackConfigError) as error:
            return Site(site=name, wave=waves.get(name), unread=str(error))

    shown = progress("reading states", len(names), lambda done, total: f"{done} of {total} sites")
    with shown as advance, ThreadPoolExecutor(_AT_ONCE) as pool:
        reading = [pool.submit(read, name) for name in names]
        for _ in as_completed(reading):
            advance(1)
    return tuple(future.result() for future in reading)


def tags_of(checkout: Path) -> Mapping[str, str]:
    """The tags that name a version, by commit; none where there is no Git or no checkout."""
    git = ["git", "-C", str(checkout), "for-each-ref", "--format=%(objectname) %(*objectname) %(refname:short)"]
    try:
        done = subprocess.run([*git, "refs/tags/v*.*.*"], check=False, capture_output=True, text=True)
    except OSError:
        return {}
    # An annotated tag is an object of its own, and names its commit besides.
    return {commit: tag for *_, commit, tag in map(str.split, done.stdout.splitlines())}


def _read(name: str, stacks: Path, environment: Mapping[str, str], tags: Mapping[str, str], wave: str | None) -> Site:
    project = own_project() if stacks.resolve() == ROOT else stacks
    if simulated := _is_simulated(name, stacks):
        project = ROOT
        environment = dict(environment) | {
            "PULUMI_BACKEND_URL": f"{(folder(name) / 'state').as_uri()}?metadata=skip",
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
    stack = f"organization/{project_of(project)}/{name}"
    # Where the project itself names its backend, pulumi learns of it in that folder alone.
    ask = partial(_ask, environment, project if (project / "Pulumi.yaml").is_file() else ROOT)
    exported = ask("stack", "export", "--stack", stack)
    if exported is None:
        return Site(site=name, wave=wave)
    checkpoint: Checkpoint = read_export(exported, name)
    history = ask("stack", "history", "--json", "--page-size", "1", "--stack", stack)
    try:
        entries = _HISTORY.validate_json(history or "[]")
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        raise OperationError(f"pulumi stack history says something else than expected: {problem['msg']}") from None
    return site_of(name, checkpoint, entries, tags, wave=wave, simulated=simulated)


def _is_simulated(name: str, stacks: Path) -> bool:
    """Whether the site is on its simulator: it has one, and no cluster of its own is chosen.

    Simulators are of this checkout's stacks. One of another folder may have the same name.
    """
    if stacks.resolve() != ROOT or not (folder(name) / "state").is_dir():
        return False
    return not own_cluster(read_settings(stacks / f"Pulumi.{name}.yaml"))


def _ask(environment: Mapping[str, str], project: Path, *arguments: str) -> str | None:
    """What pulumi prints; None where there is no such stack."""
    try:
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--cwd", str(project)],
            env=dict(environment),
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"the backend did not answer in {_SECONDS} s") from error
    if NO_SUCH_STACK in done.stderr:
        return None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("warning:")]
        way_out = " Log in to the backend that holds the states: pulumi login" if "login" in done.stderr else ""
        raise OperationError((" ".join(lines) or f"pulumi ended with status {done.returncode}.") + way_out)
    return done.stdout
