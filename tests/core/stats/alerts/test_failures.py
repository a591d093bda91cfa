"""When a task counts as failing, and dead letters as growing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.core.stats.alerts.alert import Kind
from headrace.core.stats.alerts.failures import failure_alerts
from headrace.core.stats.rollup import Rollup, Step, Totals

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(ago: float = 1, **counts: Any) -> Rollup:
    return Rollup(Step.MINUTE, NOW - timedelta(minutes=ago), "send", "mail", Totals(**counts))


def test_a_task_is_told_of_if_much_of_it_fails() -> None:
    def told(**counts: int) -> list[str]:
        return [one.level for one in failure_alerts([row(**counts)], NOW) if one.kind is Kind.FAILING_TASK]

    assert told(completed=100, failed=4) == []
    assert told(failed=4) == [], "too few to say anything"
    assert told(completed=70, failed=30) == ["warn"]
    assert told(completed=1, failed=10, timed_out=10, lost=10) == ["fail"]
    assert list(failure_alerts([row(ago=61, failed=30)], NOW)) == []


def test_dead_letters_are_told_of_if_they_become_more() -> None:
    def told(now: int, before: int) -> list[str]:
        rows = [row(completed=1000, died=now, failed=now), row(ago=70, died=before, failed=before)]
        return [one.message for one in failure_alerts(rows, NOW)]

    assert told(4, 0) == []
    assert told(6, 5) == [], "as many as before"
    assert told(12, 5) == ["task send: 12 jobs failed for good within the hour, 5 in the one before"]
    assert told(0, 50) == []
