"""How messages name many things."""

from collections.abc import Iterable


def first_of(names: Iterable[str], at_most: int = 10) -> str:
    """The first of some names, and how many more there are: a thousand nodes often have the same problem.

    Args:
        names: in the order in which they are shown.
        at_most: of them are shown.
    """
    every = list(names)
    more = f" and {len(every) - at_most} more" if len(every) > at_most else ""
    return ", ".join(every[:at_most]) + more
