"""Reads the object that a CEL expression of an admission policy writes out, as `Object{spec: Object.spec{...}}`."""

import json
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|[A-Za-z_][\w.]*|[{}\[\]:,]|\S)""")
_LITERALS = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 60


class NotALiteralError(Exception):
    """The expression computes something; what it writes can't be known without a request."""


def read_literal(expression: str) -> object:
    """The value of an expression that consists of objects, lists and literals alone.

    Raises:
        NotALiteralError: if it calls, selects or compares anything.
    """
    tokens = _tokens(expression)
    value = _value(tokens, next(tokens), 0)
    if next(tokens) != "":
        raise NotALiteralError
    return value


def _tokens(expression: str) -> Iterator[str]:
    for match in _TOKEN.finditer(expression):
        yield match.group(1)
    while True:
        yield ""


def _value(tokens: Iterator[str], token: str, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise NotALiteralError
    if token in _LITERALS:
        return _LITERALS[token]
    if token == "[":  # noqa: S105 - CEL's bracket
        return _list(tokens, depth)
    if token == "{":  # noqa: S105 - CEL's brace
        return _object(tokens, depth)
    if token[:1] in {'"', "'"}:
        return _string(token)
    if re.fullmatch(r"-?\d+(?:\.\d+)?", token):
        return float(token) if "." in token else int(token)
    if (token == "Object" or token.startswith("Object.")) and next(tokens) == "{":  # noqa: S105 - CEL's type name
        return _object(tokens, depth)
    raise NotALiteralError


def _string(token: str) -> str:
    if token[0] == "'":
        if '"' in token or "\\" in token:
            raise NotALiteralError
        token = f'"{token[1:-1]}"'
    try:
        text: str = json.loads(token)
    except ValueError:
        raise NotALiteralError from None
    return text


def _list(tokens: Iterator[str], depth: int) -> list[object]:
    values: list[object] = []
    token = next(tokens)
    while token != "]":  # noqa: S105 - CEL's bracket
        values.append(_value(tokens, token, depth + 1))
        token = _after_comma(tokens, "]")
    return values


def _object(tokens: Iterator[str], depth: int) -> dict[str, object]:
    fields: dict[str, object] = {}
    token = next(tokens)
    while token != "}":  # noqa: S105 - CEL's brace
        key = _string(token) if token[:1] in {'"', "'"} else token
        if not key or key in fields or next(tokens) != ":":
            raise NotALiteralError
        fields[key] = _value(tokens, next(tokens), depth + 1)
        token = _after_comma(tokens, "}")
    return fields


def _after_comma(tokens: Iterator[str], end: str) -> str:
    token = next(tokens)
    if token == end:
        return token
    if token != ",":  # noqa: S105 - CEL's comma
        raise NotALiteralError
    return next(tokens)
