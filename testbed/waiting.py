"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], *, within_s: float = 120.0) -> None:
    """Return once `condition` is true; fail with its last value when `within_s` seconds are over."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still {value!r} after {within_s:.0f} s"
        time.sleep(0.1)
