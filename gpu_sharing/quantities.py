"""Kubernetes quantities: `500m`, `2Gi`, `1e3`."""

import re
from fractions import Fraction

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?=\.?\d)0*+(?P<whole>\d*+)(?:\.(?P<part>\d{0,40})\d*+)?"
    r"(?:[eE](?P<power>[+-]?)(?=\d)0*+(?P<exponent>\d*+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?",
    re.ASCII,
)
"""Kubernetes keeps 19 digits at most, nine of them behind the point. Anybody's annotation may hold more: the power of
ten of a long exponent is never done, and Python makes no number of thousands of digits. Zeros in front hide no amount,
nor do digits behind."""
_MOST_DIGITS, _MOST_EXPONENT_DIGITS = 40, 2
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MIB = 1 << 20
"""In bytes."""


class QuantityError(ValueError):
    """A text is no Kubernetes quantity."""


class ImpossibleError(QuantityError):
    """It is one that the API server takes, and no machine has: 1e200."""


def quantity(value: str | float) -> Fraction:
    """The number that a quantity says, exactly.

    Args:
        value: as a manifest or the API server says it; YAML makes numbers of `1` and `0.5`.

    Raises:
        QuantityError: if it is none.
    """
    parsed = _NUMBER.fullmatch(str(value))
    if parsed is None or isinstance(value, bool):
        raise QuantityError(f"'{value}' is not a Kubernetes quantity such as '500m', '2' or '2Gi'")
    if len(parsed["whole"]) > _MOST_DIGITS or len(parsed["exponent"] or "") > _MOST_EXPONENT_DIGITS:
        raise ImpossibleError(f"'{value}' is not a Kubernetes quantity of anything that there is")
    number = Fraction(f"{parsed['sign']}{parsed['whole'] or 0}.{parsed['part'] or 0}")
    suffix = parsed["suffix"] or ""
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    exponent = _DECIMAL.get(suffix) or int(f"{parsed['power'] or ''}{parsed['exponent'] or 0}")
    return number * Fraction(10) ** exponent
