"""Start, end, jitter and cap; and the fires around the turns of the clocks, against a table written by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.schedule.fires import due_fires, fire_id, fires, jittered, latest_fires, next_fire, preview
from headrace.core.schedule.rules import Continuous, Cron, Every, Rule

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
YEAR = timedelta(days=365)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# The turns of the clocks, in UTC, as reckoned with a calendar and a pencil. For each zone, turn and rule: the fire
# before the day of the turn, the one on it, and the one after it.

NEW_YORK, LONDON, LORD_HOWE = "America/New_York", "Europe/London", "Australia/Lord_Howe"
TURNS = [
    # 8 March 2026: at 02:00 -05:00 (07:00 UTC) the clocks leap to 03:00 -04:00.
    (NEW_YORK, "0 2 * * *", ["2026-03-07 07:00", "2026-03-08 07:00", "2026-03-09 06:00"]),
    (NEW_YORK, "30 1 * * *", ["2026-03-07 06:30", "2026-03-08 06:30", "2026-03-09 05:30"]),
    # 1 November 2026: at 02:00 -04:00 (06:00 UTC) they go back to 01:00 -05:00.
    (NEW_YORK, "0 2 * * *", ["2026-10-31 06:00", "2026-11-01 07:00", "2026-11-02 07:00"]),
    (NEW_YORK, "30 1 * * *", ["2026-10-31 05:30", "2026-11-01 05:30", "2026-11-02 06:30"]),
    # 29 March 2026: at 01:00 +00:00 (01:00 UTC) they leap to 02:00 +01:00.
    (LONDON, "0 2 * * *", ["2026-03-28 02:00", "2026-03-29 01:00", "2026-03-30 01:00"]),
    (LONDON, "30 1 * * *", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
    # 25 October 2026: at 02:00 +01:00 (01:00 UTC) they go back to 01:00 +00:00.
    (LONDON, "0 2 * * *", ["2026-10-24 01:00", "2026-10-25 02:00", "2026-10-26 02:00"]),
    (LONDON, "30 1 * * *", ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"]),
    # 4 October 2026: at 02:00 +10:30 (3 October, 15:30 UTC) they leap to 02:30 +11:00.
    (LORD_HOWE, "0 2 * * *", ["2026-10-02 15:30", "2026-10-03 15:30", "2026-10-04 15:00"]),
    (LORD_HOWE, "30 1 * * *", ["2026-10-02 15:00", "2026-10-03 15:00", "2026-10-04 14:30"]),
    # 5 April 2026: at 02:00 +11:00 (4 April, 15:00 UTC) they go back to 01:30 +10:30.
    (LORD_HOWE, "0 2 * * *", ["2026-04-03 15:00", "2026-04-04 15:30", "2026-04-05 15:30"]),
    (LORD_HOWE, "30 1 * * *", ["2026-04-03 14:30", "2026-04-04 14:30", "2026-04-05 15:00"]),
]


@pytest.mark.parametrize(("tz", "expr", "expected"), TURNS)
def test_each_day_fires_once_around_the_turns_of_the_clocks(tz: str, expr: str, expected: list[str]) -> None:
    rule, moments = Cron(expr, tz=tz), [utc(text) for text in expected]
    assert preview(rule, moments[0] - timedelta(hours=12), NOON, 3) == moments
    # The planner asks again and again, each time from the fire before, and backwards when it was away.
    for before, at in zip([moments[0] - timedelta(hours=12), *moments], moments, strict=False):
        assert next_fire(rule, before, NOON) == at
    assert latest_fires(rule, moments[0] - MINUTE, moments[-1], NOON, 10) == moments


def test_a_rule_with_a_star_in_its_minutes_alone_goes_by_the_time_that_passes() -> None:
    rule = Cron("*/30 1 * * *", tz=LONDON)
    # In autumn the hour comes twice; in spring it does not come at all.
    assert preview(rule, utc("2026-10-24 12:00"), NOON, 5) == [
        utc(f"2026-10-{at}") for at in ("25 00:00", "25 00:30", "25 01:00", "25 01:30", "26 01:00")
    ]
    assert preview(rule, utc("2026-03-28 01:00"), NOON, 2) == [utc("2026-03-28 01:30"), utc("2026-03-30 00:00")]


# Start and end


def test_nothing_fires_before_the_start_or_after_the_end() -> None:
    rule = Cron("0 * * * *", start=utc("2026-03-10 13:00"), end=utc("2026-03-10 15:00"))
    inside = [utc("2026-03-10 13:00"), utc("2026-03-10 14:00"), utc("2026-03-10 15:00")]
    assert list(fires(rule, NOON - YEAR, NOON)) == inside
    assert list(fires(rule, utc("2026-03-10 13:00"), NOON)) == inside[1:]
    assert next_fire(rule, utc("2026-03-10 15:00"), NOON) is None
    assert latest_fires(rule, NOON - YEAR, NOON + YEAR, NOON, 2) == inside[-2:]


def test_a_start_between_two_fires_waits_for_the_next() -> None:
    assert next_fire(Cron("0 * * * *", start=utc("2026-03-10 13:30")), NOON, NOON) == utc("2026-03-10 14:00")


def test_every_counts_from_its_start_and_fires_at_it() -> None:
    start = NOON + timedelta(minutes=7)
    rule = Every(minutes=10, start=start, end=start + timedelta(minutes=20))
    assert list(fires(rule, NOON, NOON - YEAR)) == [start, start + 10 * MINUTE, start + 20 * MINUTE]
    # Of a start in the past the steps are kept: another planner, asked later, finds the same moments.
    assert next_fire(Every(minutes=10, start=start), start + timedelta(days=3, seconds=1), NOON) == start + timedelta(
        days=3, minutes=10
    )


@pytest.mark.parametrize("rule", [Cron("0 0 1 1 *"), Every(days=400), Continuous()], ids=str)
def test_what_does_not_fire_in_between_is_not_due(rule: Rule) -> None:
    assert due_fires(rule, NOON - timedelta(days=1), NOON, NOON - timedelta(days=1), YEAR) == []


def test_what_is_continuous_has_no_fires() -> None:
    assert list(fires(Continuous(), NOON - YEAR, NOON)) == []


def test_all_keeps_the_newest_up_to_the_cap_of_the_rule() -> None:
    rule = Every(minutes=10, catch_up="all", cap=3)
    found = due_fires(rule, NOON, NOON + 100 * MINUTE, NOON, YEAR)
    assert found == [NOON + 80 * MINUTE, NOON + 90 * MINUTE, NOON + 100 * MINUTE]


# Jitter


def test_jitter_is_derived_from_the_fire_alone() -> None:
    spread = timedelta(minutes=5)
    at = jittered("nightly", 1, NOON, spread)
    assert NOON <= at < NOON + spread
    assert at == jittered("nightly", 1, NOON, spread)
    others = {
        jittered("nightly", 2, NOON, spread),
        jittered("daily", 1, NOON, spread),
        jittered("nightly", 1, NOON + MINUTE, spread) - MINUTE,
    }
    assert len({at, *others}) == 4
    assert jittered("nightly", 1, NOON, timedelta(0)) == NOON


def test_jitter_is_spread_evenly() -> None:
    spread = timedelta(seconds=100)
    waits = [(jittered("n", 1, NOON + n * MINUTE, spread) - NOON - n * MINUTE) / spread for n in range(1000)]
    assert all(0 <= wait < 1 for wait in waits)
    assert all(sum(n / 10 <= wait < (n + 1) / 10 for wait in waits) > 60 for n in range(10))


def test_jitter_is_the_same_in_every_version() -> None:
    # Two planners of different versions must agree on when the job of one fire starts.
    assert jittered("nightly", 3, NOON, timedelta(hours=1)) == utc("2026-03-10 12:20:54.890246")
    assert str(fire_id("nightly", 3, NOON)) == "019cd79e-4600-7461-a14e-378efa2776a7"


def test_a_fire_as_old_as_the_horizon_is_made_good() -> None:
    rule = Every(minutes=10, catch_up="all")
    found = due_fires(rule, NOON - YEAR, NOON, NOON - YEAR, 20 * MINUTE)
    assert found == [NOON - 20 * MINUTE, NOON - 10 * MINUTE, NOON]


def test_no_fire_up_to_the_cursor_is_made_again() -> None:
    rule = Every(minutes=1, catch_up="skip")
    late = NOON + timedelta(seconds=20)
    assert due_fires(rule, NOON - MINUTE, late, NOON - YEAR, YEAR) == [NOON]
    assert due_fires(rule, NOON, late, NOON - YEAR, YEAR) == []


def test_no_fires_are_kept_where_none_are_wanted() -> None:
    rule = Cron("* * * * *")
    assert latest_fires(rule, NOON, NOON + 5 * MINUTE, NOON, 0) == []
