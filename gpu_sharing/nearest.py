"""The nearest request that fits."""

import math
from collections.abc import Callable
from dataclasses import replace

from gpu_sharing.request import FractionShare, GpuShare, MemoryShare

FRACTION_STEPS = 1000
"""Fractions are tried in thousandths."""


def nearest(share: GpuShare, runs: Callable[[GpuShare], bool]) -> GpuShare | None:
    """The largest request below `share` with which everything runs; None where nothing helps.

    Args:
        share: what is asked for now.
        runs: whether everything runs with a request; who asks for less is never worse off.
    """
    match share:
        case MemoryShare(mib):
            return _largest(mib - 1, lambda step: replace(share, mib=step), runs)
        case FractionShare(fraction):
            below = math.ceil(fraction * FRACTION_STEPS) - 1
            return _largest(below, lambda step: replace(share, fraction=step / FRACTION_STEPS), runs)


def _largest(highest: int, share: Callable[[int], GpuShare], runs: Callable[[GpuShare], bool]) -> GpuShare | None:
    low, high = 0, highest
    while low < high:
        middle = (low + high + 1) // 2
        if runs(share(middle)):
            low = middle
        else:
            high = middle - 1
    return share(low) if low else None
