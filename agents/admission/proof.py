"""What an API server makes of a JSON patch (RFC 6902), for the proof of ours: it knows nothing of how they are made.

It reads what our patches consist of, `add` and `replace`; anything else can't be proven. The tests hold it to a general
library, which takes several times as long.
"""

import re
from typing import Any, cast

_INDEX = re.compile(r"0|[1-9][0-9]*")


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - JSON
    """Apply a patch.

    Args:
        document: any JSON; it is changed, and shares what is added with the operations.
        operations: the patch.

    Returns:
        The document as it is then.

    Raises:
        RuntimeError: an operation is of another kind, or leads nowhere.
    """
    whole = {"": document}
    for operation in operations:
        try:
            _apply(whole, operation["op"], operation["path"], operation["value"])
        except (LookupError, TypeError, ValueError):
            raise RuntimeError("the patch has an operation that leads nowhere, or is not known here") from None
    return whole[""]


def _apply(whole: Any, kind: str, path: str, value: Any) -> None:  # noqa: ANN401 - JSON
    # What stands before the first slash is nothing, the name of the whole document; each name behind one leads further.
    first, *names = path.split("/")
    if first:
        raise ValueError(path)
    place, key = whole, cast("str | int", first)
    for name in names:
        place = place[key]
        if isinstance(place, dict):
            key = name.replace("~1", "/").replace("~0", "~")
        else:
            key = int(name) if _INDEX.fullmatch(name) else name
    if kind == "add" and isinstance(place, dict):
        place[key] = value
    elif kind == "add" and isinstance(place, list) and key == "-":
        place.append(value)
    elif kind == "replace":
        place[key]  # has to be there
        place[key] = value
    else:
        raise ValueError(kind)
