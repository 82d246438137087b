"""Lists stacks by their files: every one of a folder, or those that a change may concern. A matrix of jobs reads it."""

import json
import re
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from config.bases import FOLDER, from_folder
from config.installs import Installs
from config.stack import StackConfigError
from operations.errors import OperationError
from operations.stack_file import check_project, content_of, every_stack, raw_settings, resolved

FLEET_FILE = "fleet.yaml"
"""Says in which order sites are updated (operations/fleet/), and nothing of what a stack is."""

STACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
NO_STACK_NAME = "no stack name: letters, digits, '_', '.' and '-', at most 100, the first a letter or digit"
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ROLLOUT = "-rollout"
"""What follows a stack's name in that of the environment with the credentials to update it."""
_GIT_SECONDS = 120


def stacks(
    *,
    folder: Annotated[Path, typer.Option(help="The folder with the files Pulumi.<stack>.yaml.")] = Path(),
    base: Annotated[str, typer.Option(help="A commit: only stacks that the changes since then may concern.")] = "",
    hosts_alone: Annotated[
        bool, typer.Option("--hosts-alone", help="Only those that prepare hosts alone, and need no kubeconfig.")
    ] = False,
) -> None:
    """Print the stacks of a folder as JSON, by their files."""
    names = listed(folder)
    if hosts_alone:
        names = [name for name in names if _prepares_hosts_alone(folder / f"Pulumi.{name}.yaml")]
    if base:
        changed = changed_files(folder, base)
        names = concerned(names, changed, Versions(folder, base, changed or frozenset()).differ)
    typer.echo(json.dumps(names))


def check_stack_name(name: str, remedy: str = "") -> None:
    """Refuse a name that is no file's: a path, or Pulumi's own with organization and project.

    Raises:
        OperationError: it is none.
    """
    if not STACK_NAME.fullmatch(name):
        raise OperationError(f"{name!r} is {NO_STACK_NAME}.{remedy}")


def listed(folder: Path) -> list[str]:
    """The stacks that have a file in a folder.

    Raises:
        OperationError: if there is none, the name of one is none of a stack or another's too, or pulumi would read
            other files.
    """
    names = every_stack(folder)
    if (project := folder / "Pulumi.yaml").is_file():
        check_project(project)
    by_environment: dict[str, str] = {}
    for name in names:
        # In a repository of others a link may lead anywhere, so nothing here follows it. Pulumi does.
        if (file := folder / f"Pulumi.{name}.yaml").is_symlink():
            raise OperationError(
                f"{file} is a symbolic link: pulumi would follow it, and no policy and no preview does. Put a copy of "
                "what it leads to in its place; what stacks share can stand in a base."
            )
        check_stack_name(name, " Rename its file.")
        # GitHub's environments have the same name in capitals.
        if (other := by_environment.setdefault(name.lower(), name)) != name:
            raise OperationError(
                f"The stacks '{other}' and '{name}' differ in capitals alone: GitHub takes the environments of both "
                "for one, so one would be updated with the credentials of the other. Rename one of them: pulumi stack "
                "rename, and its file."
            )
        if name.lower().endswith(ROLLOUT):
            raise OperationError(
                f"The stack '{name}' can't end in '{ROLLOUT}': previews of it would get the environment '{name}', "
                f"which has the credentials to update the stack '{name[: -len(ROLLOUT)]}'. Rename its file."
            )
    return names


def _prepares_hosts_alone(file: Path) -> bool:
    """Whether a stack says so; one that can't be read does not."""
    try:
        return raw_settings(file).get("installs") == Installs.HOSTS
    except OperationError:
        return False


def concerned(
    names: Collection[str], changed: Collection[PurePosixPath] | None, differs: Callable[[str], bool]
) -> list[str]:
    """The stacks that a change may concern.

    Where nothing but stacks' files and bases changed, these are the stacks whose settings differ, base included.
    Everything else may be a part of the program, of a chart that a stack names, or of the workflow that says which
    version of the program runs.

    Args:
        names: of all stacks.
        changed: the changed files as seen from the stacks' folder; None where they are not known.
        differs: whether a stack's file, with its base in it, says something else than before.
    """
    if changed is None or any(not _of_stacks(file, names) for file in changed):
        return sorted(names)
    return sorted(filter(differs, names)) if changed else []


def _of_stacks(file: PurePosixPath, names: Collection[str]) -> bool:
    """Whether a file is a stack's own, a base, or the fleet's order."""
    if file == PurePosixPath(FLEET_FILE):
        return True
    return file in {PurePosixPath(f"Pulumi.{name}.yaml") for name in names} or (
        file.parent == PurePosixPath(FOLDER) and file.suffix == ".yaml"
    )


@dataclass(frozen=True)
class Versions:
    """The stacks' files at two times: in a commit, and in the checkout.

    Attributes:
        folder: that of the stacks.
        base: the commit.
        changed: the files that differ, as seen from the folder; git is asked for no other one.
    """

    folder: Path
    base: str
    changed: Collection[PurePosixPath]

    def differ(self, name: str) -> bool:
        """Whether a stack's file says something else than in the commit; so it does where either can't be read."""
        before, now = self._said(name, self._text_before), self._said(name, self._text_now)
        return before is None or not _same(before, now)

    def _said(self, name: str, text: Callable[[str], str]) -> dict[str, Any] | None:
        file = f"Pulumi.{name}.yaml"
        try:
            return resolved(content_of(text(file), file), file, text)
        except (OperationError, StackConfigError, UnicodeDecodeError, OSError):
            return None

    def _text_now(self, file: str) -> str:
        return from_folder(self.folder)(file)

    def _text_before(self, file: str) -> str:
        """A file's text in the commit; a link's is where it leads, which is no stack file."""
        if PurePosixPath(file) not in self.changed:
            return self._text_now(file)
        if file not in self._texts:
            self._texts[file] = self._asked(file)
        return self._texts[file]

    @cached_property
    def _texts(self) -> dict[str, str]:
        """What git was asked for already: many stacks have the same base."""
        return {}

    def _asked(self, file: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(self.folder), "show", f"{self.base}:./{file}"],
                check=False,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=_GIT_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise OperationError(f"git did not give {file}") from error
        if done.returncode != 0:
            raise OperationError(f"{file} is not in the commit")
        return done.stdout


def _same(before: object, now: object) -> bool:
    # Python's True is equal to 1; a setting takes one of them, and the other is an error.
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    return before == now and isinstance(before, bool) == isinstance(now, bool)


def changed_files(folder: Path, base: str) -> frozenset[PurePosixPath] | None:
    """The files that differ between a commit and the checkout, as seen from the folder; None if git can't tell.

    A file of a stack that exists no more concerns nobody: there is nothing to look at.
    """
    if not COMMIT.fullmatch(base):
        _unsure(f"{base!r} is no whole commit")
        return None
    try:
        done = subprocess.run(
            # Without renames a file that became another one counts by both names.
            ["git", "-C", str(folder), "diff", "--name-only", "--no-renames", "-z", base, "HEAD"],
            check=False,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_GIT_SECONDS,
        )
        place = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--show-prefix"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _unsure(f"git can't be asked ({type(error).__name__})")
        return None
    if place.returncode != 0:
        # Such as a checkout of another user, which a job in a container has.
        reason, *_ = place.stderr.splitlines() or ["it does not say why"]
        _unsure(f"git can't be asked here ({reason})")
        return None
    if done.returncode != 0:
        _unsure(f"git has no commit {base} here")
        return None
    prefix = PurePosixPath(place.stdout.rstrip("\n"))
    return frozenset(
        inside
        for path in filter(None, done.stdout.split("\0"))
        if not _of_no_stack(inside := seen_from(prefix, path), folder)
    )


def seen_from(folder: PurePosixPath, path: str) -> PurePosixPath:
    """A path of the repository as seen from one of its folders; absolute where it is outside."""
    whole = PurePosixPath(path)
    return whole.relative_to(folder) if whole.is_relative_to(folder) else PurePosixPath("/") / whole


def _of_no_stack(file: PurePosixPath, folder: Path) -> bool:
    """Whether it is the file of a stack that was removed."""
    of_a_stack = re.fullmatch(r"Pulumi\..+\.yaml", str(file)) is not None
    return of_a_stack and not (folder / file).exists()


def _unsure(why: str) -> None:
    typer.echo(f"{why}, so every stack is taken.", err=True)
