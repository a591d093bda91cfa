"""The figures as a table for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.figures import ROWS, TARGETS, Figures, Row
from bench.plan import LABELS, SHORT, Plan, SideName

__all__ = ["document", "lines", "number"]

_MARKS = {True: "✓", False: "✗", None: "–"}


def number(value: float, unit: str) -> str:
    """A figure as people read it."""
    if unit == "jobs/s":
        return f"{value:,.0f}"
    if unit == "×":
        return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"
    return f"{value:.1f}"


def lines(plan: Plan, figures: Figures, facts: Mapping[str, str]) -> Iterator[str]:
    """The report."""
    width = max(map(len, facts))
    yield from (f"{name:<{width}}  {fact}" for name, fact in facts.items())
    yield ""
    yield from _table(plan, figures)
    yield ""
    yield from _targets(figures)


def _table(plan: Plan, figures: Figures) -> Iterator[str]:
    peers: list[SideName] = [side for side in plan.sides if side != "headrace"]
    head = [f"best (worst) of {plan.repeat}", *(LABELS[side] for side in plan.sides)]
    if "headrace" in plan.sides:
        head += [f"vs {SHORT[side]}" for side in peers]
    body = [head]
    for row in ROWS:
        if row.key not in figures.samples:
            continue
        line = [f"{row.title}, {row.unit}", *(_cell(row, side, figures) for side in plan.sides)]
        if "headrace" in plan.sides:
            ratios = [figures.ratio(row.key, side) for side in peers]
            line += ["–" if ratio is None else number(ratio, "×") for ratio in ratios]
        body.append(line)
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    for at, line in enumerate(body):
        first, *rest = (cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(line))
        yield "  ".join([first, *rest])
        if at == 0:
            yield "  ".join("─" * width for width in widths)


def _cell(row: Row, side: SideName, figures: Figures) -> str:
    best, worst = figures.best(row.key, side), figures.worst(row.key, side)
    if best is None or worst is None:
        return "–"
    if len(figures.samples[row.key][side]) == 1:
        return number(best, row.unit)
    return f"{number(best, row.unit)} ({number(worst, row.unit)})"


def _targets(figures: Figures) -> Iterator[str]:
    yield "targets (×: how many times better headrace is, best against best, in this run)"
    for target in TARGETS:
        value = target.found(figures)
        found = "not measured" if value is None else number(value, target.unit)
        bound = number(target.bound, target.unit) + ("" if target.unit == "×" else f" {target.unit}")
        yield f"  {_MARKS[target.verdict(figures)]} {target.title:<42} {found:>12}   {target.sign} {bound}"


def document(plan: Plan, figures: Figures, facts: Mapping[str, str]) -> dict[str, Any]:
    """The same, with every sample."""
    return {
        "facts": dict(facts),
        "repeat": plan.repeat,
        "rows": [
            {"key": row.key, "title": row.title, "unit": row.unit, "samples": figures.samples[row.key]}
            for row in ROWS
            if row.key in figures.samples
        ],
        "targets": [
            {
                "title": target.title,
                "found": target.found(figures),
                "sign": target.sign,
                "bound": target.bound,
                "unit": target.unit,
                "met": target.verdict(figures),
            }
            for target in TARGETS
        ],
    }
