"""Alerts about queues that grow or in which jobs wait long, and about limits that are used up.

Nothing is remembered between two looks: a command that looks once finds what an open page finds. In a queue, those that
wait came while the first of them has waited; and those that were there before it have ended since, or run. So the queue
has grown if there are more of the former.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from headrace.core.limits.settings import Bound, Limits
from headrace.core.query import Count
from headrace.core.stats.alerts.alert import Alert, Kind
from headrace.core.stats.load import Loads
from headrace.core.stats.rollup import Rollup
from headrace.core.status import Status
from headrace.core.times import length

__all__ = ["full_limits", "grown_by", "queue_alerts", "waits_before"]

LONG_WAIT, TOO_LONG_WAIT = timedelta(minutes=5), timedelta(minutes=30)
"""How long the oldest job of a queue waits before that is a warning, and before it is a failure."""
GROWTH_RATIO, MIN_GROWN_JOBS = 1.2, 20
"""A queue grows if it has so many times as many jobs as a while ago, and so many more."""
MIN_SPAN = timedelta(seconds=45)
"""A while ago is at least so long: in less, jobs that come together look like growth."""
USUAL_SPAN, RECENT_SPAN = timedelta(hours=1), timedelta(minutes=10)
"""How long jobs usually wait is what they waited within the first of these, and before the last of these."""
SLOW_WAIT, SLOWER_RATIO = timedelta(seconds=30), 5
"""A queue grows, too, if its oldest job has waited for so long, and so many times as long as jobs usually do."""


def queue_alerts(
    counts: Iterable[Count], loads: Loads, limits: Limits, rows: Iterable[Rollup], now: datetime
) -> Iterator[Alert]:
    """Yield alerts about queues in which jobs wait too long, or more and more; ``rows``: at least of ``USUAL_SPAN``."""
    usually = waits_before(rows, now)
    found: dict[str, list[Count]] = {}
    for count in counts:
        found.setdefault(count.queue, []).append(count)
    for queue, mine in sorted(found.items()):
        depth = sum(one.jobs for one in mine if one.status is Status.QUEUED)
        oldest = min((one.oldest for one in mine if one.status is Status.QUEUED and one.oldest), default=None)
        if not depth or oldest is None or limits.queue(queue).paused:
            continue
        waits, usual = now - oldest, usually.get(queue)
        more = grown_by(depth, waits, loads, queue, now)
        slower = usual is not None and depth >= MIN_GROWN_JOBS and waits >= max(SLOW_WAIT, SLOWER_RATIO * usual)
        if waits < LONG_WAIT and not more and not slower:
            continue
        message = f"queue {queue}: {depth:,} queued"
        if more:
            message += f", {more:,} more than {_told(waits)} ago"
        if slower and usual is not None:
            message += f", and it grows: jobs waited {_told(usual)} on average until {_told(RECENT_SPAN)} ago"
        running = sum(one.jobs for one in mine if one.status is Status.RUNNING)
        message += f"; the oldest has waited {_told(waits)}, {running:,} run"
        remedy = "start more workers for it (headrace scale says how many), or raise its limit; explain on its oldest"
        yield Alert(
            Kind.GROWING_QUEUE if more or slower else Kind.SLOW_QUEUE,
            "fail" if waits >= TOO_LONG_WAIT else "warn",
            queue,
            message,
            f"{remedy} job says what that waits for",
        )


def grown_by(depth: int, waits: timedelta, loads: Loads, queue: str, now: datetime) -> int:
    """Return how many more jobs the queue has than when its oldest job came, ``waits`` ago; 0: not many, or unknown."""
    counted = now - loads.since
    if waits < MIN_SPAN or counted < MIN_SPAN or depth < MIN_GROWN_JOBS:
        return 0
    mine = [load for load in loads.loads if load.queue == queue]
    # A minute that is partly within the time counts as a whole: rather no alert than a wrong one.
    minutes = range(math.ceil(min(waits, counted) / timedelta(minutes=1)))
    ended = sum(load.ended.get(minute, 0) for load in mine for minute in minutes)
    before = ended * max(1.0, waits / counted) + sum(load.held for load in mine)
    return int(depth - before) if depth - before >= MIN_GROWN_JOBS and depth >= before * GROWTH_RATIO else 0


def waits_before(rows: Iterable[Rollup], now: datetime) -> dict[str, timedelta]:
    """Return how long jobs of each queue waited on average within ``USUAL_SPAN``, before the last ``RECENT_SPAN``."""
    waited, counts = dict[str, float](), dict[str, int]()
    for row in rows:
        if now - USUAL_SPAN <= row.at <= now - RECENT_SPAN and (count := row.totals.waited.count):
            waited[row.queue] = waited.get(row.queue, 0.0) + row.totals.waited.seconds
            counts[row.queue] = counts.get(row.queue, 0) + count
    return {queue: timedelta(seconds=waited[queue] / count) for queue, count in counts.items()}


def full_limits(counts: Sequence[Count], loads: Loads, limits: Limits, held: Mapping[Bound, int]) -> Iterator[Alert]:
    """Yield alerts about concurrency limits that are used up while jobs wait for them; ``held``: by what is limited."""
    queued = {one.queue for one in counts if one.status is Status.QUEUED and one.jobs}
    for queue in sorted(queued):
        taken, most = held.get(("queue", queue), 0), limits.queue(queue).max_concurrency
        if most is not None and taken >= most:
            yield _full(Kind.FULL_QUEUE, "queue", queue, taken, most)
    for task in sorted({load.task for load in loads.loads if load.queued}):
        taken, most = held.get(("task", task), 0), limits.task(task).max_concurrency
        if most is not None and taken >= most:
            yield _full(Kind.FULL_TASK, "task", task, taken, most)


def _full(kind: Kind, what: str, name: str, taken: int, most: int) -> Alert:
    message = f"{what} {name}: {taken:,} of {most:,} slots are taken, and jobs of it are queued"
    return Alert(kind, "warn", name, message, "look who holds them; raise the limit if they may be more")


def _told(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds:.1f} s" if seconds < 10 else length(seconds)
