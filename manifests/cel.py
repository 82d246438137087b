"""Writes Kubernetes' CEL: literals, the objects of mutations, and texts with values in them."""

import json
import re
from collections.abc import Mapping
from typing import Any


def literal(value: object) -> str:
    """A CEL literal: strings, numbers, booleans, lists and maps are written as in JSON."""
    # CEL has no pairs of surrogates, by which JSON in ASCII writes what is beyond 16 bits.
    return json.dumps(value, ensure_ascii=False)


def constructor(value: Any, path: str = "Object") -> str:  # noqa: ANN401 - JSON
    """The CEL object that a mutation writes for a piece of JSON.

    Args:
        value: the piece; a map whose keys are free (annotations, labels) can't be written so.
        path: its type: the field path, which CEL's mutation types are named after.
    """
    match value:
        case dict():
            fields = ", ".join(f"{key}: {constructor(item, f'{path}.{key}')}" for key, item in value.items())
            return f"{path}{{{fields}}}"
        case list():
            return "[" + ", ".join(constructor(item, path) for item in value) + "]"
        case _:
            return literal(value)


def text(template: str, values: Mapping[str, str]) -> str:
    """A CEL expression for a text with values in it.

    Args:
        template: the text, with marks where values stand.
        values: by mark, the CEL expression of the value, a string.
    """
    pieces = re.split(f"({'|'.join(map(re.escape, values))})", template)
    return " + ".join(values.get(piece) or literal(piece) for piece in pieces if piece)
