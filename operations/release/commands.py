"""The files of a release: sources, schemas for editors, bills of materials, checksums, notes from the changelog."""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from operations.errors import OperationError
from operations.release import bill_of_materials
from operations.target import ROOT
from operations.version import CHANGED, commit, project_version

_VERSION = re.compile(r"v\d+\.\d+\.\d+")
_SCHEMAS = (ROOT / "config" / "stack.schema.json", ROOT / "config" / "part.schema.json")
"""For editors: of whole stacks, and of bases with the stacks that build upon one."""
CHECKSUMS, NOTES = "SHA256SUMS", "notes.md"


def release(
    version: Annotated[str, typer.Option(help="The tag, such as v1.2.3.")],
    out: Annotated[Path, typer.Option(help="The folder that gets the files.")] = Path("dist"),
) -> None:
    """Make the files of a release of this checkout's commit; what does not fit to the tag is an error."""
    if not _VERSION.fullmatch(version):
        raise OperationError(f"{version!r} is no version: it must be like v1.2.3.")
    if version != f"v{project_version()}":
        raise OperationError(
            f"{version} is not the version of this checkout: pyproject.toml says {project_version()}. Change it there, "
            "or choose the other tag."
        )
    if (revision := commit()).endswith(CHANGED) or not revision:
        raise OperationError(
            "The archive has the files of a commit of this checkout, and there is none, or files here differ from it. "
            "Commit them, or take them back: git status names them."
        )
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Beside it, so that the folder gets all of them or, on a full disk, none.
        with tempfile.TemporaryDirectory(prefix=".", dir=out) as beside:
            written = [file.replace(out / file.name) for file in _files(Path(beside), version, notes)]
    except OSError as error:
        raise OperationError(
            f"The files can't be written into {out}: {error.strerror}. Make room, or choose another folder with --out."
        ) from error
    for file in written:
        typer.echo(f"Wrote {file}")


def _files(folder: Path, version: str, notes: str) -> tuple[Path, ...]:
    """Everything that is published, in the order in which it is told."""
    archive = folder / f"kai-anywhere-{version}.tar.gz"
    _archive(archive, prefix=f"kai-anywhere-{version}/")
    schemas = [Path(shutil.copyfile(schema, folder / schema.name)) for schema in _SCHEMAS]
    bills = [_bill(folder / f"{name}.cdx.json", content) for name, content in _bills()]
    published = (archive, *schemas, *bills)
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in published)
    (folder / CHECKSUMS).write_text(sums, encoding="utf-8")
    (folder / NOTES).write_text(notes, encoding="utf-8")
    return (*published, folder / CHECKSUMS, folder / NOTES)


def _bills() -> list[tuple[str, object]]:
    return list(bill_of_materials.of_folder(ROOT, project_version()).items())


def _bill(file: Path, content: object) -> Path:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return file


def notes_of(changelog: str, version: str) -> str:
    """What a changelog says of a version, without its heading.

    Raises:
        OperationError: if it says nothing of it.
    """
    number = version.removeprefix("v")
    section = re.search(rf"(?ms)^## \[{re.escape(number)}\][^\n]*\n(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)", changelog)
    notes = section[1].strip() if section else ""
    if not notes:
        raise OperationError(
            f"CHANGELOG.md has nothing under '## [{number}]'. Give the unreleased changes that heading, with the date."
        )
    # A relative link leads nowhere on the page of a release.
    return re.sub(r"\[([^\]]+)\]\((?!https://)[^)]*\)", r"\1", notes) + "\n"


def _archive(file: Path, *, prefix: str) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", f"--prefix={prefix}", "--output", str(file.resolve()), "HEAD"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise OperationError(f"git can't archive this checkout: {done.stderr.strip()}")
