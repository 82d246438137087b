"""The JSON patch (RFC 6902) from a pod to its mutation, proven by applying it.

It follows what the mutation made anew and nothing else, so it takes time in proportion to the pod: a general diff of
lists takes much more, and a pod with thousands of entries would keep all others waiting.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonpatch
import msgspec

from agents.admission.pods import Pod

_ENCODER = msgspec.json.Encoder(order="deterministic")


def difference(before: Pod, after: Pod) -> bytes | None:
    """The JSON patch from one pod to another, or None if they are equal.

    Raises:
        RuntimeError: the patch does not lead from one to the other; nothing may be sent then.
    """
    start, wanted = _ENCODER.encode(before), _ENCODER.encode(after)
    if start == wanted:
        return None
    patch = _ENCODER.encode(list(_operations("", before, after)))
    # By a library that knows nothing of how it was made. Compared as JSON: in Python, 1 equals True.
    applied = jsonpatch.JsonPatch(msgspec.json.decode(patch)).apply(msgspec.json.decode(start), in_place=True)
    if _ENCODER.encode(applied) != wanted:
        raise RuntimeError("the patch does not lead to the wanted pod")
    return patch


def _operations(path: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Additions and replacements: what lost a field, as where another entry took its place, is replaced as a whole."""
    match before, after:
        case (Mapping(), Mapping()) if before.keys() <= after.keys():
            for key, value in after.items():
                place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
                if key not in before:
                    yield {"op": "add", "path": place, "value": value}
                elif before[key] is not value:
                    yield from _operations(place, before[key], value)
        case (list(), list()) if len(before) <= len(after):
            # Entries that came in between move those behind them: then each place is replaced, as far as it differs.
            for index, (value, changed) in enumerate(zip(before, after, strict=False)):
                if value is not changed:
                    yield from _operations(f"{path}/{index}", value, changed)
            yield from ({"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :])
        case _ if _ENCODER.encode(before) != _ENCODER.encode(after):
            yield {"op": "replace", "path": path, "value": after}
