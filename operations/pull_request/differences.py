"""Which values of a resource change, from what to what."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from operations.engine_events import State, Step
from operations.redaction import Redactor

_PATH_PART = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)')
ABSENT = object()
"""No such value."""


@dataclass(frozen=True)
class Difference:
    """One value.

    Attributes:
        path: where it stands in the resource, such as `spec.replicas`.
        old: what it is as JSON; None where it is not there.
        new: what it becomes, likewise.
        replaces: whether this forces the resource to be made anew.
    """

    path: str
    old: str | None
    new: str | None
    replaces: bool = False


def differences(step: Step, redactor: Redactor) -> tuple[Difference, ...]:
    """What a step changes in its resource; nothing for a resource that is created or deleted as a whole.

    The provider says which paths (`detailedDiff`); where it does not, old and new inputs are compared.
    """
    if step.old is None or step.new is None:
        return ()
    new = redactor.inputs(step.type, step.new.inputs or {})
    old = redactor.inputs(step.type, step.old.inputs or {})
    if step.detailed_diff is None:
        return tuple(_compared(old, new, ""))
    remembered = redactor.inputs(step.type, _state(step.old))
    shown = _shown_once()
    changed = []
    for path, diff in sorted(step.detailed_diff.items()):
        base = old if diff.input_diff else remembered
        before, after = _look_up(base, path), _look_up(new, path)
        if before is ABSENT and not diff.kind.startswith("add"):
            before = _look_up(old, path)
        changed.append(
            Difference(
                path=redactor.text(path),
                old=None if diff.kind.startswith("add") else shown(before),
                new=None if diff.kind.startswith("delete") else shown(after),
                replaces=diff.kind.endswith("-replace"),
            )
        )
    return tuple(changed)


def drift(step: Step, redactor: Redactor) -> tuple[Difference, ...]:
    """What a refresh found: the remembered state against the present one, where the provider says that they differ."""
    if step.old is None or step.new is None:
        return ()
    old, new = (redactor.inputs(step.type, _state(state)) for state in (step.old, step.new))
    shown = _shown_once()
    return tuple(
        Difference(redactor.text(path), shown(_look_up(old, path)), shown(_look_up(new, path)))
        for path in sorted(step.detailed_diff or {})
    )


def _state(state: State) -> Mapping[str, object]:
    return state.outputs or state.inputs or {}


def _compared(old: object, new: object, path: str) -> Iterator[Difference]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _compared(old.get(key, ABSENT), new.get(key, ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _compared(before, after, f"{path}[{index}]")
    else:
        yield Difference(path, _shown(old), _shown(new))


def _shown(value: object) -> str | None:
    return None if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _shown_once() -> Callable[[object], str | None]:
    """A `_shown` that writes each value once, while all are held: many paths of a plan may lead to a large one."""
    texts: dict[int, str | None] = {}

    def shown(value: object) -> str | None:
        if id(value) not in texts:
            texts[id(value)] = _shown(value)
        return texts[id(value)]

    return shown


def _look_up(values: Mapping[str, object], path: str) -> object:
    """The value at a property path of the engine: `spec.containers[0].env`, `metadata.labels["a.b/c"]`."""
    node: object = values
    for quoted, index, plain in _PATH_PART.findall(path):
        match node:
            case Mapping():
                key = quoted.replace('\\"', '"') or index or plain
                node = node.get(key, ABSENT)
            case list():
                node = node[int(index)] if index and int(index) < len(node) else ABSENT
            case _:
                return ABSENT
    return node
