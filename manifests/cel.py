"""Text for the expressions of admission policies (CEL)."""

import json


def literal(value: object) -> str:
    """A CEL literal: strings, lists and maps are written as in JSON; items of a list or map are of one type."""
    return json.dumps(value)
