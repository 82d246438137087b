"""Reads CEL expressions of admission policies, as far as a text can be read.

The object that an expression writes out (`Object{spec: Object.spec{...}}`) is judged like every other. Of what is
computed, here is asked what nobody can know without a request: names of fields, objects from elsewhere, and whether an
expression looks at the request at all.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat

_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d+(?:\.\d+)?|[A-Za-z_][\w.]*|[{}\[\]:,]|\S)""")
_LITERALS = {"true": True, "false": False, "null": None}
_TYPES = frozenset({"Object", "JSONPatch"})
_MAX_DEPTH = 60
_OPTIONAL = re.compile(r"(?<=[.\[])\?")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_REQUEST = frozenset({"object", "oldObject", "request", "params", "namespaceObject", "authorizer"})
"""What differs from request to request; `variables` are looked up."""
_FREE_PATHS = ("/metadata/labels", "/metadata/annotations")
_TEXTS_ONLY = frozenset({"ConfigMap", "Secret"})
"""Kinds of parameters that hold texts and no objects."""
_ELSEWHERE = re.compile(r"params(?:\.(?!metadata\b)[\w.]*)?|(?:resource|http|globalContext)\.(?:Get|List|Post)")
"""Where objects come from that are not in the request; the second half is Kyverno's."""
_COMPARED = frozenset("=!<>&|?") | {"in"}
_ASKS = re.compile(r".*\.(?:exists|exists_one|all|size|contains|startsWith|endsWith|matches)")


class NotALiteralError(Exception):
    """The expression computes something; what it writes can't be known without a request."""


def read_literal(expression: str) -> object:
    """The value of an expression that consists of objects, lists and literals alone.

    Raises:
        NotALiteralError: if it calls, selects or compares anything.
    """
    return _whole(_TOKEN.findall(expression))


def read_choices(expression: str) -> list[object]:
    """The values of such expressions among which one chooses, `test ? one : another`; the one value without a choice.

    Raises:
        NotALiteralError: if one of the values is computed, or is itself a choice in brackets.
    """
    _, *rest = _split(_TOKEN.findall(expression), ("?",))
    if not rest:
        return [read_literal(expression)]
    # Before a colon stands what is chosen; behind it the next test, and behind the last one the last value.
    halves = [_split(part, (":",)) for part in rest]
    if any(len(half) != 2 for half in halves):  # noqa: PLR2004 - the value and what follows
        raise NotALiteralError
    return [_whole(tokens) for tokens in (*(half[0] for half in halves), halves[-1][1])]


def _whole(tokens: Sequence[str]) -> object:
    stream = chain(tokens, repeat(""))
    value = _value(stream, next(stream), 0)
    if next(stream) != "":
        raise NotALiteralError
    return value


def _value(tokens: Iterator[str], token: str, depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise NotALiteralError
    if token in _LITERALS:
        return _LITERALS[token]
    if token == "[":  # noqa: S105 - CEL's bracket
        return _list(tokens, depth)
    if token == "{":  # noqa: S105 - CEL's brace
        return _object(tokens, depth, typed=False)
    if token[:1] in {'"', "'"}:
        return _string(token)
    if re.fullmatch(r"-?\d+(?:\.\d+)?", token):
        return float(token) if "." in token else int(token)
    if (token in _TYPES or token.startswith("Object.")) and next(tokens) == "{":
        return _object(tokens, depth, typed=True)
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


def _object(tokens: Iterator[str], depth: int, *, typed: bool) -> dict[str, object]:
    """Fields of a type are names; keys of a map are texts, or else computed."""
    fields: dict[str, object] = {}
    token = next(tokens)
    while token != "}":  # noqa: S105 - CEL's brace
        key = _string(token) if token[:1] in {'"', "'"} else token if typed else ""
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


def computes_fields(expression: str) -> bool:
    """Whether the name of a field, or the path of a JSON patch, is anything but a plain text."""
    tokens = _all(expression)
    opened: list[str] = []
    for index, token in enumerate(tokens):
        if token in {"{", "[", "("}:
            typed = token == "{" and index > 0 and _NAME.fullmatch(tokens[index - 1])  # noqa: S105 - CEL's brace
            opened.append(tokens[index - 1] if typed else token)
        elif token in {"}", "]", ")"} and opened:
            opened.pop()
        if token not in {"{", ","} or not opened or opened[-1] in {"[", "("}:
            continue
        begin = index + 1 + (tokens[index + 1 : index + 2] == ["?"])
        key, colon, value, end = [*tokens[begin : begin + 4], "", "", "", ""][:4]
        if key in {"}", ""}:
            continue
        if opened[-1] == "{":
            if not (_is_plain(key) and colon == ":"):
                return True
        elif key == "path" and not (_is_plain(value) and (end in {",", "}"} or _stays(tokens[begin + 2 :]))):
            return True
    return False


def takes_objects(expression: str, parameter: str) -> bool:
    """Whether a whole object may come from a parameter or another lookup, and not only a text or an answer.

    Args:
        expression: of a mutation or variable.
        parameter: the kind of the policy's parameter; empty where it is not known.
    """
    tokens = _all(expression)
    for index, token in enumerate(tokens):
        if not _ELSEWHERE.fullmatch(token) or (token.startswith("params") and parameter in _TEXTS_ONLY):
            continue
        before, after = (tokens[index - 1] if index else ""), (tokens[index + 1] if index + 1 < len(tokens) else "")
        answers = (
            tokens[max(index - 2, 0) : index] in (["has", "("], ["string", "("])
            or after in _COMPARED
            or (before in _COMPARED - {"?"})
            or (after == "(" and _ASKS.fullmatch(token))
        )
        if not answers:
            return True
    return False


def is_always_true(expression: str, variables: Mapping[str, str]) -> bool:
    """Whether an expression is true for every request, or says the same to each of them.

    Args:
        expression: of a validation.
        variables: the policy's variables.
    """
    tokens = _unwrapped(_all(expression))
    if not _reads(tokens, dict(variables)):
        return True
    for part in _split(tokens, ("|", "|")):
        # A variable may be the same for every request of one stack, and decide something in another.
        if part != ["false"] and not _reads(part, {}):
            return True
        if any(_is_same(part, operator) for operator in (("=", "="), ("<", "="), (">", "="))):
            return True
        if part[-3:] == [">", "=", "0"]:
            return True
    return False


def _all(expression: str) -> list[str]:
    """Every token; a selection that may fail (`.?`, `[?`) reads like one that may not."""
    return _TOKEN.findall(_OPTIONAL.sub("", expression))


def _is_plain(token: str) -> bool:
    """A text without an escape: nobody needs one in a field's name."""
    return token[:1] in {'"', "'"} and len(token) > 1 and "\\" not in token


def _stays(value: Sequence[str]) -> bool:
    """Whether a path begins below labels or annotations, whatever is put behind."""
    if not value[0][1:].startswith(_FREE_PATHS) or value[1:2] != ["+"]:
        return False
    depth = 0
    for token in value:
        if token in {"{", "[", "("}:
            depth += 1
        elif token in {"}", "]", ")"}:
            depth -= 1
        if depth < 0 or (depth == 0 and token == ","):  # noqa: S105 - CEL's comma
            return True
        if token == "?":  # noqa: S105 - CEL's choice
            return False
    return True


def _reads(tokens: Sequence[str], variables: dict[str, str]) -> bool:
    for index, token in enumerate(tokens):
        if not _NAME.fullmatch(token) or (index and tokens[index - 1] == "."):
            continue
        root, _, rest = token.partition(".")
        name = rest.partition(".")[0]
        if root in _REQUEST or (root == "variables" and name not in variables):
            return True
        if root == "variables":
            # Each is looked at once.
            text, variables[name] = variables[name], ""
            if _reads(_all(text), variables):
                return True
    return False


def _unwrapped(tokens: list[str]) -> list[str]:
    for _ in range(_MAX_DEPTH):
        if tokens[:1] != ["("] or _split(tokens[1:], (")",)) != [tokens[1:-1], []]:
            break
        tokens = tokens[1:-1]
    return tokens


def _is_same(tokens: list[str], operator: tuple[str, ...]) -> bool:
    sides = _split(_unwrapped(tokens), operator)
    return len(sides) == 2 and bool(sides[0]) and _unwrapped(sides[0]) == _unwrapped(sides[1])  # noqa: PLR2004


def _split(tokens: list[str], separator: tuple[str, ...]) -> list[list[str]]:
    """The parts between separators that stand in no bracket."""
    parts: list[list[str]] = [[]]
    depth = skip = 0
    for index, token in enumerate(tokens):
        if skip:
            skip -= 1
        elif depth == 0 and tuple(tokens[index : index + len(separator)]) == separator:
            parts.append([])
            skip = len(separator) - 1
        else:
            depth += (token in {"{", "[", "("}) - (token in {"}", "]", ")"})
            parts[-1].append(token)
    return parts
