"""Reads values of any shape: what the engine tells may come from any program."""

from collections.abc import Mapping


def at(values: Mapping[str, object], *keys: str) -> object:
    """The value below keys, or None where there is none."""
    node: object = values
    for key in keys:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is a mapping; an empty one otherwise."""
    return value if isinstance(value, Mapping) else {}


def text(value: object) -> str:
    """The value if it is a text; an empty one otherwise."""
    return value if isinstance(value, str) else ""
