"""The next fires of schedules, as the clocks of their zone show them."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.core.schedule.fires import preview
from headrace.core.schedule.rules import Cron, Every
from headrace.dashboard.pages.schedules import fires_of


def test_fires_are_right_across_the_changes_of_clocks() -> None:
    rule, spring = Cron("30 8 * * *", tz="Europe/Berlin"), datetime(2026, 3, 27, 12, tzinfo=UTC)
    fires = fires_of(rule, preview(rule, spring, spring, 3))
    assert [(one.local, one.offset, one.shifted) for one in fires] == [
        ("Sat 2026-03-28 08:30:00", "UTC+01:00", False),
        ("Sun 2026-03-29 08:30:00", "UTC+02:00", True),
        ("Mon 2026-03-30 08:30:00", "UTC+02:00", False),
    ]
    assert [one.at.hour for one in fires] == [7, 6, 6]


def test_an_hour_that_is_not_there_and_one_that_is_there_twice() -> None:
    rule = Cron("30 2 * * *", tz="Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    [gap, _] = fires_of(rule, preview(rule, spring, spring, 2))
    assert (gap.local, gap.offset) == ("Sun 2026-03-29 03:00:00", "UTC+02:00")
    [once, after] = fires_of(rule, preview(rule, autumn, autumn, 2))
    assert (once.local[:14], after.local) == ("Sun 2026-10-25", "Mon 2026-10-26 02:30:00"), "it fires once, not twice"


def test_steady_rules_are_shown_in_utc() -> None:
    rule, now = Every(hours=6), datetime(2026, 3, 29, tzinfo=UTC)
    assert [one.offset for one in fires_of(rule, preview(rule, now, now, 3))] == ["UTC+00:00"] * 3
