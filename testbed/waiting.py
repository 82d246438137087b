"""Waiting for what other processes do."""

import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_LOOKS_TAKE = 0.2
"""Of the time, at most: an inventory of a cluster asks its API server for every kind, and the garbage collector that
many tests wait for looks for new kinds every 30 s alone."""


def eventually(condition: Callable[[], object], *, within_seconds: float = 120.0) -> None:
    """Return once `condition` is true; fail with its last value when `within_seconds` seconds are over."""
    deadline = time.monotonic() + within_seconds
    while True:
        begin = time.monotonic()
        value = condition()
        if value:
            return
        end = time.monotonic()
        assert end < deadline, f"still {value!r} after {within_seconds:.0f} s"
        time.sleep(min(max(_PAUSE_SECONDS, (end - begin) / _LOOKS_TAKE), _LONGEST_PAUSE_SECONDS))
