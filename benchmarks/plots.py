"""Plots of results as SVG without a library, readable on light and on dark pages alike."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.result import Result, show

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 760, 30, 360, 90, 56
_LINES = ("#2f7fd1", "#d1742f", "#2f9e6a", "#9b59b6", "#c0392b", "#7f8c8d")
_STYLE = (
    "<style>text{fill:#24292f}.line{stroke:#57606a}.good{fill:#2f9e6a}.bad{fill:#d1742f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.line{stroke:#8b949e}}</style>"
)


def goals(results: Sequence[Result]) -> str:
    """A bar per result that has a goal: how much of the goal it takes, and the spread over the rounds.

    All bars are better short: where more is better, the bar is the goal over the result.
    """
    bars = [(result, *_shares(result)) for result in results if result.goal]
    longest = max([1.0, *(most for *_, most in bars)])
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    height = _TOP + len(bars) * _ROW + 12
    parts = [
        _head(height, "Share of each goal"),
        '<text x="12" y="44" font-size="12">the line is the goal; shorter is better</text>',
    ]
    for index, (result, share, least, most) in enumerate(bars):
        y = _TOP + index * _ROW
        middle = y + _ROW / 2
        kind = "good" if result.met else "bad"
        parts += [
            f'<text x="12" y="{middle + 4}">{escape(_short(result.name))}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y + 6}" width="{share * scale:.1f}" height="{_ROW - 12}"/>',
            f'<path class="line" d="M{_LEFT + least * scale:.1f} {middle}H{_LEFT + most * scale:.1f}"/>',
            f'<text x="{_LEFT + most * scale + 8:.1f}" y="{middle + 4}">{escape(_median_text(result))}</text>',
        ]
    x = _LEFT + scale
    parts.append(f'<path class="line" stroke-dasharray="4 3" d="M{x:.1f} {_TOP}V{height - 8}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def growth(results: Sequence[Result]) -> str:
    """The curves of results that have one, on logarithmic axes: a slope of 1 is linear growth."""
    curves = {result.name.partition(",")[0]: result.series for result in results if len(result.series) > 1}
    return _curves(curves) if curves else ""


def _curves(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    points = [point for curve in curves.values() for point in curve]
    marks = _marks([y for _, y in points])
    across = _Axis([x for x, _ in points], 70, _WIDTH - 30)
    up = _Axis(marks, 300, 50)
    parts = [_head(340 + 20 * len(curves), "Processor seconds by number of nodes")]
    widths = sorted({x for x, _ in points})
    parts += [f'<text x="{across.at(x):.1f}" y="322" text-anchor="middle">{x:g}</text>' for x in widths]
    for y in marks:
        parts += [
            f'<path class="line" stroke-opacity=".25" d="M70 {up.at(y):.1f}H730"/>',
            f'<text x="62" y="{up.at(y) + 4:.1f}" text-anchor="end">{y:g} s</text>',
        ]
    parts.append('<path class="line" fill="none" d="M70 50V300H730"/>')
    for index, (name, curve) in enumerate(curves.items()):
        colour = _LINES[index % len(_LINES)]
        way = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in curve)
        parts += [
            f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="4" fill="{colour}"/>' for x, y in curve),
            f'<rect x="70" y="{334 + index * 20}" width="14" height="10" fill="{colour}"/>',
            f'<text x="92" y="{344 + index * 20}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _marks(values: Sequence[float]) -> list[float]:
    """The numbers 1, 2 and 5 of each power of ten, from the last below all values to the first above them."""
    powers = range(math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 1)
    ladder = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    least = max(mark for mark in ladder if mark <= min(values))
    most = min(mark for mark in ladder if mark >= max(values))
    return [mark for mark in ladder if least <= mark <= most]


class _Axis:
    """A logarithmic axis between two places."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._least = math.log(min(values))
        self._span = (math.log(max(values)) - self._least) or 1.0
        self._start, self._length = start, end - start

    def at(self, value: float) -> float:
        """Where a value lies."""
        return self._start + self._length * (math.log(value) - self._least) / self._span


def _shares(result: Result) -> tuple[float, float, float]:
    """Median, least and most of a result over its goal."""
    goal = result.goal or 1.0
    least, most = result.spread
    if result.at_least:
        return goal / result.median, goal / most, goal / least
    return max(result.median / goal, 0.0), max(least / goal, 0.0), max(most / goal, 0.0)


def _median_text(result: Result) -> str:
    return f"{show(result.median)} {result.unit}"


def _short(name: str) -> str:
    return name if len(name) <= 50 else f"{name[:49]}…"  # noqa: PLR2004 - what fits left of the bars


def _head(height: float, title: str) -> str:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="13">'
    return f'{head}\n<title>{title}</title>\n{_STYLE}\n<text x="12" y="24" font-size="15">{title}</text>'
