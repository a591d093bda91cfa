"""Shapes of charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from headrace.core.stats.charts import charts_of
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.rollup import Rollup, Step, Totals
from headrace.dashboard.drawings.charts import HIGH, MAX_SERIES, by_name, by_outcome, lines, stacked
from headrace.dashboard.format import count

START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(names: int = 1) -> list[Rollup]:
    found = []
    for minute in range(3):
        for number in range(names):
            waited, ran = Histogram(), Histogram()
            ran.add(1.0 + minute)
            totals = Totals(completed=10 * (number + 1), failed=2, retried=1, waited=waited, ran=ran)
            found.append(Rollup(Step.MINUTE, START + timedelta(minutes=minute), f"t{number}", "q", totals))
    return found


def test_columns_stand_on_each_other_and_add_up() -> None:
    charts = charts_of(rows(), START, START + timedelta(minutes=10), Step.MINUTE, "all")
    drawing = stacked(charts, by_outcome(charts), count)
    assert [(name, sum) for _, name, sum in drawing.legend if sum != "0"] == [
        ("failed", "3"),
        ("to be retried", "3"),
        ("completed", "30"),
    ]
    first = [bar for bar in drawing.bars if bar.x == drawing.bars[0].x]
    for below, above in pairwise(first):
        assert abs(above.y + above.height - below.y) < 0.02
    assert all(0 <= bar.y <= HIGH for bar in drawing.bars)
    assert len(drawing.rows) == 10, "a table has every moment"
    assert drawing.rows[0].values == ("1", "1", "0", "10")


def test_the_busiest_are_shown_and_the_rest_together() -> None:
    charts = charts_of(rows(9), START, START + timedelta(minutes=10), Step.MINUTE, "task")
    parts = by_name(charts, lambda one: one.task)
    assert [name for _, name, _ in parts] == [*(f"t{number}" for number in range(8, 8 - MAX_SERIES, -1)), "3 more"]


def test_percentiles_of_all_are_not_those_of_one() -> None:
    many = [*rows(), *(Rollup(one.step, one.at, "other", "q2", Totals(ran=Histogram({40: 99}))) for one in rows())]
    whole = charts_of(many, START, START + timedelta(minutes=3), Step.MINUTE, "all")
    [series] = whole.series
    assert (series.task, series.queue) == ("", "")
    assert series.total.running is not None
    assert series.total.running.count == 300
    by_queue = charts_of(many, START, START + timedelta(minutes=3), Step.MINUTE, "queue")
    assert [one.queue for one in by_queue.series] == ["q", "q2"]


def test_a_line_breaks_where_nothing_was_measured() -> None:
    charts = charts_of(rows(), START, START + timedelta(minutes=3), Step.MINUTE, "all")
    known = {START: 1.0, START + timedelta(minutes=2): 2.0}
    drawing = lines(charts, [("a", "a", lambda moment: known.get(moment))], count)
    assert drawing.lines[0].path.count("M") == 2
    empty = charts_of([], START, START + timedelta(minutes=3), Step.MINUTE, "all")
    assert stacked(empty, by_outcome(empty), count).empty
