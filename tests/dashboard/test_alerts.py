"""What is told of as a problem, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.client.api.limits import LimitInfo, LimitUsage
from headrace.client.api.queues import QueueInfo
from headrace.core.stats.charts import Charts, Point, Series
from headrace.core.stats.histogram import Quantiles
from headrace.core.stats.rollup import Step
from headrace.core.status import Status
from headrace.dashboard.alerts import Trends, failing, from_doctor, full, waiting_long, waits_before
from headrace.engine import Check

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOTHING = Charts(since=NOW, until=NOW, step=Step.MINUTE, series=())


def queue(depth: int, waits: float = 1.0, **settings: object) -> QueueInfo:
    oldest = NOW - timedelta(seconds=waits) if depth else None
    return QueueInfo("mail", 0, bool(settings.get("paused")), {Status.QUEUED: depth}, oldest, settings.get("most"))  # type: ignore[arg-type]


def test_a_queue_is_told_of_if_jobs_wait_long_or_it_grows() -> None:
    trends = Trends()
    assert waiting_long([queue(3)], NOW, trends, NOTHING) == []
    [late] = waiting_long([queue(3, 400)], NOW, trends, NOTHING)
    assert (late.level, late.path, late.query) == ("warn", "/jobs", {"queue": "mail", "status": "queued"})
    assert waiting_long([queue(3, 4000)], NOW, trends, NOTHING)[0].level == "fail"
    assert waiting_long([queue(3, 4000, paused=True)], NOW, trends, NOTHING) == []
    trends.note([queue(10)], NOW - timedelta(minutes=2))
    assert waiting_long([queue(11)], NOW, trends, NOTHING) == []
    [grown] = waiting_long([queue(100)], NOW, trends, NOTHING)
    assert "90 more than 2 min ago" in grown.text


def test_a_queue_that_grew_while_nobody_looked_is_told_of_by_how_long_jobs_waited_before() -> None:
    def hour(*waited: tuple[int, float, int]) -> Charts:
        """So many minutes ago, so many seconds, so many jobs."""
        points = tuple(
            Point(
                at=NOW - timedelta(minutes=ago),
                seconds=60,
                completed=count,
                waiting=Quantiles(count=count, mean=mean, p50=mean, p95=mean, p99=mean),
            )
            for ago, mean, count in waited
        )
        series = Series(task="", queue="mail", total=points[0], points=points)
        return Charts(since=NOW - timedelta(hours=1), until=NOW, step=Step.MINUTE, series=(series,))

    usual = hour((40, 0.5, 90), (30, 2.5, 30), (2, 500.0, 10))
    assert waits_before(usual, NOW) == {"mail": timedelta(seconds=1)}, "the last minutes are not what was before"
    [grown] = waiting_long([queue(100, 60)], NOW, Trends(), usual)
    assert (grown.level, "it grows: jobs waited 1.0 s on average until 10 min ago" in grown.text) == ("warn", True)
    assert waiting_long([queue(100, 20)], NOW, Trends(), usual) == []
    assert waiting_long([queue(10, 60)], NOW, Trends(), usual) == [], "a few jobs are no growth"
    assert waiting_long([queue(100, 60)], NOW, Trends(), hour((40, 50.0, 90))) == [], "they always wait as long"
    assert waiting_long([queue(100, 60)], NOW, Trends(), NOTHING) == []


def test_what_was_seen_long_ago_says_nothing_of_growth() -> None:
    trends = Trends()
    trends.note([queue(0)], NOW - timedelta(hours=1))
    trends.note([queue(100)], NOW - timedelta(seconds=10))
    assert waiting_long([queue(100)], NOW, trends, NOTHING) == []


def test_a_task_is_told_of_if_much_of_it_fails() -> None:
    def charts(completed: int, failed: int) -> Charts:
        point = Point(at=NOW, seconds=3600, completed=completed, failed=failed)
        series = Series(task="send", queue="", total=point, points=(point,))
        return Charts(since=NOW, until=NOW + timedelta(hours=1), step=Step.MINUTE, series=(series,))

    assert failing(charts(100, 4)) == []
    assert failing(charts(0, 4)) == [], "too few to say anything"
    assert failing(charts(70, 30))[0].level == "warn"
    assert failing(charts(1, 30))[0].level == "fail"


def test_a_limit_is_told_of_if_it_is_full_and_jobs_wait() -> None:
    limits = [LimitInfo("charge", 2, None, (), False)]
    usage = LimitUsage(queues={"mail": 5}, tasks={"charge": 2}, by_key={}, rates={})
    found = full([queue(3, most=5)], limits, usage)
    assert [one.text.partition(":")[0] for one in found] == ["Queue mail", "Task charge"]
    assert full([queue(0, most=5)], limits, usage) == []


def test_what_the_doctor_finds_has_a_place_to_go() -> None:
    checks = [
        Check("workers", "ok", "2 alive"),
        Check("tasks", "fail", "no living worker has it", "start a worker: headrace worker"),
        Check("queues", "warn", "queue 'x' is paused", "headrace queues resume x"),
    ]
    found = from_doctor(checks)
    assert [(one.path, one.query, one.remedy) for one in found] == [
        ("/jobs", {"status": "queued"}, "Start a worker: headrace worker"),
        ("/queues", {}, "headrace queues resume x"),
    ]
