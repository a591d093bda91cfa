"""``app.jobs``: find jobs, read one with all that belongs to it, and follow what changes."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from headrace.client.api.actions import act
from headrace.client.api.entries import StepResult, item_page, log_page, log_tail, steps
from headrace.client.api.filters import UNSETTLED, Filters, checked_limit, filter_of
from headrace.client.api.noun import Noun
from headrace.client.api.positions import QueuePosition, position
from headrace.client.api.stats import running_times
from headrace.client.handle import JobHandle
from headrace.client.job_set import JobSet
from headrace.core import validation
from headrace.core.attempt import History
from headrace.core.entry import BEGIN, Kind, LogLine
from headrace.core.explain.explanation import Explanation
from headrace.core.explain.job import explain
from headrace.core.explain.waiting import relatives
from headrace.core.hidden_errors import hidden_history, hidden_job
from headrace.core.job import Job, as_id
from headrace.core.lifecycle.actions import Action
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Bound, counted_by, group_of, limits_of
from headrace.core.query import Filter, Page, as_seen, seen_status
from headrace.core.stats.failures import FailureGroup
from headrace.core.status import HELD, Status
from headrace.core.updates import ResumeToken
from headrace.engine import MAX_BATCH, Engine, WorkerRow
from headrace.errors import JobNotFound
from headrace.runtime.reads import readable
from headrace.runtime.watch.feed import Feed
from headrace.runtime.watch.followers import Reader
from headrace.runtime.watch.stream import StreamItem

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["JobsApi", "get", "get_many"]

_MAX_HOLDERS = 1000


class JobsApi(Noun):
    """The jobs of the store; ``:raises JobNotFound:`` every method that takes an id, if there is no such job."""

    def handle(self, id: UUID | str) -> JobHandle[Any]:
        """A job by its id; nothing is read yet; its actions are methods of the handle."""
        return JobHandle(self._app, as_id(id))

    async def list(self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[Filters]) -> Page[Job]:
        """The jobs that match, newest first, a page at a time.

        Every filter that is given must match. ``status``, ``reason``, ``task``, ``queue``, ``customer``, ``worker`` and
        ``fingerprint`` take one value or several, of which one must match; ``worker``: the jobs that it has now.
        ``tag`` and ``schedule`` match whole; ``text`` is searched for in the id, the task, the payload and the error.
        ``parent`` has children, ``root`` all descendants of a job without a parent, ``batch`` its jobs, ``rerun_of``
        those that do its work again. ``created_after`` and ``created_before``, ``finished_after`` and
        ``finished_before`` are moments with an offset; the first is in the range, the second is not. ``suspect``: only
        jobs that ran when their worker died, and that may have killed it.

        There is no index for ``text``: a page searches the newest 5,000 jobs below its cursor. It may be short, and
        has a cursor as long as there is more to search.
        """
        return await JobSet(self._app, filters).list(limit=limit, cursor=cursor)

    async def count(self, **filters: Unpack[Filters]) -> int:
        """How many jobs match; the filters are those of ``list``. It reads all of them."""
        return await JobSet(self._app, filters).count()

    def where(self, **filters: Unpack[Filters]) -> JobSet:
        """The jobs that match, to list, count and act on; the filters are those of ``list``."""
        return JobSet(self._app, filters)

    async def act(self, id: UUID | str, action: Action, *, by: str | None = None) -> Job:
        """Do an action of ``core.lifecycle.actions.ACTIONS`` to one job; return that job, or the new one of a rerun."""
        return await act(self._app, id, action, by)

    async def failures(
        self, *, limit: int = 50, among: int | None = None, **filters: Unpack[Filters]
    ) -> builtins.list[FailureGroup]:
        """Jobs that failed alike, in groups, the largest first: by task, type of the error, and line of your code.

        Without a ``status`` these are jobs that failed, and jobs that failed and are tried again; not what was
        cancelled or discarded. ``list(fingerprint=…)`` lists the jobs of a group. ``among``: of the jobs that
        failed for good, only the last so many are read; then it does not matter how many there are.
        """
        if among is not None:
            validation.whole(among, "among", 1)
        filter, now = filter_of({"status": sorted(UNSETTLED), **filters}), self._host.clock.now()
        return await self._engine.records.failures(filter, now, checked_limit(limit), among)

    async def get(self, id: UUID | str) -> Job:
        """The job as it is now."""
        return await get(self._session, as_id(id))

    async def get_many(self, ids: Iterable[UUID | str]) -> builtins.list[Job | None]:
        """Jobs as they are now, in the order of their ids; None where there is none."""
        return await get_many(self._session, [as_id(id) for id in ids])

    async def history(self, id: UUID | str) -> History:
        """The attempts of a job and the actions on it."""
        await self.get(id)
        return (await self._engine.records.history(as_id(id))).timed()

    async def explain(
        self, id: UUID | str, *, to: str | None = None, zone: tzinfo | None = None, hide_errors: bool = False
    ) -> Explanation:
        """Why the job is in its status and what it waits for: text, and ``facts`` as data.

        ``to``: the customer who reads it, and must not learn of jobs of others, nor on which machines workers are.
        ``zone``: the time zone of moments in the text; None is that of this machine. ``hide_errors``: only where errors
        are found, and not what they are.
        """
        session, engine, now = self._session, self._engine, self._host.clock.now()
        job = (await engine.jobs.get([as_id(id)]))[0]
        if job is None:
            raise JobNotFound(as_id(id))
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
        holders: builtins.list[Job] = []
        usage, queued = Usage(), seen_status(job, now) is Status.QUEUED
        if limits.bounded(job.queue, job.task):
            group = group_of(job)
            usage = await engine.records.usage(list(limits.paced(group)))
            for bound in (one for one, most in limits.concurrency(group).items() if usage.held.get(one, 0) >= most):
                holders += await _holders(engine, bound, usage.held.get(bound, 0), now)
        workers, history = await engine.workers.list(), await engine.records.history(job.id)
        parents = [one for one in await readable(engine, relatives(job)) if one is not None]
        if hide_errors:
            job, history, parents = hidden_job(job), hidden_history(history, job), list(map(hidden_job, parents))
        return explain(
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

    async def position(self, job: Job | UUID | str) -> QueuePosition | None:
        """The position of a job in its queue, and when it may start; None: it is not queued."""
        return await position(self._session, job if isinstance(job, Job) else await self.get(job))

    async def watch(self, id: UUID | str) -> AsyncGenerator[Job, None]:
        """The job as it is, then again after every change, until it has ended."""
        async with aclosing(self._session.watcher.follow(as_id(id))) as jobs:
            async for job in jobs:
                yield job

    async def follow(
        self,
        job: Job | UUID | str,
        since: ResumeToken | None = None,
        *,
        entries: bool = True,
        wake: Callable[[], None] | None = None,
    ) -> Reader:
        """Follow a job with all that happens to it: its changes, log lines, stream items and position in its queue.

        ``async with await app.jobs.follow(id) as reader: async for update in reader``. ``since``: the token of the last
        update that was read, also by another process: the reader goes on behind it. However many follow a job here, the
        store is read once. A slow reader misses what the job was in between, but no entry, and not the end. ``wake``:
        called whenever there may be an update, for ``reader.take``. ``job``: its id, or the job as it was just read.
        """
        seen = job if isinstance(job, Job) else await self.get(job)
        return self._session.followers.follow(seen, since, entries=entries, wake=wake)

    def feed(self, **filters: Unpack[Filters]) -> Feed:
        """The changes of the jobs that match, as they happen: ``async for changed in app.jobs.feed(task="resize")``.

        ``changed.jobs`` are the jobs as they are now, each once; ``changed.dropped`` is how many changes were left out
        because there were too many at once. The filters are those of ``list``.
        """
        return Feed(
            lambda feed: self._session.attach(feed),  # noqa: PLW0108 - the session of the loop that reads it
            filter_of(filters),
        )

    async def logs(
        self, id: UUID | str, *, follow: bool = False, attempt: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """The log lines of the job's handler, oldest first; ``follow``: also new ones, until the job has ended."""
        if attempt is not None:
            validation.whole(attempt, "attempt", 0)
        reader, after = self._session.writer.entry_reader, BEGIN if attempt is None else (attempt, BEGIN[1])
        async with aclosing(reader.follow(as_id(id), Kind.LOG, after, wait=follow)) as following:
            async for entries, _ in following:
                for entry in entries:
                    if attempt is not None and entry.attempt != attempt:
                        return
                    yield LogLine.of(entry)

    async def log_page(
        self, id: UUID | str, *, attempt: int | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[LogLine]:
        """The log lines of the job's handler, oldest first, a page of at most 4 MiB at a time. There is a cursor as
        long as more may come: with that of the last page, go on later."""
        return await log_page(self._session, as_id(id), checked_limit(limit), cursor, attempt)

    async def log_tail(self, id: UUID | str, *, limit: int = 100) -> tuple[builtins.list[LogLine], bool]:
        """The last lines of the job's log, at most 4 MiB, oldest first, and whether there are earlier ones."""
        await self.get(id)
        return await log_tail(self._session, as_id(id), checked_limit(limit))

    async def items(self, id: UUID | str, *, limit: int = 100, cursor: str | None = None) -> Page[StreamItem[Any]]:
        """The items of the job's stream as plain JSON values, a page at a time; pages and cursors as of ``log_page``.

        It begins where the stream last began anew. Where that happens behind a cursor, the first item of the new
        beginning is marked ``restarted``: what was read before no longer counts.
        """
        return await item_page(self._session, as_id(id), checked_limit(limit), cursor)

    async def steps(self, id: UUID | str) -> builtins.list[StepResult]:
        """What the durable steps of a job returned, in their order."""
        await self.get(id)
        return await steps(self._session, as_id(id))


async def get(session: Session, id: UUID) -> Job:
    """The job as it is now."""
    job = (await session.engine.jobs.get([id]))[0]
    if job is None:
        raise JobNotFound(id)
    return as_seen(job, session.host.clock.now())


async def get_many(session: Session, ids: Sequence[UUID]) -> list[Job | None]:
    """The jobs as they are now, in this order; None where there is none."""
    found: list[Job | None] = []
    for part in range(0, len(ids), MAX_BATCH):
        found += await readable(session.engine, ids[part : part + MAX_BATCH])
    now = session.host.clock.now()
    return [None if job is None else as_seen(job, now) for job in found]


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
