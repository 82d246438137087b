"""A chart's values that are given by dotted name, as `helm --set` takes them, written out as the values that they set.

Argo CD's parameters, Terraform's `set` and k3s' `set` are handed to Helm in its own syntax (pkg/strvals): `a.b[0].c=d`,
with a backslash before a character that means itself, commas between several, and lists in braces.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from policy.reading import Hole

_TERRAFORM = frozenset({"set", "sets", "setList", "setLists", "setSensitive", "setSensitives"})
_KEYS = frozenset({"name", "value", "values", "type", "forceString"})
_STEP = re.compile(r"((?:[^\\.\[\]]|\\.)+)|\[(\d{1,9})\]", re.DOTALL)
_MARK = re.compile(r"\\.|[=,{}]", re.DOTALL)
_ASSIGNED = re.compile(r"((?:[^\\=]|\\.)*)=(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_Tree: TypeAlias = dict[str | int, object]
_MOST_STEPS = 60


def written_out(path: Sequence[str | int], value: object, *, of_k3s: bool) -> object:
    """The values that are set there, in place of their names; what is anything else stays as it is.

    Args:
        path: of the value, whose keys say who reads it.
        value: a list of names with values, or k3s' mapping.
        of_k3s: whether k3s reads the object.
    """
    match value:
        case dict() if of_k3s and path[-2:] == ("spec", "set") and all(map(_is_leaf, value.values())):
            return _tree(value.items())
        case dict() if "name" in value and _is_named(path):
            # A block that is there once, as some bridges have it.
            return written_out(path, [value], of_k3s=of_k3s)
        case list() if _is_named(path) and all(map(_is_assignment, value)):
            items = (item for item in value if not isinstance(item["name"], Hole))
            return _tree((item["name"], item.get("value", item.get("values"))) for item in items)
        case _:
            return value


def _is_named(path: Sequence[str | int]) -> bool:
    return path[-1] in _TERRAFORM or tuple(path[-2:]) == ("helm", "parameters")


def _is_assignment(item: object) -> bool:
    """Whether there is nothing but a name and its value: what else there is would not be judged any more."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("name"), str | Hole)
        and item.keys() <= _KEYS
        and all(map(_is_leaf, item.values()))
    )


def _is_leaf(value: object) -> bool:
    return not any(isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value]))


def _tree(assignments: Iterable[tuple[str, object]]) -> dict[str, object]:
    """What some assignments set; a later one wins."""
    tree: _Tree = {}
    for name, value in assignments:
        for steps, content in _read(name, value):
            _set(tree, steps, content)
    return {str(key): _plain(value) for key, value in tree.items()}


def _read(name: str, value: object) -> Iterator[tuple[list[str | int], object]]:
    if not isinstance(value, str):
        yield _steps(name), value
        return
    for part in _parts(f"{name}={value}"):
        if assigned := _ASSIGNED.fullmatch(part):
            yield _steps(assigned.group(1)), _value(assigned.group(2))


def _parts(text: str) -> Iterator[str]:
    """What stands between commas that are in no list; a list is only a value that begins with a brace."""
    begin = opened = 0
    assigned = False
    for mark in _MARK.finditer(text):
        match mark.group():
            case "=" if not assigned:
                assigned = True
                opened = int(text.startswith("{", mark.end()))
            case "}":
                opened = 0
            case "," if not opened:
                yield text[begin : mark.start()]
                begin, assigned = mark.end(), False
            case _:
                pass
    yield text[begin:]


def _steps(name: str) -> list[str | int]:
    return [int(index) if index else _ESCAPED.sub(r"\1", key) for key, index in _STEP.findall(name)][:_MOST_STEPS]


def _value(text: str) -> object:
    if text.startswith("{") and text.endswith("}"):
        return [_ESCAPED.sub(r"\1", item) for item in _parts(text[1:-1])]
    return _WORDS.get(text, _ESCAPED.sub(r"\1", text))


def _set(tree: _Tree, steps: list[str | int], value: object) -> None:
    for step in steps[:-1]:
        below = tree.get(step)
        if not isinstance(below, dict):
            tree[step] = below = {}
        tree = below
    if steps:
        tree[steps[-1]] = value


def _plain(node: object) -> object:
    """Lists were mappings by index, since nobody says how long they are."""
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(key, int) for key in node):
        return [_plain(node[index]) for index in sorted(node)]
    return {str(key): _plain(value) for key, value in node.items()}
