"""The position of a job: the parameters of the SQL engines' statement, and its answer."""

from __future__ import annotations

from datetime import datetime, timedelta

from headrace.core.explain.position import BY_WORK, Position
from headrace.core.job import Job
from headrace.core.query import as_seen
from headrace.engines.sql.record import micros, moment

__all__ = ["position_asked", "position_of"]

Asked = tuple[str, int, int, int, int, int, list[str], int]
"""Queue; rank, arrival and order number of the job; the moment; how many to look at; statuses, and from when on."""


def position_asked(job: Job, now: datetime, window: float, most: int) -> Asked:
    """The parameters of the statement."""
    arrived_at = micros(as_seen(job, now).arrived_at)
    since = micros(now - timedelta(seconds=window))
    statuses = [status.value for status in BY_WORK]
    return job.queue, -job.priority, arrived_at, job.seq, micros(now), most, statuses, since


def position_of(ahead: int, keyed: int, more: int, ended: int, since: int, first_claimed_at: int | None) -> Position:
    """The position in the answer of the statement."""
    return Position(
        ahead=ahead,
        keyed=keyed,
        more=bool(more),
        ended=ended,
        since=moment(since),
        first_claimed_at=None if first_claimed_at is None else moment(first_claimed_at),
    )
