"""Whether a pull request concerns a stack, by what GitHub says of its files; no code of the pull request is asked."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath

from operations.errors import OperationError
from operations.pull_request.verified import Changes
from operations.stacks import concerned, seen_from

_PLACE = re.compile(r"[\w. -]+(/[\w. -]+)*")
_OF_A_STACK = re.compile(r"Pulumi\.(.+)\.yaml")


def place_of(folder: str) -> str:
    """A folder of the repository in its shortest form; empty for the root.

    Raises:
        OperationError: if it is none.
    """
    place = str(PurePosixPath(folder))
    if place == ".":
        return ""
    if not _PLACE.fullmatch(place) or ".." in place.split("/"):
        raise OperationError(f"{folder!r} is no folder of the repository: write it like clusters/prod.")
    return place


def concerns(changes: Changes, stack: str, folder: str, at_the_base: Collection[str]) -> bool:
    """Whether the pull request's run previews a stack.

    Args:
        changes: of the pull request.
        stack: its name.
        folder: of the stacks' files, as `place_of` gives it.
        at_the_base: the stacks that have a file there on the base branch.
    """
    place = PurePosixPath(folder)
    paths = [seen_from(place, path) for path in changes.paths]
    removed = {seen_from(place, path) for path in changes.removed}
    files = {*(PurePosixPath(f"Pulumi.{name}.yaml") for name in at_the_base), *filter(_of_a_stack, paths)} - removed
    names = {match[1] for file in files if (match := _of_a_stack(file))}
    changed = [path for path in paths if not (_of_a_stack(path) and path in removed)]
    # Which stacks name a base, and what a file says, is known only where the branch is checked out: here a changed
    # base may concern every stack.
    a_base = any(not _of_a_stack(path) for path in changed)
    return stack in concerned(names, changed, lambda name: a_base or PurePosixPath(f"Pulumi.{name}.yaml") in changed)


def _of_a_stack(file: PurePosixPath) -> re.Match[str] | None:
    return _OF_A_STACK.fullmatch(str(file))
