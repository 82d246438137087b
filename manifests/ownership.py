"""Whose an object is: what this program writes beside its fields, and what it keeps of those that it found."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from manifests.objects import Manifest

BEFORE = "kai-anywhere.io/before"
"""Annotation of an object that was adopted: its own values, as JSON, in the fields that the stack sets."""
FIELD_MANAGER = "pulumi.com/patchFieldManager"
"""Annotation that tells Pulumi's Kubernetes provider by which name to apply; without it, the name is random."""

_PROGRAM = "kai-anywhere"
_OWNER_MAX = 52
_NAME_MAX = 50
_DIGEST = 12


def key(manifest: Mapping[str, Any]) -> str:
    """`Kind/name`, or `Kind/namespace/name`: as it stands in `cluster.adopt`."""
    metadata = manifest["metadata"]
    return "/".join([manifest["kind"], *filter(None, [metadata.get("namespace"), metadata["name"]])])


def field_manager(stack: str, resource: str) -> str:
    """The field manager of one resource of one stack, at most 128 characters, as Kubernetes allows.

    The same in every run, so that the run after a killed one knows what that one made.

    Args:
        stack: the stack, as project/name.
        resource: the resource's logical name.
    """
    return f"{owner(stack)}{_short(resource, _NAME_MAX)}"


def owner(stack: str) -> str:
    """What the field managers of a stack begin with."""
    return f"{_PROGRAM}/{_short(stack, _OWNER_MAX)}/"


def stack_of(manager: str) -> str | None:
    """The stack that a field manager belongs to, or None where it is not one of this program."""
    program, _, rest = manager.partition("/")
    return rest.rpartition("/")[0] if program == _PROGRAM and "/" in rest else None


def resource_of(manager: str) -> str:
    """The logical name of the resource that a field manager of this program belongs to, shortened where it is long."""
    return manager.rpartition("/")[2]


def _short(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - _DIGEST - 1]}~{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]}"


def before(live: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields that we set hold now; lists are kept whole. Fields that are not there are left out."""
    kept: dict[str, Any] = {}
    for field, value in _settable(ours).items():
        if field not in live:
            continue
        current = live[field]
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            if inner := before(current, value):
                kept[field] = inner
        else:
            kept[field] = current
    return kept


def to_give_back(kept: Mapping[str, Any], ours: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """What of the kept values goes back: those whose fields still hold what we wrote. The others are somebody's.

    Args:
        kept: the values.
        ours: what we wrote.
        live: what of the object is still ours.
    """
    back: dict[str, Any] = {}
    for field, value in kept.items():
        mine, current = ours.get(field), live.get(field)
        if isinstance(value, Mapping) and isinstance(mine, Mapping) and isinstance(current, Mapping):
            if inner := to_give_back(value, mine, current):
                back[field] = inner
        elif _holds(current, mine):
            back[field] = value
    return back


def owned(content: Mapping[str, Any], *fields: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object field managers own, as their entries in `managedFields` say; lists are whole.

    A refresh writes the values of others into what we remember, so values alone don't tell whose they are.
    """
    ours: dict[str, Any] = {}
    for field, value in content.items():
        if inner := [entry[f"f:{field}"] for entry in fields if f"f:{field}" in entry]:
            # The field `.` is a mapping itself, whoever has what is in it.
            ours[field] = owned(value, *inner) if isinstance(value, Mapping) and any(inner) else value
    return ours


def beside(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """What of their values stands in none of our fields."""
    others: dict[str, Any] = {}
    for field, value in theirs.items():
        if field not in ours:
            others[field] = value
        elif isinstance(value, Mapping) and isinstance(ours[field], Mapping) and (inner := beside(value, ours[field])):
            others[field] = inner
    return others


def annotated(manifest: Manifest, kept: Mapping[str, Any]) -> Manifest:
    """The manifest with the kept values in its annotation."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations", {}) | {BEFORE: kept_text(kept)}
    return manifest | {"metadata": metadata | {"annotations": annotations}}


def kept_text(kept: Mapping[str, Any]) -> str:
    """The kept values as text: whole numbers stay whole wherever it is kept."""
    return json.dumps(kept, sort_keys=True)


def kept_values(text: str) -> dict[str, Any]:
    """The reverse of `kept_text`."""
    kept: dict[str, Any] = json.loads(text)
    return kept


def _settable(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Without what identifies an object: apiVersion, kind, name and namespace stay as they are."""
    if "kind" not in ours or "metadata" not in ours:
        return dict(ours)
    metadata = {field: ours["metadata"][field] for field in ("labels", "annotations") if field in ours["metadata"]}
    content = {field: value for field, value in ours.items() if field not in {"apiVersion", "kind", "metadata"}}
    return content | ({"metadata": metadata} if metadata else {})


def _holds(current: object, mine: object) -> bool:
    """Whether a value is what we wrote, whatever the API server filled in beside it."""
    match mine:
        case Mapping():
            return isinstance(current, Mapping) and all(
                _holds(current.get(name), value) for name, value in mine.items()
            )
        case list():
            return (
                isinstance(current, list)
                and len(current) == len(mine)
                and all(_holds(current_item, own_item) for current_item, own_item in zip(current, mine, strict=True))
            )
        case _:
            return current == mine
