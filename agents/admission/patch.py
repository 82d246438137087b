"""The JSON patch (RFC 6902) from a pod to its mutation, proven by applying it.

It follows what the mutation made anew and nothing else, so it takes time in proportion to the pod: a general diff of
lists takes much more, and a pod with thousands of entries would keep all others waiting.
"""

from typing import Any

import msgspec

from agents.admission.pods import Pod
from agents.admission.proof import apply

_ENCODER = msgspec.json.Encoder(order="deterministic")


def difference(before: Pod, after: Pod) -> bytes | None:
    """The JSON patch from one pod to another, or None if they are equal.

    Raises:
        RuntimeError: the patch does not lead from one to the other; nothing may be sent then.
    """
    source, target = _ENCODER.encode(before), _ENCODER.encode(after)
    if source == target:
        return None
    operations: list[dict[str, Any]] = []
    _compare("", before, after, operations)
    patch = _ENCODER.encode(operations)
    # From the bytes that are sent, by what knows nothing of how they were made. Compared as JSON: in Python, 1 equals
    # True.
    applied = apply(msgspec.json.decode(source), msgspec.json.decode(patch))
    if _ENCODER.encode(applied) != target:
        raise RuntimeError("the patch does not lead to the wanted pod")
    return patch


def _compare(path: str, before: Any, after: Any, operations: list[dict[str, Any]]) -> None:  # noqa: ANN401 - JSON
    """Additions and replacements: what lost a field, as where another entry took its place, is replaced as a whole."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
        for key, value in after.items():
            if key not in before:
                operations.append({"op": "add", "path": _place(path, key), "value": value})
            elif before[key] is not value:
                _compare(_place(path, key), before[key], value, operations)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        # Entries that came in between move those behind them: then each place is replaced, as far as it differs.
        for index, (value, changed) in enumerate(zip(before, after, strict=False)):
            if value is not changed:
                _compare(f"{path}/{index}", value, changed, operations)
        operations += [{"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :]]
    elif _ENCODER.encode(before) != _ENCODER.encode(after):
        operations.append({"op": "replace", "path": path, "value": after})


def _place(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
