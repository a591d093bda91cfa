"""When a queue counts as growing or slow, and a limit as used up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.core.limits.settings import Limits, limits_of
from headrace.core.query import Count
from headrace.core.stats.alerts.alert import Alert, Kind
from headrace.core.stats.alerts.queues import full_limits, queue_alerts, waits_before
from headrace.core.stats.load import Load, Loads
from headrace.core.stats.rollup import Rollup, Step, Totals
from headrace.core.status import Status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAUSED = limits_of([("queue:mail", '{"paused": true}')])


def loads(held: int = 0, **ended: int) -> Loads:
    """What is held, and what ended so many minutes ago (``m3=5``)."""
    minutes = {int(name[1:]): jobs for name, jobs in ended.items()}
    return Loads(loads=(Load(queue="mail", task="send", held=held, ended=minutes),), since=NOW - timedelta(minutes=15))


def told(depth: int, waits: float, seen: Loads | None = None, rows: tuple[Rollup, ...] = ()) -> list[Alert]:
    counts = [Count("mail", Status.QUEUED, depth, NOW - timedelta(seconds=waits))]
    return list(queue_alerts(counts, seen or loads(m0=1000), limits_of(()), rows, NOW))


def test_jobs_that_wait_long_are_a_warning_and_then_a_failure() -> None:
    assert told(3, 1) == []
    [late] = told(3, 400)
    assert (late.kind, late.level, late.subject) == (Kind.SLOW_QUEUE, "warn", "mail")
    assert told(3, 4000)[0].level == "fail"
    counts = [Count("mail", Status.QUEUED, 3, NOW - timedelta(hours=2))]
    assert PAUSED.queue("mail").paused
    assert list(queue_alerts(counts, loads(), PAUSED, (), NOW)) == []


def test_a_queue_grows_if_more_wait_than_ended_since_the_first_of_them_came() -> None:
    [grown] = told(100, 120, loads(held=4, m0=3, m1=3))
    assert (grown.kind, grown.level) == (Kind.GROWING_QUEUE, "warn")
    assert "100 queued, 90 more than 2 min ago" in grown.message
    assert told(100, 120, loads(held=4, m0=50, m1=50)) == [], "as many went as came"
    assert told(100, 20, loads()) == [], "jobs that came together are no growth"
    assert told(10, 120, loads()) == [], "a few jobs are no growth"


def test_a_queue_grows_if_its_oldest_waits_much_longer_than_jobs_did_before() -> None:
    def row(ago: int, seconds: float, jobs: int) -> Rollup:
        totals = Totals(completed=jobs)
        for _ in range(jobs):
            totals.waited.add(seconds)
        return Rollup(Step.MINUTE, NOW - timedelta(minutes=ago), "send", "mail", totals)

    usual = (row(40, 0.5, 90), row(30, 2.5, 30), row(2, 500.0, 10))
    assert waits_before(usual, NOW) == {"mail": timedelta(seconds=1)}, "the last minutes are not what was before"
    [grown] = told(100, 60, rows=usual)
    assert "it grows: jobs waited 1.0 s on average until 10 min ago" in grown.message
    assert told(100, 20, rows=usual) == []
    assert told(10, 60, rows=usual) == [], "a few jobs are no growth"
    assert told(100, 60, rows=(row(40, 50.0, 90),)) == [], "they always wait as long"


def test_a_limit_is_told_of_if_it_is_full_and_its_own_jobs_wait() -> None:
    limits: Limits = limits_of([("queue:mail", '{"max_concurrency": 5}'), ("limit:charge", '{"max_concurrency": 2}')])
    counts = [Count("mail", Status.QUEUED, 3, NOW)]
    held = {("queue", "mail"): 5, ("task", "charge"): 2}
    waiting = Loads(loads=(Load(queue="shop", task="charge", queued=1),), since=NOW)
    found = list(full_limits(counts, waiting, limits, held))  # type: ignore[arg-type]
    assert [(one.kind, one.subject) for one in found] == [(Kind.FULL_QUEUE, "mail"), (Kind.FULL_TASK, "charge")]
    assert list(full_limits([], loads(held=2), limits, held)) == []  # type: ignore[arg-type]
