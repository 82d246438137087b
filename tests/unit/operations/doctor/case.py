"""What a case of a check is."""

from collections.abc import Callable
from dataclasses import dataclass

from testbed.stacks import Json, jetson
from tests.unit.operations.doctor.changes import Break


@dataclass(frozen=True)
class Case:
    """One check's case.

    Attributes:
        breaks: what makes the check fire.
        almost: what comes near to that, and must not.
        others: the codes that fire instead where it almost does.
        stack: what runs on the cluster.
        almost_on: what runs there where it almost does, if not the same.
    """

    breaks: Break
    almost: Break
    others: str = ""
    stack: Callable[[], Json] = jetson
    almost_on: Callable[[], Json] | None = None
