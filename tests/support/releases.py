"""Two versions of this product as tags of a repository, for those who take it by version."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.checkout import copy_tracked

OLDER, NEWER = "v1.2.3", "v1.2.4"
ADDRESS = "https://github.com/example/kai-anywhere"
"""What stands in the documentation and the templates for the product's repository."""
_PART_OF = '"app.kubernetes.io/part-of": "kai-anywhere"'
NEW_LABEL = "app.kubernetes.io/component"
"""What the newer version gives to its Namespaces."""


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person with a name; gives what it printed."""
    person = ("-c", "user.name=team", "-c", "user.email=team@example.com")
    done = subprocess.run(["git", *person, *arguments], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def released(folder: Path) -> Path:
    """The repository with both tags; the newer version labels its Namespaces, and nothing else differs."""
    copy_tracked(folder)
    git(folder, "init", "--quiet")
    objects = folder / "manifests" / "objects.py"
    for tag in (OLDER, NEWER):
        _replace(folder / "pyproject.toml", '\nversion = "', f'\nversion = "{tag.removeprefix("v")}" # ')
        if tag == NEWER:
            _replace(objects, f"    labels = {{{_PART_OF}}}", f'    labels = {{{_PART_OF}, "{NEW_LABEL}": "newer"}}')
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", tag)
        git(folder, "tag", tag)
    return folder


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
    file.write_text(text.replace(old, new), encoding="utf-8")


def instead(repository: Path) -> Mapping[str, str]:
    """Environment variables with which git takes the repository for that of the documentation."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
