"""The rates as a bar chart: plain SVG text that fits light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from bench.figures import ROWS, Figures, Row
from bench.plan import LABELS, Plan, SideName
from bench.report import number

__all__ = ["svg"]

_WIDTH, _LEFT, _RIGHT = 720, 120, 80
_BAR, _GAP, _TITLE = 16, 4, 26
_COLOURS: dict[SideName, str] = {"headrace": "#0e8a6d", "huey-off": "#b8c0c8", "raw": "#d9b44a"}
_PEER = "#8c959f"
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
)


def svg(plan: Plan, figures: Figures) -> str:
    """One group of bars for each rate, each group on its own scale."""
    body, y = list[str](), 8
    for row in ROWS:
        bars = [(side, best) for side in plan.sides if (best := figures.best(row.key, side)) is not None]
        if row.unit == "jobs/s" and row.key != "drain4" and bars:
            body += _group(row, bars, y)
            y += _TITLE + len(bars) * (_BAR + _GAP) + 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}" role="img">'
    )
    return "\n".join(
        [
            head,
            f"<title>jobs per second, best of {plan.repeat}</title>",
            f"<style>{_STYLE}</style>",
            *body,
            "</svg>",
            "",
        ]
    )


def _group(row: Row, bars: list[tuple[SideName, float]], y: int) -> Iterator[str]:
    yield f'<text class="title" x="8" y="{y + 14}">{escape(row.title)}, {row.unit}</text>'
    most = max(best for _, best in bars)
    for at, (side, best) in enumerate(bars):
        top = y + _TITLE + at * (_BAR + _GAP)
        length = max(1.0, best / most * (_WIDTH - _LEFT - _RIGHT))
        yield f'<text x="8" y="{top + 13}">{escape(LABELS[side])}</text>'
        colour = _COLOURS.get(side, _PEER)
        yield f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>'
        yield f'<text x="{_LEFT + length + 6:.1f}" y="{top + 13}">{number(best, row.unit)}</text>'
