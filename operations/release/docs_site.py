"""Puts the built docs of a version beside those of others, in a checkout of the branch that a web server shows.

Zensical has no command for it, and mike, which has one, runs MkDocs. The layout is mike's, which the theme's list of
versions reads: a folder for each version, `versions.json`, and `latest` with a copy of the newest version.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from xml.sax.saxutils import escape

import typer
from pydantic import BaseModel, StringConstraints, TypeAdapter, ValidationError

from operations.errors import OperationError
from operations.new_files import write_whole

_VERSION = r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
_ADDRESS = re.compile(r"https?://[^\s?#]+/")
_VERSIONS, _LATEST, _START, _SITEMAP = "versions.json", "latest", "index.html", "sitemap.xml"
_MARK = "<!-- Written by kai-anywhere docs-site. -->"


class Published(BaseModel, extra="forbid", frozen=True, strict=True):
    """A version as `versions.json` has it."""

    version: Annotated[str, StringConstraints(pattern=rf"^{_VERSION}$")]
    """The name of its folder."""
    title: str
    aliases: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """A key that is greater for a newer version."""
        return tuple(int(part) for part in self.version.removeprefix("v").split("."))


_LIST = TypeAdapter(tuple[Published, ...])


def docs_site(
    version: Annotated[str, typer.Option(help="The tag, such as v1.2.3.")],
    pages: Annotated[Path, typer.Option(help="A checkout of the branch that is published.")],
    address: Annotated[str, typer.Option(help="The site's address, such as https://owner.github.io/name/.")],
    site: Annotated[Path, typer.Option(help="The built docs, as `make docs` leaves them.")] = Path(".site"),
) -> None:
    """Add the docs of a version to a site that keeps those of other versions."""
    published = publish(site, version, pages, address)
    newest = published[0].version
    typer.echo(f"{pages} has the docs of {', '.join(entry.version for entry in published)}; {_LATEST} is {newest}.")


def publish(site: Path, version: str, pages: Path, address: str) -> Sequence[Published]:
    """Put a built site into the folder of its version; other versions stay as they are.

    Returns:
        The published versions, the newest first.

    Raises:
        OperationError: if something is wrong with the input or in the way, or there is no room; then nothing was
            changed.
    """
    if not re.fullmatch(_VERSION, version):
        raise OperationError(f"{version!r} is no version: it must be like v1.2.3.")
    if not _ADDRESS.fullmatch(address):
        raise OperationError(f"{address!r} is no address of a site: it must be like https://owner.github.io/name/.")
    if not (site / _START).is_file():
        raise OperationError(f"There is no built site in {site}. Build it with make docs.")
    if not pages.is_dir():
        raise OperationError(f"There is no folder {pages}. Check the published branch out there.")
    before = _read(pages / _VERSIONS)
    theirs = {entry.version for entry in before}
    theirs |= {alias for entry in before for alias in entry.aliases}
    for name in (version, _LATEST):
        if (pages / name).exists() and name not in theirs:
            raise OperationError(
                f"{pages / name} is there, and {_VERSIONS} does not list it, so it was not published by this command. "
                "Move it away, or list it."
            )
    start = pages / _START
    if start.exists() and not start.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        raise OperationError(f"{start} was not written by this command. Move it away: it becomes a link to {_LATEST}/.")

    names = {entry.version for entry in before} | {version}
    ordered = sorted(
        (Published(version=name, title=name) for name in names), key=lambda entry: entry.order, reverse=True
    )
    newest, *older = ordered
    published = (newest.model_copy(update={"aliases": (_LATEST,)}), *older)
    # A correction of an older version is not the latest.
    folders = [version, *([_LATEST] if newest.version == version else [])]
    with TemporaryDirectory(dir=pages, prefix=".") as aside:
        for name in folders:
            _copy(site, Path(aside) / name, f"{address}{name}/")
        # Only now, as a full disk would have ended it before.
        write_whole(pages / _VERSIONS, _LIST.dump_json(published, indent=2).decode() + "\n")
        write_whole(start, _redirect(f"{_LATEST}/"))
        # GitHub Pages would leave out what begins with an underscore.
        (pages / ".nojekyll").touch()
        for name in folders:
            _put(Path(aside) / name, pages / name)
    return published


def _read(file: Path) -> tuple[Published, ...]:
    if not file.exists():
        return ()
    try:
        return _LIST.validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise OperationError(
            f"{file} is not what this command wrote: {first['msg']}, at {place}. Take it from an earlier commit."
        ) from error


def _copy(site: Path, folder: Path, address: str) -> None:
    """A site in a new folder, with a sitemap: the list of versions finds the same page by it."""
    try:
        shutil.copytree(site, folder)
    except shutil.Error as error:
        [(*_, why), *_] = error.args[0]
        raise OperationError(f"{site} can't be copied: {why}. Nothing was changed.") from error
    places = sorted(page.parent.relative_to(folder).as_posix() for page in folder.rglob(_START))
    urls = "".join(
        f"  <url><loc>{escape(address + ('' if place == '.' else place + '/'))}</loc></url>\n" for place in places
    )
    (folder / _SITEMAP).write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n',
        encoding="utf-8",
    )


def _put(folder: Path, place: Path) -> None:
    """A folder in the place of another one."""
    if place.exists():
        shutil.rmtree(place)
    folder.replace(place)


def _redirect(place: str) -> str:
    return (
        f'{_MARK}\n<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>kai-anywhere</title>\n'
        f'<meta http-equiv="refresh" content="0; url={place}">\n</head>\n<body>\n'
        f'<p>The docs of the newest version are in <a href="{place}">{place}</a>.</p>\n</body>\n</html>\n'
    )
