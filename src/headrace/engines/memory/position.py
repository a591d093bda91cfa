"""The position of a queued job in a memory store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from headrace.core.claim import order
from headrace.core.decide import expired
from headrace.core.explain.position import Position
from headrace.core.job import Job
from headrace.core.query import as_seen
from headrace.engines.memory.table import Table

__all__ = ["position"]


def position(table: Table, job: Job, now: datetime, window: float, most: int) -> Position:
    """How many jobs are before this one, and the recent pace of its queue."""
    due = [table.records[id] for id in islice(table.deferred.upto(now), most + 1)]
    looked_at = list(islice(_before(table, as_seen(job, now), due, now), most + 1))
    ahead = [one for one in looked_at if not expired(one, now)][:most]
    since = now - timedelta(seconds=window)
    recent = list(islice(table.recent(since), most + 1))
    if len(recent) > most:
        since = max(since, min(one.finished_at for one in recent if one.finished_at is not None))
    done = [
        one.assigned_at
        for one in recent
        if one.queue == job.queue
        and one.assigned_at is not None
        and one.finished_at is not None
        and one.finished_at > since
    ]
    return Position(
        ahead=len(ahead),
        keyed=sum(one.concurrency_key is not None for one in ahead),
        more=max(len(looked_at), len(due)) > most,
        ended=len(done),
        since=since,
        first_claimed_at=min(done, default=None),
    )


def _before(table: Table, job: Job, due: list[Job], now: datetime) -> Iterator[Job]:
    place = order(job, 0)
    for (queue, _, _), line in table.lines.items():
        if queue == job.queue:
            for id in line.before(place):
                yield table.records[id]
    for one in due:
        if one.queue == job.queue and order(as_seen(one, now), 0) < place:
            yield one
