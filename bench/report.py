"""The figures as a table for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.figures import ROWS, Figures, Row, targets
from bench.plan import LABELS, SHORT, Plan, SideName

__all__ = ["document", "facts_lines", "lines", "markdown", "number", "page", "text"]

Table = list[list[str]]

MANY = 4
"""With more sides than that they are the lines of the table, not its columns."""
_MARKS = {True: "✓", False: "✗", None: "–"}


def number(value: float, unit: str) -> str:
    """A figure as people read it."""
    if unit == "jobs/s":
        return f"{value:,.0f}"
    if unit == "×":
        return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"
    return f"{value:.1f}"


def lines(plan: Plan, figures: Figures, facts: Mapping[str, str]) -> Iterator[str]:
    """The report for a terminal."""
    yield from facts_lines(facts)
    for table in tables(plan, figures):
        yield ""
        yield from text(table)
    yield ""
    yield from _targets(plan, figures)
    yield from _broken(figures)


def page(plan: Plan, figures: Figures, facts: Mapping[str, str]) -> Iterator[str]:
    """The report for a page of the documentation: wide tables are no good as text there."""
    if len(plan.sides) <= MANY:
        yield from ("```text", *lines(plan, figures, facts), "```")
        return
    for table in tables(plan, figures):
        yield from markdown(table)
        yield ""
    yield from ("```text", *facts_lines(facts), "", *_targets(plan, figures), *_broken(figures), "```")


def facts_lines(facts: Mapping[str, str]) -> Iterator[str]:
    """What there is to know about the machine and the sides, a line each."""
    width = max(map(len, facts))
    return (f"{name:<{width}}  {fact}" for name, fact in facts.items())


def tables(plan: Plan, figures: Figures) -> Iterator[Table]:
    """The figures, and how headrace stands to each peer: in one table, or in two if there are many peers."""
    rows = [row for row in ROWS if row.key in figures.samples]
    peers: list[SideName] = [side for side in plan.sides if side != "headrace"]
    compared = "headrace" in plan.sides and bool(peers)
    if len(plan.sides) > MANY:
        yield _turned(rows, plan, figures)
        if compared:
            yield _turned_ratios(rows, peers, figures)
        return
    table = [[f"best (worst) of {plan.repeat}", *(LABELS[side] for side in plan.sides)]]
    table += [[f"{row.title}, {row.unit}", *(_cell(row, side, figures) for side in plan.sides)] for row in rows]
    if compared:
        table[0] += [f"vs {SHORT[side]}" for side in peers]
        for line, row in zip(table[1:], rows, strict=True):
            line += [_ratio(row, side, figures) for side in peers]
    yield table


def _turned(rows: Sequence[Row], plan: Plan, figures: Figures) -> Table:
    head = [f"best (worst) of {plan.repeat}", *(f"{row.short}, {row.unit}" for row in rows)]
    return [head, *([LABELS[side], *(_cell(row, side, figures) for row in rows)] for side in plan.sides)]


def _turned_ratios(rows: Sequence[Row], peers: Sequence[SideName], figures: Figures) -> Table:
    head = ["headrace against", *(row.short for row in rows)]
    return [head, *([LABELS[side], *(_ratio(row, side, figures) for row in rows)] for side in peers)]


def text(table: Table) -> Iterator[str]:
    """A table in columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for at, line in enumerate(table):
        yield "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        if at == 0:
            yield "  ".join("─" * width for width in widths)


def markdown(table: Table) -> Iterator[str]:
    """A table as Markdown has them."""
    head, *body = table
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in body)


def _cell(row: Row, side: SideName, figures: Figures) -> str:
    best, worst = figures.best(row.key, side), figures.worst(row.key, side)
    if best is None or worst is None:
        return "–"
    if len(figures.samples[row.key][side]) == 1:
        return number(best, row.unit)
    return f"{number(best, row.unit)} ({number(worst, row.unit)})"


def _ratio(row: Row, side: SideName, figures: Figures) -> str:
    ratio = figures.ratio(row.key, side)
    return "–" if ratio is None else number(ratio, "×")


def _targets(plan: Plan, figures: Figures) -> Iterator[str]:
    yield "targets (×: how many times better headrace is, best against best, in this run)"
    for target in targets(plan.engine, figures):
        value = target.found(figures)
        found = "not measured" if value is None else number(value, target.unit)
        bound = number(target.bound, target.unit) + ("" if target.unit == "×" else f" {target.unit}")
        yield f"  {_MARKS[target.verdict(figures)]} {target.title:<48} {found:>12}   {target.sign} {bound}"


def _broken(figures: Figures) -> Iterator[str]:
    if figures.broken:
        yield from ("", "broke down", *(f"  {one}" for one in figures.broken))


def document(plan: Plan, figures: Figures, facts: Mapping[str, str]) -> dict[str, Any]:
    """The same, with every sample."""
    return {
        "engine": plan.engine,
        "facts": dict(facts),
        "repeat": plan.repeat,
        "broken": figures.broken,
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
            for target in targets(plan.engine, figures)
        ],
    }
