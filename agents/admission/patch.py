"""The difference between two pods as RFC 6902, proven by applying it."""

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
    wanted = _ENCODER.encode(after)
    if _ENCODER.encode(before) == wanted:
        return None
    operations: list[dict[str, Any]] = jsonpatch.make_patch(before, after).patch
    # Compared as JSON: in Python, 1 equals True.
    if _ENCODER.encode(jsonpatch.apply_patch(before, operations)) != wanted:
        raise RuntimeError("the patch does not lead to the wanted pod")
    return _ENCODER.encode(operations)
