"""Reads what the engine hands to a pack into plain values, so that no rule meets a proxy.

The SDK's proxies are neither dict nor list, and reading one unknown value raises: the whole policy would become an
advisory (pulumi-policy 1.21, proxy.py and policy.py). Here an unknown value becomes a marker in its own place.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, unique
from typing import TypeAlias

import pulumi
from pulumi_policy import proxy

MAX_DEPTH = 100
"""Levels that are read; the engine's own messages end at about 50 (protobuf's recursion limit)."""

MAX_TEXTS = 5
"""Texts in each other that are read."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the resource's inputs to a value."""

TEXT = "(text)"
"""A step of a path: from a string into what is written in it."""


@unique
class Hole(Enum):
    """What stands where a value can't be read."""

    UNKNOWN = "unknown until the update runs"
    TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels, or than {MAX_TEXTS} texts in each other"
    TOO_LARGE = "text that is too large, or that repeats itself through YAML aliases"


_SENTINELS = frozenset(
    {
        proxy.UNKNOWN_BOOLEAN_VALUE,
        proxy.UNKNOWN_NUMBER_VALUE,
        proxy.UNKNOWN_STRING_VALUE,
        proxy.UNKNOWN_ARRAY_VALUE,
        proxy.UNKNOWN_ASSET_VALUE,
        proxy.UNKNOWN_ARCHIVE_VALUE,
        proxy.UNKNOWN_OBJECT_VALUE,
    }
)


def plain(value: object, depth: int = 0) -> object:
    """A value as dicts, lists, scalars and holes; keys are strings.

    Args:
        value: anything, in particular the SDK's proxies.
        depth: how deep it lies already.
    """
    if isinstance(value, str):
        return Hole.UNKNOWN if value in _SENTINELS else value
    if value is None or isinstance(value, bool | int | float | Hole):
        return value
    if depth >= MAX_DEPTH:
        return Hole.TOO_DEEP
    # The usual types first: to ask an abstract class costs ten times as much.
    if isinstance(value, (dict, proxy._DictProxy, Mapping)):  # noqa: SLF001
        return {str(key): plain(item, depth + 1) for key, item in _items(value)}
    if isinstance(value, (list, proxy._ListProxy, Sequence)) and not isinstance(value, (bytes, bytearray)):  # noqa: SLF001
        return [plain(_item(value, index), depth + 1) for index in range(len(value))]
    return _asset(value, depth)


def _items(mapping: Mapping[object, object]) -> Iterator[tuple[object, object]]:
    for key in mapping:
        try:
            yield key, mapping[key]
        except proxy.UnknownValueError:
            yield key, Hole.UNKNOWN


def _item(sequence: Sequence[object], index: int) -> object:
    try:
        return sequence[index]
    except proxy.UnknownValueError:
        return Hole.UNKNOWN


def _asset(value: object, depth: int) -> object:
    match value:
        case pulumi.StringAsset():
            return plain(value.text, depth + 1)
        case pulumi.AssetArchive():
            return plain(value.assets, depth + 1)
        case _:
            # Files and addresses: their content is not part of the resource's inputs.
            return None


def render(path: Path) -> str:
    """A path as a person writes it: `spec.containers[0].image`, `data["a.yaml"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step == TEXT:
            text += TEXT
        elif step.replace("-", "").replace("_", "").isalnum():
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text or "(the whole resource)"


def names(path: Path) -> tuple[str, ...]:
    """The path's keys without indexes, in lower case."""
    return tuple(step.casefold() for step in path if isinstance(step, str))


def parent(path: Path) -> str:
    """The key that holds a path's last key, in lower case; empty where there is none."""
    return next(iter(names(path)[-2:-1]), "")


def one_of(value: object, allowed: frozenset[str]) -> bool:
    """Whether a value of any type is one of these strings."""
    return isinstance(value, str) and value in allowed


def text_of(value: object) -> str:
    """A string, or an empty one for everything else."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, object]:
    """A mapping, or an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """A list, or an empty one for everything else."""
    return value if isinstance(value, list) else []
