"""``app.jobs``: get jobs, their log lines, and why they are where they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.client.api.stats import running_times
from headrace.core import validation
from headrace.core.entry import BEGIN, Kind, LogLine
from headrace.core.explain.explanation import Explanation
from headrace.core.explain.job import explain as tell
from headrace.core.explain.waiting import relatives
from headrace.core.hidden_errors import hidden_history, hidden_job
from headrace.core.job import Job
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Bound, counted_by, group_of, limits_of
from headrace.core.query import Filter, as_seen, seen_status
from headrace.core.status import HELD, Status
from headrace.engine import MAX_BATCH, Engine, WorkerRow
from headrace.errors import JobNotFound
from headrace.runtime.reads import readable

if TYPE_CHECKING:
    from headrace.client.session import Session
__all__ = ["explain", "get", "logs"]

_MAX_HOLDERS = 1000


# Looking


async def get(session: Session, id: UUID) -> Job:
    """The job as it stands."""
    job = (await session.engine.jobs.get([id]))[0]
    if job is None:
        raise JobNotFound(id)
    return as_seen(job, session.host.clock.now())


async def get_many(session: Session, ids: Sequence[UUID]) -> list[Job | None]:
    """The jobs as they stand, in this order; None where there is none."""
    found: list[Job | None] = []
    for part in range(0, len(ids), MAX_BATCH):
        found += await readable(session.engine, ids[part : part + MAX_BATCH])
    now = session.host.clock.now()
    return [None if job is None else as_seen(job, now) for job in found]


async def logs(session: Session, id: UUID, follow: bool, attempt: int | None) -> AsyncGenerator[LogLine, None]:
    """The lines of a job's log, of one attempt or of all."""
    if attempt is not None:
        validation.whole(attempt, "attempt", 0)
    after = BEGIN if attempt is None else (attempt, BEGIN[1])
    async with aclosing(session.lanes.entry_reader.follow(id, Kind.LOG, after, wait=follow)) as following:
        async for entries, _ in following:
            for entry in entries:
                if attempt is not None and entry.attempt != attempt:
                    return
                yield LogLine.of(entry)


async def explain(
    session: Session, id: UUID, to: str | None = None, zone: tzinfo | None = None, hide: bool = False
) -> Explanation:
    """Why the job is in the status it is in; ``to``: a customer who is told; ``hide``: nothing of its errors."""
    engine, now = session.engine, session.host.clock.now()
    job = (await engine.jobs.get([id]))[0]
    if job is None:
        raise JobNotFound(id)
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    usage, holders, queued = Usage(), list[Job](), seen_status(job, now) is Status.QUEUED
    if limits.bounded(job.queue, job.task):
        group = group_of(job)
        usage = await engine.records.usage(list(limits.paced(group)))
        for bound in (one for one, most in limits.concurrency(group).items() if usage.held.get(one, 0) >= most):
            holders += await _holders(engine, bound, usage.held.get(bound, 0), now)
    workers, history = await engine.workers.list(), await engine.records.history(id)
    parents = [one for one in await readable(engine, relatives(job)) if one is not None]
    if hide:
        job, history, parents = hidden_job(job), hidden_history(history, job), list(map(hidden_job, parents))
    return tell(
        job,
        history,
        now,
        workers,
        limits=limits,
        usage=usage,
        holders=holders,
        position=await engine.records.position(job, now) if queued else None,
        parents=parents,
        rules=engine.rules,
        to=to,
        zone=zone,
        takes=(await running_times(session, task=job.task)).quantiles() if job.held else None,
        queue_takes=(await running_times(session, queue=job.queue)).quantiles() if queued else None,
        isolated=await _isolated(engine, job, workers, now) if queued else (),
    )


async def _isolated(engine: Engine, job: Job, workers: Sequence[WorkerRow], now: datetime) -> set[UUID]:
    """The strict workers that hold jobs of another customer than this job's."""
    strict = frozenset(
        row.info.id for row in workers if row.holds and row.info.customers is not None and row.info.customers.strict
    )
    if not strict:
        return set()
    held = (await engine.records.find(Filter(status=HELD, worker=strict), now, _MAX_HOLDERS)).items
    return {one.worker for one in held if one.worker is not None and one.customer not in (None, job.customer)}


async def _holders(engine: Engine, bound: Bound, held: int, now: datetime) -> list[Job]:
    """Jobs that are held and count against this bound. There is no index by key: those of the task are searched."""
    name = frozenset({bound[1]})
    of = Filter(status=HELD, queue=name) if bound[0] == "queue" else Filter(status=HELD, task=name)
    found, cursor, more = list[Job](), None, True
    while more and len(found) < min(held, _MAX_HOLDERS):
        page = await engine.records.find(of, now, _MAX_HOLDERS, cursor)
        found += (one for one in page.items if bound in counted_by(group_of(one)))
        cursor, more = page.cursor, page.cursor is not None
    return found
