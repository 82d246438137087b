"""What a team's repository holds: the files of a template with the team's choices in them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from config.yaml_text import load_yaml
from operations.errors import OperationError
from operations.init.choices import Choices, Way
from operations.stack_file import settings_of
from operations.target import ROOT

TEMPLATES = ROOT / "templates"
"""A folder for each way, which `pulumi new` takes as it is."""
SLUG = "example/kai-anywhere"
"""Stands in the templates, and in the documentation, for owner and name of this repository."""
REPOSITORY = f"https://github.com/{SLUG}"
COMMON = frozenset(map(PurePosixPath, ("README.md", ".gitignore")))
"""What a repository that GitHub has made holds already, and what nothing else depends on: theirs stays as it is."""
_OTHER_PROJECTS = tuple(map(PurePosixPath, ("Pulumi.yml", "Pulumi.json")))
"""By which names pulumi takes a project besides ours."""

_SOURCE = re.compile(rf"(?P<host>github\.com/)?{re.escape(SLUG)}")
_STACK_FILE = re.compile(r"Pulumi\.([a-z0-9]+)\.yaml")
_TAG = re.compile(r"(?<=@)v\d+\.\d+\.\d+\b")
_PLAIN_VERSION = re.compile(r"(?<=version: )\d+\.\d+\.\d+\b")


def contents(choices: Choices) -> Mapping[PurePosixPath, str]:
    """The repository's files by path.

    Raises:
        StackConfigError: if the stack's settings are wrong.
    """
    template = TEMPLATES / choices.way
    files: dict[PurePosixPath, str] = {}
    for file in _files(template):
        path = PurePosixPath(file.relative_to(template).as_posix())
        text = _with_source(file.read_text(encoding="utf-8"), choices)
        stack = _STACK_FILE.fullmatch(path.name)
        if stack is None:
            files[path] = _of_pulumi_new(text) if path.name == "Pulumi.yaml" else text
        elif stack[1] == choices.example:
            files[PurePosixPath(f"Pulumi.{choices.stack}.yaml")] = _stack(text, choices)
    return files


def of_version(version: str) -> Mapping[Path, str]:
    """What names a version of this repository, as it is for a tag: templates, examples, the policy pack; by path."""
    files = [file for way in Way for file in _files(TEMPLATES / way)]
    files += [*sorted(ROOT.glob("examples/*/Pulumi.yaml")), ROOT / "policy" / "PulumiPolicy.yaml"]
    return {file: _with_version(file.read_text(encoding="utf-8"), version) for file in files}


def _files(template: Path) -> Sequence[Path]:
    return sorted(file for file in template.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def _with_version(text: str, version: str) -> str:
    return _PLAIN_VERSION.sub(version.removeprefix("v"), _TAG.sub(version, text))


def _with_source(text: str, choices: Choices) -> str:
    """The product's repository and version in the place of the template's."""
    place = choices.repository.removeprefix("https://")
    # At once, since what is put in may hold what is looked for.
    text = _SOURCE.sub(lambda match: place if match["host"] else choices.slug, text)
    return _with_version(text, choices.version)


def _of_pulumi_new(text: str) -> str:
    """Pulumi.yaml without what tells `pulumi new` of the template; it stands last."""
    return text.partition("\ntemplate:\n")[0].rstrip("\n") + "\n"


def _stack(text: str, choices: Choices) -> str:
    """The stack file, its settings validated."""
    text = re.sub(r"(?m)^( +distribution: ).*$", rf"\g<1>{choices.distribution}", text)
    settings_of(load_yaml(text), f"Pulumi.{choices.stack}.yaml")
    return text


def write(folder: Path, files: Mapping[PurePosixPath, str]) -> Sequence[PurePosixPath]:
    """Write files that are not there yet; where one beside `COMMON` is, write none.

    Returns:
        What was written.

    Raises:
        OperationError: if one of them exists, or another project, or the folder can't be written.
    """
    existing = [path for path in files if _exists(folder / path)]
    new = [path for path in files if path not in existing]
    # Another project's, in the place of which pulumi would read ours, or the other way round.
    existing += [path for path in _OTHER_PROJECTS if _exists(folder / path)]
    if existing := [path for path in existing if path not in COMMON]:
        named = ", ".join(map(str, existing))
        raise OperationError(
            f"{folder} has {named} already. Nothing was written. Give a folder without "
            f"{'it' if len(existing) == 1 else 'them'}; another stack of the same repository is another file "
            "Pulumi.<stack>.yaml."
        )
    written: list[Path] = []
    try:
        for path in new:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8", newline="\n") as file:
                written.append(target)
                file.write(files[path])
    except OSError as error:
        for target in written:
            target.unlink(missing_ok=True)
        raise OperationError(
            f"{error.filename or folder} can't be written: {error.strerror}. No file was left in {folder}."
        ) from error
    return new


def _exists(path: Path) -> bool:
    """A link that leads nowhere is there too."""
    return path.is_symlink() or path.exists()
