"""Depths of queues are noted as rollups, and stay averages when minutes become hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.core.query import Count
from headrace.core.stats.charts import charts_of
from headrace.core.stats.depth import MAX_DEPTH_QUEUES, depth_rows, depth_series, depths_of
from headrace.core.stats.rollup import Step, begin_of, regrouped
from headrace.core.status import Status

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_queued_jobs_count_and_headraces_own_where_there_are_no_others() -> None:
    counts = [
        Count("mail", Status.QUEUED, 5),
        Count("mail", Status.QUEUED, 2, own=True),
        Count("mail", Status.RUNNING, 9),
        Count("headrace.webhooks", Status.QUEUED, 3, own=True),
    ]
    assert depths_of(counts) == {"mail": 5, "headrace.webhooks": 3}
    many = [Count(f"q{number}", Status.QUEUED, number + 1) for number in range(MAX_DEPTH_QUEUES + 50)]
    assert len(depths_of(many)) == MAX_DEPTH_QUEUES
    assert "q0" not in depths_of(many)


def test_an_hour_has_the_average_of_its_minutes_and_a_queue_that_was_empty_counts_as_0() -> None:
    rows = [
        row
        for minute in range(60)
        for row in depth_rows({"mail": 10} if minute < 30 else {}, NOON + timedelta(minutes=minute))
    ]
    notes, depths = depth_series(rows, Step.MINUTE)
    assert (len(notes), len(depths["mail"]), depths["mail"][NOON]) == (60, 30, 10.0)
    later = regrouped(rows, NOON + timedelta(hours=9))
    assert {row.step for row in later} == {Step.HOUR}
    assert len(later) == 2, "a queue costs one row an hour, and one counts the notes"
    assert depth_series(later, Step.HOUR) == ({NOON: 60}, {"mail": {NOON: 5.0}})
    assert charts_of(rows, NOON, NOON + timedelta(hours=1), Step.MINUTE, own=True).series == ()
    assert begin_of(NOON, Step.HOUR) == NOON
