"""Reads TOML as `containerd config dump` prints it: one key a line, standard tables. Not a general TOML reader.

Python has its own from 3.11 on only, and hosts have older ones. Values are kept as the text they were printed as: they
are compared and copied, never computed with.
"""

from __future__ import annotations

import re
from typing import Dict, Tuple

from agents.host.errors import HostError

Flat = Dict[Tuple[str, ...], str]
"""The values of a document by their full key, each as its TOML text."""

_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|$)""")
_TABLE = re.compile(r"\[(?P<array>\[)?(?P<keys>.+?)\](?(array)\])\s*(#.*)?$")
_PAIR = re.compile(r"""(?P<keys>(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_.\s-])+?)\s*=\s*(?P<value>.*)$""")
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'""")


def flatten(text: str) -> Flat:
    """Gives every value of a dump under its full key.

    Raises:
        HostError: A line is not what containerd prints.
    """
    flat: Flat = {}
    table: tuple[str, ...] = ()
    lines = iter(text.splitlines())
    counts: dict[tuple[str, ...], int] = {}
    for raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        header = _TABLE.match(line)
        if header:
            table = _keys(header.group("keys"), line)
            if header.group("array"):
                counts[table] = counts.get(table, -1) + 1
                table = (*table, str(counts[table]))
            continue
        pair = _PAIR.match(line)
        if pair is None:
            raise _unreadable(line)
        value = pair.group("value").strip()
        while _depth(value) > 0:
            more = next(lines, None)
            if more is None:
                raise _unreadable(line)
            value = f"{value} {more.strip()}"
        flat[table + _keys(pair.group("keys"), line)] = value
    return flat


def below(flat: Flat, prefix: tuple[str, ...]) -> Flat:
    """Gives the values under a key, by what follows it."""
    return {key[len(prefix) :]: value for key, value in flat.items() if key[: len(prefix)] == prefix}


def text_of(value: str) -> str:
    """Gives a string value without its quotes."""
    return value[1:-1] if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0] else value


def _depth(value: str) -> int:
    bare = _STRING.sub("", value)
    return bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}")


def _keys(text: str, line: str) -> tuple[str, ...]:
    parts = []
    position = 0
    while position < len(text):
        found = _PART.match(text, position)
        if found is None:
            raise _unreadable(line)
        parts.append(next(group for group in found.groups()[:3] if group is not None))
        position = found.end()
    return tuple(parts)


def _unreadable(line: str) -> HostError:
    # The line itself may hold a registry's password.
    return HostError(
        f"`containerd config dump` printed a line that can't be read; it begins with {line[:20]!r}.",
        "Run the command by hand and look at that line.",
    )
