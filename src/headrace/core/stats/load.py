"""Load: the jobs that wait, that workers hold and that ended recently, by queue, task and requirements."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from headrace.core.explain.position import BY_WORK
from headrace.core.job import Job
from headrace.core.query import as_seen, seen_status
from headrace.core.status import HELD, Status

__all__ = ["LOAD_MINUTES", "MAX_LOAD_JOBS", "Load", "Loads", "loads_of", "merged_loads"]

LOAD_MINUTES = 15
"""Minutes over which ended jobs are counted."""
MAX_LOAD_JOBS = 100_000
"""Maximum jobs of one kind that are counted: beyond that the exact number does not matter."""


class Load(msgspec.Struct, kw_only=True):
    """The jobs of one queue, one task and one set of requirements; sums that may still grow."""

    queue: str
    task: str
    requires: dict[str, Any] = {}
    """As submitted."""
    queued: int = 0
    """Jobs that could be claimed now, due ones included; at least as many, if there are ``more``."""
    more: bool = False
    """Whether counting ended before all were seen."""
    oldest: datetime | None = None
    """The first arrival of the queued jobs that were counted."""
    held: int = 0
    """Jobs that workers hold."""
    ended: dict[int, int] = {}
    """How many were claimed, and then completed or failed: by how many whole minutes ago they ended."""

    def merge(self, other: Load) -> None:
        """Add the jobs of the other."""
        self.queued += other.queued
        self.held += other.held
        self.more = self.more or other.more
        if other.oldest is not None:
            self.oldest = other.oldest if self.oldest is None else min(self.oldest, other.oldest)
        for minute, jobs in other.ended.items():
            self.ended[minute] = self.ended.get(minute, 0) + jobs


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a whole store at one moment."""

    loads: tuple[Load, ...] = ()
    """Each kind of jobs that has any, in no order."""
    since: datetime
    """From when on ended jobs are counted."""


def loads_of(jobs: Iterable[Job], now: datetime, minutes: int = LOAD_MINUTES) -> Loads:
    """Return the load that these jobs are; an engine's own count must agree with it."""
    since = now - timedelta(minutes=minutes)
    return Loads(loads=merged_loads(one for job in jobs if (one := _load_of(job, now, since)) is not None), since=since)


def _load_of(job: Job, now: datetime, since: datetime) -> Load | None:
    """Return the load that one job is; None: none."""
    load = Load(queue=job.queue, task=job.task, requires=job.spec.requires)
    if seen_status(job, now) is Status.QUEUED:
        load.queued, load.oldest = 1, as_seen(job, now).arrived_at
    elif job.status in HELD:
        load.held = 1
    elif job.status in BY_WORK and job.assigned_at is not None and job.finished_at is not None:
        if job.finished_at <= since:
            return None
        load.ended = {max(0, (now - job.finished_at) // timedelta(minutes=1)): 1}
    else:
        return None
    return load


_sorted = msgspec.json.Encoder(order="deterministic").encode


def merged_loads(loads: Iterable[Load]) -> tuple[Load, ...]:
    """Return the same jobs with one load for each queue, task and set of requirements."""
    found: dict[tuple[str, str, bytes], Load] = {}
    for load in loads:
        kind = load.queue, load.task, _sorted(load.requires) if load.requires else b""
        if (known := found.get(kind)) is None:
            found[kind] = load
        else:
            known.merge(load)
    return tuple(found.values())
