"""Charts: points of the step that is asked for, or longer ones where only those are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.core.stats.charts import charts_of, step_for
from headrace.core.stats.rollup import SLOTS, Rollup, Step, Totals, begin_of

NOW = datetime(2026, 5, 4, 13, 37, 42, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def row(ago: timedelta, step: Step = Step.MINUTE, task: str = "a", **counts: Any) -> Rollup:
    totals = Totals(**counts)
    for _ in range(totals.completed):
        totals.ran.add(2.0)
        totals.waited.add(0.5)
    return Rollup(step, begin_of(NOW - ago, step), task, "q", totals)


@pytest.mark.parametrize(
    ("since", "step"),
    [(HOUR, Step.MINUTE), (6 * HOUR, Step.MINUTE), (7 * HOUR, Step.HOUR), (7 * DAY, Step.HOUR), (8 * DAY, Step.DAY)],
)
def test_the_step_goes_by_the_time(since: timedelta, step: Step) -> None:
    assert step_for(NOW - since, NOW, NOW) is step


def test_a_short_time_long_ago_is_told_by_what_is_kept_of_it() -> None:
    assert step_for(NOW - 30 * DAY, NOW - 30 * DAY + HOUR, NOW) is Step.DAY
    assert step_for(NOW - 2 * DAY, NOW - 2 * DAY + HOUR, NOW) is Step.HOUR


def test_points_are_in_order_and_totals_are_their_sum() -> None:
    minute = timedelta(minutes=1)
    rows = [
        row(minute, completed=2),
        row(3 * minute, completed=1, failed=2, retried=1),
        row(minute, completed=1, lost=1),
    ]
    charts = charts_of([*rows, row(minute, task="b", snoozed=1)], NOW - HOUR, NOW, Step.MINUTE)
    first, second = charts.series
    assert [(point.at, point.completed) for point in first.points] == [
        (begin_of(NOW - 3 * minute, Step.MINUTE), 1),
        (begin_of(NOW - minute, Step.MINUTE), 3),
    ]
    assert (first.total.completed, first.total.failed, first.total.retried, first.total.lost) == (4, 2, 1, 1)
    assert first.total.running is not None
    assert (first.total.running.count, first.total.running.mean) == (4, 2.0)
    assert first.total.waiting is not None
    assert first.total.waiting.mean == 0.5
    assert (second.task, second.total.snoozed, second.total.running) == ("b", 1, None)


def test_minutes_make_an_hour() -> None:
    rows = [row(timedelta(minutes=n), completed=1) for n in range(120)]
    charts = charts_of(rows, NOW - HOUR, NOW, Step.HOUR)
    assert charts.since == datetime(2026, 5, 4, 12, tzinfo=UTC)  # the hour that it is in counts as a whole
    [series] = charts.series
    assert [(point.seconds, point.completed) for point in series.points] == [(3600, 60), (3600, 38)]


def test_where_only_days_are_kept_a_point_is_a_day() -> None:
    rows = [row(10 * DAY, Step.DAY, completed=5), row(HOUR, Step.HOUR, completed=2), row(timedelta(0), completed=1)]
    [series] = charts_of(rows, NOW - 20 * DAY, NOW, Step.MINUTE).series
    assert [point.seconds for point in series.points] == [86400, 3600, 60]


def test_what_is_outside_is_left_out() -> None:
    rows = [row(2 * HOUR, completed=1), row(-2 * HOUR, completed=1)]
    assert charts_of(rows, NOW - HOUR, NOW, Step.MINUTE).series == ()


def test_headraces_own_tasks_are_in_no_chart_unless_asked_for() -> None:
    rows = [row(HOUR / 2, completed=1), row(HOUR / 2, task="headrace.deliver", failed=1), row(HOUR / 2, task=SLOTS)]
    for own, tasks in ((False, ["a"]), (True, ["a", "headrace.deliver"])):
        found = charts_of(rows, NOW - HOUR, NOW, Step.MINUTE, own=own)
        assert [series.task for series in found.series] == tasks
        [whole] = charts_of(rows, NOW - HOUR, NOW, Step.MINUTE, "all", own=own).series
        assert (whole.total.completed, whole.total.failed) == (1, int(own))
