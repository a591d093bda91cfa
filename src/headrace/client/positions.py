"""Where a job stands in its queue, and when it may start: what ``explain`` says of it, as two numbers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.client.admin import workers
from headrace.client.charts import running_times
from headrace.client.session import Session
from headrace.core.decide import expired
from headrace.core.explain.queued import explain_queued
from headrace.core.job import Job
from headrace.core.limits.limit import Usage
from headrace.core.limits.rule import group_of, limits_of
from headrace.core.query import seen_status
from headrace.core.record import Record
from headrace.core.status import Status

__all__ = ["QueuePosition", "position"]


class QueuePosition(msgspec.Struct, Record, frozen=True):
    """The place of a job in its queue, and when it may start, by how fast the queue goes."""

    position: int | None
    """1 is the next; None: too many are before it to count them, or it stands in no line with others."""
    estimated_start: datetime | None
    """None: nothing tells, for instance because no worker may take it, or its queue is paused."""


async def position(session: Session, job: Job) -> QueuePosition | None:
    """Where the job stands; None: it is not in line, since it runs, waits for its time, or is over."""
    engine, now = session.engine, session.host.clock.now()
    if seen_status(job, now) is not Status.QUEUED or expired(job, now):
        return None
    limits, usage = limits_of((one.key, one.value) for one in await engine.documents.settings()), Usage()
    if limits.bounded(job.queue, job.task):
        usage = await engine.records.usage(list(limits.paced(group_of(job))))
    place = await engine.records.position(job, now)
    takes = (await running_times(session, queue=job.queue)).quantiles()
    facts = {
        fact.code: fact.data
        for fact in explain_queued(job, now, await workers(session), limits, usage, (), place, takes=takes)
    }
    told, start = facts.get("position"), facts.get("estimate")
    estimated = now if "ready" in facts else None if start is None or start["at_least"] else start["at"]
    return QueuePosition(None if told is None or told["at_least"] else told["position"], estimated)
