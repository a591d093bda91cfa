"""Charts as shapes: the position of each bar and line, calculated on the server and drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.core.stats.charts import Charts, Point, Series
from headrace.core.stats.rollup import begin_of

__all__ = ["Bar", "Drawing", "Line", "Row", "Tick", "attempts", "by_name", "by_outcome", "died", "lines", "stacked"]

WIDE, HIGH = 960.0, 180.0
LEFT, BOTTOM, TOP = 44.0, 20.0, 8.0
MAX_SERIES = 6
"""Maximum series of a chart; all others are one more."""


@dataclass(frozen=True)
class Bar:
    """One part of a column."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    """Its class in the stylesheet."""


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    place: float
    label: str = ""
    moment: datetime | None = None


@dataclass(frozen=True)
class Row:
    """One moment of the chart as text, with its values."""

    moment: datetime
    values: tuple[str, ...]
    x: float
    width: float


@dataclass(frozen=True)
class Line:
    """A line through the chart."""

    path: str
    kind: str


@dataclass(frozen=True)
class Drawing:
    """All shapes of one chart."""

    bars: tuple[Bar, ...]
    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    legend: tuple[tuple[str, str, str], ...]
    """The kind, the name, and the sum."""
    rows: tuple[Row, ...]
    width: float = WIDE
    height: float = HIGH

    @property
    def empty(self) -> bool:
        """Whether the chart is empty."""
        return not self.rows


@dataclass(frozen=True)
class _Scale:
    """Maps moments and amounts to positions."""

    since: datetime
    until: datetime
    most: float

    def x(self, moment: datetime) -> float:
        share = (moment - self.since) / (self.until - self.since)
        return round(LEFT + share * (WIDE - LEFT - 4), 2)

    def y(self, amount: float) -> float:
        return round(HIGH - BOTTOM - amount / self.most * (HIGH - BOTTOM - TOP), 2)


def stacked(
    charts: Charts, parts: Sequence[tuple[str, str, Callable[[datetime], float]]], shown: Callable[[float], str]
) -> Drawing:
    """Return columns of stacked parts; each part has a kind, a name, and an amount at each moment."""
    moments = _moments(charts)
    sums = [sum(part(moment) for _, _, part in parts) for moment in moments]
    most = _nice(max(sums, default=0.0))
    scale, step = _Scale(charts.since, charts.until, most), timedelta(seconds=charts.step.seconds)
    bars, rows = list[Bar](), list[Row]()
    for moment in moments:
        left, right = scale.x(moment), scale.x(min(moment + step, charts.until))
        width, below = max(1.0, round((right - left) * 0.82, 2)), 0.0
        amounts = [part(moment) for _, _, part in parts]
        for (kind, _, _), amount in zip(parts, amounts, strict=True):
            if amount:
                low, high = scale.y(below), scale.y(below + amount)
                bars.append(Bar(left, high, width, max(0.75, round(low - high, 2)), kind))
                below += amount
        rows.append(Row(moment, tuple(map(shown, amounts)), left, max(1.0, round(right - left, 2))))
    legend = tuple((kind, name, shown(sum(map(part, moments)))) for kind, name, part in parts)
    return Drawing(tuple(bars), (), _across(charts, scale), _up(scale, shown), legend, tuple(rows))


def lines(
    charts: Charts,
    parts: Sequence[tuple[str, str, Callable[[datetime], float | None]]],
    shown: Callable[[float], str],
    given: Sequence[datetime] | None = None,
) -> Drawing:
    """Return a line for each part, with gaps where there is no data; ``given``: moments other than those of series."""
    moments = _moments(charts) if given is None else [one for one in given if charts.since <= one < charts.until]
    known = [amount for moment in moments for _, _, part in parts if (amount := part(moment)) is not None]
    scale, step = _Scale(charts.since, charts.until, _nice(max(known, default=0.0))), charts.step.seconds
    drawn, rows, middle = list[Line](), list[Row](), timedelta(seconds=step / 2)
    for kind, _, part in parts:
        path, pen = "", "M"
        for moment in moments:
            amount = part(moment)
            if amount is None:
                pen = "M"
                continue
            path += f"{pen}{scale.x(min(moment + middle, charts.until))} {scale.y(amount)}"
            path += "h0.01" if pen == "M" else ""  # a single point is visible, too
            pen = "L"
        drawn.append(Line(path, kind))
    for moment in moments:
        left = scale.x(moment)
        right = scale.x(min(moment + timedelta(seconds=step), charts.until))
        values = tuple("–" if (amount := part(moment)) is None else shown(amount) for _, _, part in parts)
        if any(value != "–" for value in values):
            rows.append(Row(moment, values, left, max(1.0, round(right - left, 2))))
    legend = tuple((kind, name, "") for kind, name, _ in parts)
    return Drawing((), tuple(drawn), _across(charts, scale), _up(scale, shown), legend, tuple(rows))


def by_outcome(charts: Charts) -> list[tuple[str, str, Callable[[datetime], float]]]:
    """Return the parts of a chart by how attempts ended, the worst at the bottom, where they are visible."""
    points = {point.at: point for series in charts.series for point in series.points}

    def part(amount: Callable[[Point], int]) -> Callable[[datetime], float]:
        return lambda moment: float(amount(points[moment])) if moment in points else 0.0

    return [
        ("failed", "failed", part(died)),
        ("retrying", "to be retried", part(lambda one: one.retried)),
        ("other", "cancelled, snoozed, handed back", part(lambda one: one.cancelled + one.snoozed + one.released)),
        ("completed", "completed", part(lambda one: one.completed)),
    ]


def by_name(
    charts: Charts, name: Callable[[Series], str], amount: Callable[[Point], int] | None = None
) -> list[tuple[str, str, Callable[[datetime], float]]]:
    """Return the parts of a chart by task or queue: those with most attempts or ``amount``; all others as one."""
    of = amount or attempts
    ordered = sorted((one for one in charts.series if of(one.total)), key=lambda one: (-of(one.total), name(one)))
    parts = [(f"series-{index}", name(one), _of([one], of)) for index, one in enumerate(ordered[:MAX_SERIES])]
    if rest := ordered[MAX_SERIES:]:
        parts.append(("other", f"{len(rest)} more", _of(rest, of)))
    return parts


def _of(several: Sequence[Series], amount: Callable[[Point], int]) -> Callable[[datetime], float]:
    amounts: dict[datetime, float] = {}
    for series in several:
        for point in series.points:
            amounts[point.at] = amounts.get(point.at, 0.0) + amount(point)
    return lambda moment: amounts.get(moment, 0.0)


def died(point: Point) -> int:
    """Return how many attempts were the last of their jobs, and failed."""
    return point.failed + point.timed_out + point.lost - point.retried


def attempts(point: Point) -> int:
    """Return how many attempts ended, in whatever way."""
    ended = point.completed + point.failed + point.timed_out + point.lost
    return ended + point.snoozed + point.released + point.cancelled


def _moments(charts: Charts) -> list[datetime]:
    """Return the beginning of every span; data of longer spans is at their beginning."""
    if not charts.series:
        return []
    found, moment = list[datetime](), begin_of(charts.since, charts.step)
    while moment < charts.until:
        found.append(moment)
        moment += timedelta(seconds=charts.step.seconds)
    return found


def _nice(most: float) -> float:
    """Return a round number that is at least this, for the axis."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= most)


def _up(scale: _Scale, shown: Callable[[float], str]) -> tuple[Tick, ...]:
    amounts = [scale.most, scale.most / 2]
    return tuple(Tick(scale.y(amount), shown(amount)) for amount in amounts if amount >= 1 or scale.most <= 1)


def _across(charts: Charts, scale: _Scale) -> tuple[Tick, ...]:
    span = charts.until - charts.since
    return tuple(
        Tick(scale.x(moment), moment=moment) for moment in (charts.since + span * part / 6 for part in range(7))
    )
