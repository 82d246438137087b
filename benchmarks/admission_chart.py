"""A bar chart of pod creation by carrier, as SVG without a library: six bars do not need one."""

from collections.abc import Mapping
from html import escape

from benchmarks.admission_load import Latency

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 640, 26, 150, 80, 48
_TITLE = "Creation of a reservation pod by carrier, milliseconds"
_STYLE = (
    "<style>.paper{fill:#fff}text{fill:#1c1c1c}.p50{fill:#3b6ea5}.p99{fill:#a8c4e0}"
    "@media (prefers-color-scheme: dark){.paper{fill:#14171a}text{fill:#e6e6e6}.p50{fill:#6aa5dd}.p99{fill:#35587a}}"
    "</style>"
)


def draw(measured: Mapping[str, Latency]) -> str:
    """The chart's text: a pair of bars, p50 and p99, per carrier."""
    bars = [
        (carrier, kind, value)
        for carrier, latency in measured.items()
        for kind, value in (("p50", latency.p50), ("p99", latency.p99))
    ]
    scale = (_WIDTH - _LEFT - _RIGHT) / max(value for _, _, value in bars)
    height = _TOP + len(bars) * _ROW + 12
    description = ", ".join(f"{carrier} {kind} {value:.1f}" for carrier, kind, value in bars)
    size = f'width="{_WIDTH}" height="{height}"'
    form = 'role="img" aria-labelledby="title description" font-family="sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {form}>',
        f'<title id="title">{_TITLE}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        _STYLE,
        f'<rect {size} class="paper"/>',
        f'<text x="12" y="24" font-size="15">{_TITLE}</text>',
    ]
    for index, (carrier, kind, value) in enumerate(bars):
        y = _TOP + index * _ROW
        parts += [
            f'<text x="12" y="{y + 16}">{escape(carrier)} {kind}</text>',
            f'<rect x="{_LEFT}" y="{y + 3}" width="{value * scale:.1f}" height="{_ROW - 8}" class="{kind}"/>',
            f'<text x="{_LEFT + value * scale + 6:.1f}" y="{y + 16}">{value:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
