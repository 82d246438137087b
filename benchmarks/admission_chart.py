"""A bar chart of pod creation by carrier, as SVG without a library: six bars do not need one."""

from collections.abc import Mapping
from html import escape

from benchmarks.admission_load import Latency

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 640, 26, 150, 80, 48
_COLOURS = {"p50": "#3b6ea5", "p99": "#a8c4e0"}


def draw(measured: Mapping[str, Latency]) -> str:
    """The chart's text: a pair of bars, p50 and p99, per carrier."""
    bars = [
        (carrier, kind, value)
        for carrier, latency in measured.items()
        for kind, value in (("p50", latency.p50), ("p99", latency.p99))
    ]
    scale = (_WIDTH - _LEFT - _RIGHT) / max(value for _, _, value in bars)
    height = _TOP + len(bars) * _ROW + 12
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        f'<rect {size} fill="#ffffff"/>',
        '<text x="12" y="24" font-size="15">Creation of a reservation pod by carrier, milliseconds</text>',
    ]
    for index, (carrier, kind, value) in enumerate(bars):
        y = _TOP + index * _ROW
        parts += [
            f'<text x="12" y="{y + 16}">{escape(carrier)} {kind}</text>',
            f'<rect x="{_LEFT}" y="{y + 3}" width="{value * scale:.1f}" height="{_ROW - 8}" fill="{_COLOURS[kind]}"/>',
            f'<text x="{_LEFT + value * scale + 6:.1f}" y="{y + 16}">{value:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
