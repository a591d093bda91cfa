"""The six metrics, by known numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.core.stats.metrics import WINDOWS, JobSums, WindowMetrics
from headrace.core.stats.rollup import SLOTS, Rollup, Step, Totals, begin_of

NOW = datetime(2026, 5, 4, 13, 37, 42, tzinfo=UTC)
LONG = timedelta(days=9)


def row(ago: float, task: str = "mail", step: Step = Step.MINUTE, **sums: Any) -> Rollup:
    """What ended so many minutes before now."""
    return Rollup(step, begin_of(NOW - timedelta(minutes=ago), step), task, "", Totals(**sums))


def windows(*rows: Rollup) -> dict[str, WindowMetrics]:
    sums = JobSums()
    sums.add(rows, NOW - LONG, NOW + LONG)
    return sums.windows(NOW)


def test_nothing_is_measured_of_nothing() -> None:
    assert windows() == dict.fromkeys(("5m", "1h", "24h"), WindowMetrics())


def test_each_is_what_it_is_defined_to_be() -> None:
    done: dict[str, Any] = {"completed": 3, "died": 1, "repeated": 2, "assigned": 4, "queued": 10.0, "processed": 6.0}
    [one] = {one.jobs: one for one in windows(row(1, **done), row(2, SLOTS, slots=600.0, busy=150.0)).values()}.values()
    assert one == WindowMetrics(
        jobs=4,
        average_queue_time=2.5,
        average_processing_time=2.0,
        success_rate=0.75,
        retry_rate=0.5,
        worker_utilisation=0.25,
    )


def test_rates_are_of_jobs_and_not_of_attempts() -> None:
    """A job that failed three times and then completed."""
    found = windows(row(1, failed=3, retried=3, completed=1, repeated=1))["1h"]
    assert (found.jobs, found.success_rate, found.retry_rate) == (1, 1.0, 1.0)


def test_what_is_not_over_yet_counts_in_no_rate() -> None:
    found = windows(row(1, failed=3, retried=3, lost=2, snoozed=1, released=1, cancelled=1))["5m"]
    assert found == WindowMetrics()


def test_headraces_own_tasks_are_left_out_whatever_their_queue() -> None:
    own = row(1, "headrace.deliver", died=9, repeated=9, assigned=9, queued=900.0)
    found = windows(row(1, completed=5, processed=5.0), own)["5m"]
    assert found == WindowMetrics(jobs=5, success_rate=1.0, retry_rate=0.0, average_processing_time=1.0)


@pytest.mark.parametrize(
    ("ago", "step", "within"),
    [
        (0, Step.MINUTE, ["5m", "1h", "24h"]),
        (5.6, Step.MINUTE, ["5m", "1h", "24h"]),  # partly within
        (6, Step.MINUTE, ["1h", "24h"]),
        (61, Step.MINUTE, ["24h"]),
        (23.9 * 60, Step.HOUR, ["24h"]),
        (24.5 * 60, Step.HOUR, ["24h"]),
        (25 * 60, Step.HOUR, []),
    ],
)
def test_a_row_counts_in_each_window_that_it_is_partly_in(ago: float, step: Step, within: list[str]) -> None:
    found = windows(row(ago, step=step, completed=1))
    assert [name for name, one in found.items() if one.jobs] == within


def test_rows_belong_to_the_part_in_which_they_begin() -> None:
    sums, rows = JobSums(), [row(minutes, completed=1) for minutes in range(60)]
    for hour in range(-2, 2):
        begin = begin_of(NOW, Step.HOUR) + hour * timedelta(hours=1)
        sums.add(rows, begin, begin + timedelta(hours=1))
    assert sums.windows(NOW)["1h"].jobs == 60
    more = JobSums()
    more.add([row(0, completed=2)], NOW - LONG, NOW + LONG)
    assert sums.windows(NOW, more)["5m"].jobs == 8
    sums.forget(NOW - WINDOWS["5m"])
    assert sums.windows(NOW)["24h"].jobs == 6
