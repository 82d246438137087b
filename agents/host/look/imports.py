"""The imports of a containerd configuration: read by a parser, edited as text.

An edit leaves comments and everything else where they are. So it is tried as text, and taken only if the parser then
reads the same file with other imports.
"""

from __future__ import annotations

import fnmatch
import json
import os.path
import re
from typing import TYPE_CHECKING, Any

import tomli  # Packed into the one file: Python has its own from 3.11 on only, and hosts have older ones.

from agents.host.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LIST = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*version[ \t]*=[ \t]*\d+[^\n]*\n?", re.MULTILINE)
_BETWEEN = ("", ",", "\n", "\n,")
"""What may have to stand before another entry: a comma, and a new line where the last one ends in a comment."""


class UntriedError(HostError):
    """What a configuration imports can't be told before it is in force."""


def text_of(content: bytes) -> str:
    """A configuration as text; bytes that are not UTF-8 come back as they are by `bytes_of`."""
    return content.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The bytes of such a text."""
    return text.encode("utf-8", "surrogateescape")


def document(text: str, name: str = "containerd's configuration") -> dict[str, Any]:
    """What a configuration says.

    Raises:
        HostError: It is no TOML.
    """
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        # The line itself may hold a registry's password; the parser tells its number.
        raise HostError(f"{name} can't be read: {error}.", "Correct that line, then run again.") from error


def file_version(text: str) -> int | None:
    """A configuration's version, None where the file does not say one (containerd takes it for version 1).

    Raises:
        HostError: It is no TOML.
    """
    version = document(text).get("version")
    return version if isinstance(version, int) else None


def listed(text: str) -> list[str]:
    """A configuration's imports.

    Raises:
        HostError: It is no TOML.
    """
    entries = document(text).get("imports")
    return [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []


def absolute(entry: str, config: str) -> str:
    """An import with its whole path, as containerd takes it: from the folder of the file in which it stands."""
    return "/" + os.path.normpath(f"{config.rpartition('/')[0]}/{entry}" if entry[:1] != "/" else entry).lstrip("/")


def refuse_untried(entries: list[str], config: str, folder: str, *, containerd_1: bool) -> None:
    """Refuse imports of which nobody can tell beforehand what they take in.

    Args:
        entries: The imports of a file.
        config: That file's host path.
        folder: The folder of imported files, of which candidates are tried elsewhere.
        containerd_1: Whether containerd is older than 2.0.

    Raises:
        UntriedError: There is one; the message says which, and what to write in its place.
    """
    for entry in entries:
        if containerd_1 and "*" in entry and entry[:1] != "/":
            raise UntriedError(
                f'{config} imports "{entry}". containerd 1.x looks for such a pattern in the folder in which it was '
                "started, so nobody can tell which files it reads.",
                f'Write the pattern with its whole path, for example "{absolute(entry, config)}"; nothing was changed.',
            )
        parts, whole = absolute(entry, config).split("/"), folder.split("/")
        above = parts[: len(whole)]
        into = len(parts) > len(whole) and all(map(fnmatch.fnmatchcase, whole, above))
        if into and above != whole:
            raise UntriedError(
                f'{config} imports "{entry}", which takes in {folder} together with other folders: a change of that '
                "folder can't be tried beforehand.",
                f'Name each folder in a pattern of its own, for example "{folder}/*.toml"; nothing was changed.',
            )


def with_import(text: str, pattern: str) -> str:
    """A configuration that imports a pattern as its last; the rest of the file, comments included, stays.

    Raises:
        HostError: It is no TOML, or can't be edited so.
    """
    entries = listed(text)
    return text if pattern in entries else _edited(text, _with(text, pattern), [*entries, pattern])


def without_import(text: str, pattern: str, *, empty_list: bool) -> str:
    """A configuration that does not import a pattern any more; the rest of the file stays.

    Args:
        text: The configuration.
        pattern: What it imports.
        empty_list: Whether a list that gets empty stays.

    Raises:
        HostError: It is no TOML, or can't be edited so.
    """
    entries = listed(text)
    if pattern not in entries:
        return text
    entries.remove(pattern)
    if entries or empty_list:
        return _edited(text, _without(text, pattern), entries)
    return _edited(text, _without_list(text), None)


def with_imports(text: str, entries: list[str]) -> str:
    """A configuration that imports these in place of its own.

    Raises:
        HostError: It is no TOML, or can't be edited so.
    """
    joined = ", ".join(_quoted(entry) for entry in entries)
    replaced = [f"{text[:start]}{joined}{text[end:]}" for start, end in _lists(text)]
    return _edited(text, [*replaced, f"imports = [{joined}]\n{text}"], entries)


def _edited(text: str, candidates: Iterable[str], entries: list[str] | None) -> str:
    expected = document(text)
    expected.pop("imports", None)
    if entries is not None:
        expected["imports"] = entries
    for candidate in candidates:
        if _said(candidate) == expected:
            return candidate
    raise HostError(
        "The imports of containerd's configuration can't be edited without a change of something else.",
        'Write them in one line, `imports = ["..."]`, before the first table, then run again.',
    )


def _said(text: str) -> dict[str, Any] | None:
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError:
        return None


def _lists(text: str) -> Iterator[tuple[int, int]]:
    """Where a list of imports may stand in the text: what is between its brackets."""
    for match in _LIST.finditer(text):
        end = text.find("]", match.end())
        while end >= 0:
            if _said(text[match.start() : end + 1]) is not None:
                yield match.end(), end
                break
            end = text.find("]", end + 1)


def _with(text: str, pattern: str) -> Iterator[str]:
    for start, end in _lists(text):
        present = text[start:end].rstrip()
        space = " " if present.strip() else ""
        for between in _BETWEEN:
            yield f"{text[:start]}{present}{between}{space}{_quoted(pattern)}{text[end:]}"
    line = f"imports = [{_quoted(pattern)}]\n"
    for match in _VERSION.finditer(text):
        upto = text[: match.end()]
        yield upto + ("" if upto.endswith("\n") else "\n") + line + text[match.end() :]
    yield line + text


def _without(text: str, pattern: str) -> Iterator[str]:
    entry = rf"""(["']){re.escape(pattern)}\1"""
    for start, end in _lists(text):
        present = text[start:end]
        for around in (rf"\s*,?\s*{entry}", rf"[ \t]*,?[ \t]*{entry}", rf"{entry}[ \t]*,?"):
            for match in re.finditer(around, present):
                left = present[: match.start()] + present[match.end() :]
                yield text[:start] + left.lstrip(", ") + text[end:]


def _without_list(text: str) -> Iterator[str]:
    for start, end in _lists(text):
        after = text.find("\n", end)
        yield text[: text.rfind("\n", 0, start) + 1] + ("" if after < 0 else text[after + 1 :])


def _quoted(entry: str) -> str:
    return json.dumps(entry, ensure_ascii=False)
