"""Rollups: however rows are regrouped, their sum stays the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.defaults import MAX_STATS_SERIES, STATS_RETENTION
from headrace.core.stats.rollup import (
    OTHER,
    SLOTS,
    STEP_RETENTION,
    Rollup,
    Step,
    Totals,
    begin_of,
    concerns,
    due_before,
    merged,
    parts_of,
    regrouped,
)

NOW = datetime(2026, 5, 4, 13, 37, 42, tzinfo=UTC)

_STEPS, _STEP = 4, timedelta(days=5)
"""How often rows are regrouped in one story at most, and the longest time between two of these."""

# None of them grows so old in a story that it is dropped; a day, since it is kept as one of a day at last.
_OLDEST = STATS_RETENTION - _STEPS * _STEP - timedelta(days=1)

_ROWS = st.lists(
    st.builds(
        lambda minutes, task, completed, failed: row(minutes, task, completed=completed, failed=failed),
        st.integers(0, _OLDEST // timedelta(minutes=1)),
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.integers(0, 3),
    )
)


def row(minutes: int, task: str = "a", **counts: Any) -> Rollup:
    """So many minutes before now."""
    at = begin_of(NOW - timedelta(minutes=minutes), Step.MINUTE)
    return Rollup(Step.MINUTE, at, task, "q", Totals(**counts))


def summed(rows: list[Rollup]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for one in rows:
        done, failed = found.get(one.task, (0, 0))
        found[one.task] = done + one.totals.completed, failed + one.totals.failed
    return {task: counts for task, counts in found.items() if counts != (0, 0)}


@pytest.mark.parametrize(
    ("step", "begin"),
    [
        (Step.MINUTE, datetime(2026, 5, 4, 13, 37, tzinfo=UTC)),
        (Step.HOUR, datetime(2026, 5, 4, 13, tzinfo=UTC)),
        (Step.DAY, datetime(2026, 5, 4, tzinfo=UTC)),
    ],
)
def test_where_a_span_begins(step: Step, begin: datetime) -> None:
    assert begin_of(NOW, step) == begin_of(begin, step) == begin
    assert begin_of(begin - timedelta(microseconds=1), step) == begin - timedelta(seconds=step.seconds)


@given(_ROWS, st.lists(st.integers(0, _STEP // timedelta(minutes=1)), max_size=_STEPS))
def test_the_sum_stays_the_same_however_it_is_regrouped(rows: list[Rollup], later: list[int]) -> None:
    before, now = summed(rows), NOW
    for minutes in later:
        now += timedelta(minutes=minutes)
        rows = regrouped(rows, now)
        assert summed(rows) == before
        assert regrouped(rows, now) == rows
        places = [(one.step, one.at, one.task) for one in rows]
        assert len(places) == len(set(places))


@given(_ROWS)
def test_every_row_is_as_coarse_as_its_age_says(rows: list[Rollup]) -> None:
    before = due_before(NOW)
    for one in regrouped(rows, NOW):
        assert one.at == begin_of(one.at, one.step)
        assert one.at >= before[one.step]
        age = NOW - one.at
        if one.step is Step.MINUTE:
            assert age <= STEP_RETENTION[Step.MINUTE] + timedelta(hours=1)
        if one.step is Step.DAY:
            assert age >= STEP_RETENTION[Step.HOUR]


def test_no_hour_is_half_in_minutes() -> None:
    rows = [row(minutes, completed=1) for minutes in range(60 * 12)]
    found = regrouped(rows, NOW)
    hours = {one.at for one in found if one.step is Step.HOUR}
    assert hours
    assert not hours & {begin_of(one.at, Step.HOUR) for one in found if one.step is Step.MINUTE}
    assert {one.totals.completed for one in found if one.step is Step.HOUR and one.at != min(hours)} == {60}


def test_what_is_too_old_is_dropped() -> None:
    old = row(round(STATS_RETENTION.total_seconds() // 60) + 60 * 24, completed=1)
    assert regrouped([old, row(0, completed=2)], NOW) == [row(0, completed=2)]


def test_the_busiest_series_are_kept_and_the_rest_is_one() -> None:
    rows = [row(0, f"{n:04}", completed=n) for n in range(MAX_STATS_SERIES + 20)]
    for _ in range(2):
        found = merged(rows)
        assert len(found) == MAX_STATS_SERIES
        assert sum(one.totals.completed for one in found) == sum(range(MAX_STATS_SERIES + 20))
        assert {one.task for one in found} == {f"{n:04}" for n in range(21, MAX_STATS_SERIES + 20)} | {OTHER}
        rows = found
    more = merged([*found, row(0, "one more", completed=1)])  # what is other stays so
    assert len(more) == MAX_STATS_SERIES
    assert sum(one.totals.completed for one in more) == sum(range(MAX_STATS_SERIES + 20)) + 1


def test_which_rows_say_something_of_a_time() -> None:
    at = begin_of(NOW, Step.HOUR)
    hour = Rollup(Step.HOUR, at, "a", "q", Totals())
    second = timedelta(seconds=1)
    assert concerns(hour, at - second, at + second)
    assert concerns(hour, at + timedelta(minutes=59), at + timedelta(days=1))
    assert not concerns(hour, at + timedelta(hours=1), at + timedelta(days=1))
    assert not concerns(hour, at - timedelta(days=1), at)
    assert concerns(hour, at, at + second, "a", "q")
    assert not concerns(hour, at, at + second, "b")
    assert not concerns(hour, at, at + second, None, "r")


def test_it_is_kept_as_json() -> None:
    made = row(3, completed=2, retried=1)
    made.totals.ran.add(0.5)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Rollup) == made


def test_every_sum_is_added_up() -> None:
    counts: dict[str, Any] = {
        name: n for n, name in enumerate(Totals.__struct_fields__, 1) if name not in ("waited", "ran", "errors")
    }
    [found] = merged([row(0, **counts), row(0, **counts), row(0)])
    assert {name: getattr(found.totals, name) for name in counts} == {name: 2 * n for name, n in counts.items()}


def test_rows_of_an_earlier_version_have_none_of_the_later_sums() -> None:
    old = msgspec.json.decode(b'["minute","2026-05-04T13:37:00Z","a","q",[1,2,3,4,5,6,7,8,[{},0],[{},0]]]', type=Rollup)
    assert old.totals == Totals(1, 2, 3, 4, 5, 6, 7, 8)


def test_headraces_own_series_are_never_among_the_rest() -> None:
    many = [row(0, f"t{n}", completed=9) for n in range(MAX_STATS_SERIES + 5)]
    found = {
        one.task: one.totals for one in merged([*many, row(0, "headrace.deliver", failed=1), row(0, SLOTS, slots=9)])
    }
    assert len(found) == MAX_STATS_SERIES
    assert found["headrace.deliver"].failed == 1
    assert found[SLOTS].slots == 9
    assert found[OTHER].completed == 9 * 8


@pytest.mark.parametrize("hours", [0, 0.5, 1, 7.9, 24, 24.5, 24 * 30])
def test_a_time_is_read_in_parts_without_gaps(hours: float) -> None:
    until = begin_of(NOW, Step.MINUTE)
    since = begin_of(until - timedelta(hours=hours), Step.HOUR)
    parts = list(parts_of(since, until))
    assert [since, *(end for _, end in parts)] == [*(begin for begin, _ in parts), until]
    for begin, end in parts:
        assert begin_of(begin, Step.HOUR) == begin
        assert end - begin <= timedelta(hours=1) or end <= until - STEP_RETENTION[Step.MINUTE]
    assert len(parts) <= 10 + hours / 24
