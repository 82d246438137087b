"""Reads what the engine hands to a pack into plain values, so that no rule meets a proxy.

The SDK's proxies are neither dict nor list, and reading one unknown value raises: the whole policy would become an
advisory (pulumi-policy 1.21, proxy.py and policy.py). Here an unknown value becomes a marker in its own place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import Any, TypeAlias

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
    ELSEWHERE = "not in the program's folder"
    TOO_LARGE = "text that is too large, or that repeats itself through YAML aliases"


@dataclass(frozen=True)
class Elsewhere:
    """A file or an address. Its content is not part of the resource's inputs, so it counts as nothing at all.

    Attributes:
        file: the file's path; empty for an address.
    """

    file: str

    def __bool__(self) -> bool:
        return False


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
_SCALARS = frozenset({type(None), bool, int, float, Hole, Elsewhere})
_PROXIES = frozenset({proxy._DictProxy, proxy._ListProxy})  # noqa: SLF001 - the SDK names them nowhere else


def plain(value: Any, depth: int = 0) -> object:  # noqa: ANN401 - anything
    """A value as dicts, lists, scalars and holes; keys are strings.

    Args:
        value: anything, in particular the SDK's proxies.
        depth: how deep it lies already.
    """
    # This runs for every value of every resource, once for each policy: exact types first, abstract classes last.
    kind: type = type(value)
    if kind in _PROXIES:
        # What it stands for, as the SDK itself takes it to send it on: nothing is asked key by key, and nothing raises.
        value = value["__target"]
        kind = type(value)
    if kind is str:
        return Hole.UNKNOWN if value in _SENTINELS else value
    if kind in _SCALARS:
        return value
    if depth >= MAX_DEPTH:
        return Hole.TOO_DEEP
    depth += 1
    if kind is dict:
        return {str(key): plain(item, depth) for key, item in value.items()}
    if kind is list:
        return [plain(item, depth) for item in value]
    return _unusual(value, depth)


def _unusual(value: object, depth: int) -> object:  # noqa: PLR0911 - one for each kind
    match value:
        case str() | int() | float():
            return value
        case Mapping():
            return {str(key): plain(item, depth) for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [plain(item, depth) for item in value]
        case pulumi.StringAsset():
            return plain(value.text, depth)
        case pulumi.AssetArchive():
            return plain(value.assets, depth)
        case pulumi.FileAsset():
            return Elsewhere(str(value.path))
        case pulumi.RemoteAsset():
            return Elsewhere("")
        case _:
            # Archives.
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
