"""Alerts: growing queues, silent workers, failing tasks, full limits; each with a remedy."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.core.stats.charts import Charts
from headrace.core.webhooks.delivery import TASK as DELIVER
from headrace.dashboard.format import count, length, percent
from headrace.engine import Check

if TYPE_CHECKING:
    from headrace.client.api.limits import LimitInfo, LimitUsage
    from headrace.client.api.queues import QueueInfo

__all__ = ["Alert", "Trends", "failing", "from_doctor", "full", "waiting_long", "waits_before"]

LONG_WAIT, TOO_LONG_WAIT = timedelta(minutes=5), timedelta(minutes=30)
"""How long the oldest job of a queue waits before that is a warning, and before it is a failure."""
GROWTH_RATIO, MIN_QUEUED_JOBS = 1.2, 20
"""A queue grows if it has so many times as many jobs as a while ago, and so many more."""
ALERT_WINDOW, MIN_SPAN = timedelta(minutes=10), timedelta(seconds=45)
SLOW_WAIT, SLOWER_RATIO = timedelta(seconds=30), 5
"""A queue grows, too, if its oldest job has waited for so long, and so many times as long as jobs did before."""
FAILING_RATIO, MIN_ATTEMPTS = 0.2, 5
"""The share of failures, and their minimum number, for a task to be reported."""

_PLACES = {
    "workers": ("/workers", "See workers"),
    "tasks": ("/jobs?status=queued", "See what is queued"),
    "requirements": ("/jobs?status=queued", "See what is queued"),
    "quarantine": ("/jobs?suspect=1", "See the jobs"),
    "queues": ("/queues", "See queues"),
    "rates": ("/limits", "See rates"),
    "webhooks": (f"/jobs?task={DELIVER}", "See deliveries"),
    "settings": ("/limits", "See limits"),
}


@dataclass(frozen=True)
class Alert:
    """A problem, and its remedy."""

    level: str
    """``fail`` or ``warn``."""
    text: str
    remedy: str | None
    path: str
    query: dict[str, str]
    see: str


def from_doctor(checks: Sequence[Check]) -> list[Alert]:
    """Return the doctor's findings."""
    found = list[Alert]()
    for check in checks:
        if check.level != "ok":
            place, see = _PLACES.get(check.name, ("/", "See"))
            path, _, query = place.partition("?")
            asked = dict(part.split("=") for part in query.split("&") if part)
            remedy = None if check.remedy is None else _sentence(check.remedy)
            found.append(Alert(check.level, _sentence(check.message), remedy, path, asked, see))
    return found


def _sentence(text: str) -> str:
    """Return the text as a sentence; a command stays as it is typed."""
    return text if text.startswith("headrace ") else text[:1].upper() + text[1:]


def waiting_long(queues: Sequence[QueueInfo], now: datetime, trends: Trends, hour: Charts) -> list[Alert]:
    """Return alerts for queues that grow, or in which jobs wait too long; ``hour``: by queue."""
    before = waits_before(hour, now)
    found = list[Alert]()
    for queue in queues:
        depth, running = queue.depth, queue.running
        if not depth or queue.paused:
            continue
        waits = now - queue.waiting_since if queue.waiting_since else timedelta()
        more, since = trends.growth(queue.name, depth, now)
        usual = before.get(queue.name)
        slower = usual is not None and depth >= MIN_QUEUED_JOBS and waits >= max(SLOW_WAIT, SLOWER_RATIO * usual)
        if waits < LONG_WAIT and not more and not slower:
            continue
        grows = f", {count(more)} more than {length(since)} ago" if more else ""
        if slower:
            grows += f", and it grows: jobs waited {length(usual)} on average until {length(ALERT_WINDOW)} ago"
        since_when = f"the oldest has waited {length(waits)}, {count(running)} run"
        text = f"Queue {queue.name}: {count(depth)} queued{grows}; {since_when}"
        remedy = "Start more workers for it, or raise its limit; Explain on its oldest job says what it waits for."
        level = "fail" if waits >= TOO_LONG_WAIT else "warn"
        query = {"queue": queue.name, "status": "queued"}
        found.append(Alert(level, text, remedy, "/jobs", query, "See the jobs"))
    return found


def waits_before(hour: Charts, now: datetime) -> dict[str, timedelta]:
    """Return how long jobs of each queue waited on average, within the hour, before the last ``ALERT_WINDOW``: from
    rollups, so that it does not depend on an open dashboard; ``hour``: by queue."""
    found = dict[str, timedelta]()
    for series in hour.series:
        earlier = [one.waiting for one in series.points if one.waiting and one.at + ALERT_WINDOW <= now]
        if counted := sum(one.count for one in earlier):
            found[series.queue] = timedelta(seconds=sum(one.mean * one.count for one in earlier) / counted)
    return found


def failing(charts: Charts) -> list[Alert]:
    """Return alerts for tasks with many failed attempts; ``charts``: by task."""
    found = list[Alert]()
    for series in charts.series:
        total = series.total
        bad = total.failed + total.timed_out + total.lost
        share = bad / (bad + total.completed) if bad else 0.0
        if bad >= MIN_ATTEMPTS and share >= FAILING_RATIO:
            text = f"Task {series.task}: {count(bad)} attempts failed within the hour, {percent(share)} of all"
            remedy = "Look at the error; retry the group once it is mended."
            query = {"task": series.task}
            found.append(Alert("fail" if share >= 0.5 else "warn", text, remedy, "/dead", query, "See its errors"))
    return found


def full(queues: Sequence[QueueInfo], limits: Sequence[LimitInfo], usage: LimitUsage) -> list[Alert]:
    """Return alerts for limits that are used up while jobs wait."""
    found = list[Alert]()
    waits = {queue.name: queue.depth for queue in queues}
    for queue in queues:
        held, most = usage.queues.get(queue.name, 0), queue.max_concurrency
        if most is not None and held >= most and waits[queue.name]:
            found.append(_full(f"Queue {queue.name}", held, most))
    for limit in limits if sum(waits.values()) else ():
        held, most = usage.tasks.get(limit.task, 0), limit.max_concurrency
        if most is not None and held >= most:
            found.append(_full(f"Task {limit.task}", held, most))
    return found


def _full(what: str, held: int, most: int) -> Alert:
    text = f"{what}: {count(held)} of {count(most)} slots are taken, and jobs are queued"
    return Alert("warn", text, "See who holds them; raise the limit if they may be more.", "/limits", {}, "See limits")


class Trends:
    """The depth of queues a while ago, as seen by open dashboards: kept in this process alone."""

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, dict[str, int]]] = deque(maxlen=600)

    def note(self, queues: Sequence[QueueInfo], now: datetime) -> None:
        """Store the current depth."""
        if not self._seen or now - self._seen[-1][0] >= timedelta(seconds=5):
            self._seen.append((now, {queue.name: queue.depth for queue in queues}))
        while self._seen and now - self._seen[0][0] > ALERT_WINDOW:
            self._seen.popleft()

    def growth(self, queue: str, depth: int, now: datetime) -> tuple[int, timedelta]:
        """Return by how many jobs the queue has grown, and since when; 0: it has not, or not much."""
        for at, depths in self._seen:
            if now - at >= MIN_SPAN:
                before = depths.get(queue, 0)
                grown = depth - before
                return (grown if grown >= MIN_QUEUED_JOBS and depth >= before * GROWTH_RATIO else 0), now - at
        return 0, timedelta()
