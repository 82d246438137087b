"""What every benchmark gives: one number per round, of which the median counts, and the goal that it has."""

import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

QUICK = os.environ.get("BENCH") == "quick"
"""`BENCH=quick`: fewer rounds and smaller clusters, for a look; its numbers are no better than that."""


def rounds(full: int, quick: int) -> int:
    """How many rounds this run takes."""
    return quick if QUICK else full


@dataclass(frozen=True)
class Result:
    """One measurement.

    Attributes:
        name: what was measured, as a phrase.
        unit: `x` for a ratio, otherwise of the numbers: ms, s, MiB.
        values: one per round, all taken in this run.
        goal: what the median must not exceed, or must reach where `at_least`; None where there is none.
        at_least: whether more is better.
        parts: what a ratio or a difference was made of, as medians with their unit.
        series: points of a curve, for a plot.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    goal: float | None = None
    at_least: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    series: tuple[tuple[float, float], ...] = ()

    @property
    def median(self) -> float:
        """The number that counts."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most of all rounds."""
        return min(self.values), max(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached, None where there is none."""
        if self.goal is None:
            return None
        return self.median >= self.goal if self.at_least else self.median <= self.goal

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "least": self.spread[0],
            "most": self.spread[1],
            "values": list(self.values),
            "goal": self.goal,
            "at_least": self.at_least,
            "met": self.met,
            "parts": dict(self.parts),
            "series": [list(point) for point in self.series],
        }

    def line(self) -> str:
        """The same for a terminal."""
        least, most = self.spread
        goal = f" ({goal_in_words(self)})" if self.goal is not None else ""
        parts = "".join(f"; {name} {value}" for name, value in self.parts.items())
        of = f"{show(least)} to {show(most)} in {len(self.values)} rounds" if len(self.values) > 1 else "one round"
        return f"{self.name}: {show(self.median)} {self.unit}{goal}; {of}{parts}"


def show(value: float) -> str:
    """A number with as many places as one reads: 0.84, 12.3, 4210."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004


def goal_in_words(result: Result) -> str:
    """`goal at most 1.20, met`."""
    if result.goal is None:
        return ""
    bound = "at least" if result.at_least else "at most"
    return f"goal {bound} {result.goal:g}, {'met' if result.met else 'not met'}"


def of_pairs(  # noqa: PLR0913 - all but three by name
    name: str,
    pairs: Sequence[tuple[float, float]],
    what: tuple[str, str],
    *,
    goal: float | None = None,
    at_least: bool = False,
    unit: str = "s",
) -> Result:
    """The ratio of two sides, pair by pair, so that it holds while the machine's speed drifts.

    Args:
        name: of the result.
        pairs: both sides of each round, taken one after the other.
        what: names of the sides.
        goal: of the ratio.
        at_least: whether more is better.
        unit: of the sides.
    """
    sides = [f"{show(statistics.median(side))} {unit}" for side in zip(*pairs, strict=True)]
    ratios = tuple(first / second for first, second in pairs)
    return Result(name, "x", ratios, goal, at_least, dict(zip(what, sides, strict=True)))


def tell(results: Iterable[Result]) -> list[Result]:
    """Print results as they come; gives them all."""
    printed = []
    for result in results:
        sys.stdout.write(result.line() + "\n")
        sys.stdout.flush()
        printed.append(result)
    return printed
