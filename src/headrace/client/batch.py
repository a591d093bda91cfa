"""Batches: jobs submitted together, counted together, and waited for together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from msgspec.structs import replace

from headrace.client.draft import Draft
from headrace.client.handle import JobHandle, answered, handle_of
from headrace.client.submission.middleware import check_drafts, through
from headrace.client.submission.parentage import arranged
from headrace.client.submission.submit import child_of_handler, jobs_of, wished
from headrace.core.batch import Batch, BatchCallback, customer_of
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.family import child_id
from headrace.core.query import Filter
from headrace.core.status import LIVE
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_note
from headrace.engine import MAX_BATCH
from headrace.engine.bus import Hint, Topic
from headrace.errors import (
    BatchFailed,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    StoreLost,
    TransitionRefused,
    Unavailable,
)
from headrace.runtime.retries import Pauses
from headrace.runtime.slot import SlotWait
from headrace.runtime.watch.watcher import MAX_POLLED_PER_SECOND, no_batch
from headrace.worker.execution.context import Context

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Batch", "BatchHandle"]

R = TypeVar("R")

_POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, _POLL_FACTOR = 0.02, 1.0, 1.6
"""Seconds between two polls when no hint comes."""


class BatchHandle:
    """A batch: filled within ``async with app.batch() as batch:``, stored when the block ends, then read here."""

    def __init__(
        self,
        app: App,
        id: UUID | None = None,
        *,
        on_complete: Draft[Any] | None = None,
        on_failure: Draft[Any] | None = None,
    ) -> None:
        """``id``: of a batch that is stored."""
        self._app, self._id = app, id
        self._calls = {"on_complete": on_complete, "on_failure": on_failure}
        self._drafts: list[Draft[Any]] = []
        self._handles: list[JobHandle[Any]] | None = None
        self.last: Batch | None = None
        """The record as it was last seen; None if it never was."""
        given = [draft for draft in self._calls.values() if draft is not None]
        check_drafts(app, given, "batch")
        for draft in given:
            _refuse(draft, "after", "connection", "not_before", "not_after", "dedup", "webhook")

    def __repr__(self) -> str:
        return f"<BatchHandle {self._id or f'of {len(self._drafts)} drafts'}>"

    # -- filling

    def add(self, draft: Draft[R]) -> Draft[R]:
        """Put a draft in; nothing is stored before the block ends;
        :raises ConfigError: the batch was stored already, or the draft is for a transaction or another App"""
        if self._id is not None:
            raise ConfigError("a batch that was stored takes no more drafts: make another one")
        check_drafts(self._app, [draft], "batch.add")
        _refuse(draft, "connection")
        self._drafts.append(draft)
        return draft

    def add_many(self, drafts: Iterable[Draft[Any]]) -> None:
        """Put several drafts in."""
        for draft in drafts:
            self.add(draft)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.submit()

    async def submit(self) -> None:
        """Store the batch: what the end of the block does. May be repeated after an error.

        Up to 1,000 jobs are stored in one atomic write. More are stored in chunks: the batch is open until the last,
        and does not end before.

        :raises TransitionRefused: it was cancelled meanwhile; what was stored before that is cancelled with it
        """
        drafts = list({draft.id: draft for draft in self._drafts}.values())
        if self._app._submit_middlewares:
            self._handles = await through(self._app, drafts, self._store_passed)
        else:
            await self._store(drafts)

    async def _store_passed(self, drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
        for draft in drafts:
            _refuse(draft, "connection")
        return await self._store(drafts)

    async def _store(self, given: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
        session, now = self._app.session, await self._app.session.writer.now()
        drafts = arranged(given)
        parentage = child_of_handler(self._app)
        id = self._id = self._id or self._new_id(None if parentage is None else parentage.parent)
        trace = _trace_of(drafts) or (None if parentage is None else parentage.trace)
        customer = None if parentage is None else parentage.customer
        calls = {
            name: None if draft is None else _call(draft, id, name, trace, customer)
            for name, draft in self._calls.items()
        }
        complete, failure = calls["on_complete"], calls["on_failure"]
        jobs = await wished(session, drafts, jobs_of(drafts, now, parentage, id))
        record = Batch(
            id=id,
            created_at=now,
            touched_at=now,
            on_complete=complete,
            on_failure=failure,
            customer=customer_of(jobs),
        )
        answers = await session.writer.inserts.insert_batch(record, jobs)
        by_draft = {
            draft.id: answered(self._app, answer, draft._handler) for draft, answer in zip(drafts, answers, strict=True)
        }
        self._handles = [by_draft[draft.id] for draft in given]
        for draft, answer in zip(drafts, answers, strict=True):
            handle_of(draft, answer)  # raises Duplicate where the draft says so
        return self._handles

    def _new_id(self, parent: UUID | None) -> UUID:
        """In a handler that of the same batch in an earlier attempt: one of the same jobs, in whatever order."""
        ctx = Context._current_or_none()
        if parent is None or ctx is None or not all(one.options.get("derived_id", True) for one in self._drafts):
            return self._app.host.new_id()
        call = "batch:" + ",".join(sorted(str(draft.id) for draft in self._drafts))
        return child_id(parent, call, ctx._place(call))

    # -- reading

    @property
    def id(self) -> UUID:
        """The batch's id; :raises ConfigError: it was not stored yet"""
        if self._id is None:
            raise ConfigError("this batch is not stored yet: that is done when its block ends")
        return self._id

    @property
    def handles(self) -> list[JobHandle[Any]]:
        """Its jobs, in the order they were added; known where it was submitted;
        :raises ConfigError: it was submitted elsewhere"""
        if self._handles is None:
            raise ConfigError(f"the jobs of batch {self.id} are known where it was submitted; jobs() asks the store")
        return self._handles

    async def jobs(self) -> list[JobHandle[Any]]:
        """Its jobs, in the order they were submitted; read from the store where they are not known."""
        if self._handles is not None:
            return self._handles
        sealed = (await self.refresh()).sealed
        found = [job async for job in self._members()]
        handles: list[JobHandle[Any]] = [JobHandle(self._app, job.id, last=job) for job in reversed(found)]
        if sealed:  # else more may come
            self._handles = handles
        return handles

    async def _members(self, **wanted: Any) -> AsyncIterator[Job]:
        cursor, filter = None, Filter(batch=self.id, **wanted)
        while True:
            page = await self._app.session.engine.records.find(filter, self._app.host.clock.now(), MAX_BATCH, cursor)
            for job in page.items:
                yield job
            if (cursor := page.cursor) is None:
                return

    async def refresh(self) -> Batch:
        """The record now: its tally, whether it is sealed, when it ended;
        :raises JobNotFound: there is no such batch"""
        [found] = await self._app.session.engine.families.batches([self.id])
        if found is None:
            raise no_batch(self.id)
        self.last = found
        return found

    # -- waiting

    async def wait(self, *, timeout: Seconds | None = None) -> Batch:
        """Wait until it has ended: sealed, and all of its jobs ended;
        :raises ResultTimeout: it had not ended in time; its jobs go on"""
        limit = None if timeout is None else seconds(timeout, "timeout")
        ended = await self._app.session.batch_watcher.ended(self.id, limit)
        if ended is None:
            raise ResultTimeout(self.id, limit or 0.0, "batch")
        self.last = ended
        return ended

    async def watch(self) -> AsyncIterator[Batch]:
        """The record as it is, then whenever its counts changed, until it has ended."""
        async for batch in self._app.batches.watch(self.id):
            self.last = batch
            yield batch

    async def results(self, *, timeout: Seconds | None = None) -> list[Any]:
        """Wait for the end, and return what its jobs returned, in the order they were submitted.

        :raises BatchFailed: some did not complete: a group of a ``JobFailed`` or ``JobCancelled`` for each
        :raises ResultTimeout: it had not ended in time; its jobs go on
        :raises JobNotFound: some of its jobs were pruned
        """
        limit, begun = None if timeout is None else seconds(timeout, "timeout"), self._app.host.clock.monotonic()
        total = (await self.wait(timeout=limit)).tally.total
        handles, results, errors = await self.jobs(), list[Any](), list[JobFailed | JobCancelled]()
        if len(handles) < total:
            raise JobNotFound(self.id, f"of the {total} jobs of batch {self.id} {total - len(handles)} were pruned")
        await self._read(handles)
        for handle in handles:
            # One that held the key of a draft is waited for here: the batch has ended without it.
            left = None if limit is None else max(0.0, begun + limit - self._app.host.clock.monotonic())
            try:
                results.append(await handle.result(timeout=left))
            except (JobFailed, JobCancelled) as error:
                errors.append(error)
            except ResultTimeout:
                raise ResultTimeout(self.id, limit or 0.0, "batch") from None
        if errors:
            raise BatchFailed(f"{len(errors)} of the {len(handles)} jobs of batch {self.id} did not complete", errors)
        return results

    async def as_completed(self) -> AsyncIterator[JobHandle[Any]]:
        """Each of its jobs once, as they end, failed ones too: see ``handle.last``."""
        waiting = {handle.id: handle for handle in await self.jobs()}
        hinted, heard = set[UUID](), asyncio.Event()

        def hear(hint: Hint) -> None:
            if ours := {id for id in map(UUID, hint.names) if id in waiting}:
                hinted.update(ours)
                heard.set()

        pauses = Pauses(self._app.host, _POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, factor=_POLL_FACTOR)
        unlisten, every = self._app.session.engine.bus.listen(frozenset({Topic.ENDED}), hear), True
        try:
            async with SlotWait() as slot:
                while waiting:
                    polled = list(waiting.values()) if every else [waiting[id] for id in hinted if id in waiting]
                    hinted.clear()
                    try:
                        await self._read(polled)
                    except StoreLost:
                        raise
                    except Unavailable:
                        pass  # it comes back
                    for handle in polled:
                        if handle.last is not None and handle.last.ended:
                            del waiting[handle.id]
                            await slot.back()
                            yield handle
                    if every := not hinted:
                        # After a hint those it named are read; without one, all of them, as often as the pauses allow.
                        slot.yield_slot()
                        least = len(waiting) / MAX_POLLED_PER_SECOND
                        every = not await self._app.host.wait(heard, max(pauses.seconds, least))
                        heard.clear()
                        if every:
                            pauses.grow()
                        else:
                            pauses.reset()
        finally:
            unlisten()

    async def _read(self, handles: list[JobHandle[Any]]) -> None:
        """Read those that had not ended when they were last read."""
        live = [handle for handle in handles if handle.last is None or not handle.last.ended]
        for start in range(0, len(live), MAX_BATCH):
            part = live[start : start + MAX_BATCH]
            for handle, job in zip(
                part, await self._app.session.engine.jobs.get([one.id for one in part]), strict=True
            ):
                if job is None:
                    raise JobNotFound(handle.id)
                handle.last = job

    # -- actions

    async def cancel(self, *, by: str | None = None) -> int:
        """Cancel those of its jobs that have not ended; how many. It takes no more: a submitter that is still adding is
        refused; :raises JobNotFound: there is no such batch"""
        by = checked_note(by, "by")
        session = self._app.session
        record = await session.writer.cancel_batch(self.id, by)
        if record is None:
            raise no_batch(self.id)
        self.last = record
        # All were stopped, but for those that another session is stopping, or that could not be stopped at once.
        left = [job.id async for job in self._members(status=LIVE) if job.cancel_requested_at is None]

        async def cancel(id: UUID) -> None:
            with suppress(TransitionRefused, JobNotFound):  # it ended meanwhile
                await session.writer.decide(id, lambda job, now: actions.cancel(job, now, session.engine.rules, by=by))

        await asyncio.gather(*map(cancel, left))
        return record.tally.live


def _refuse(draft: Draft[Any], *names: str) -> None:
    for name in names:
        if draft.options.get(name):
            raise ConfigError(f"{name} has no place in a draft of a batch, which is submitted with it, or at its end")


def _trace_of(drafts: Sequence[Draft[Any]]) -> dict[str, str] | None:
    """The trace that all of them were given, if it is the same: what follows their end is part of it."""
    traces = [draft.options.get("trace") for draft in drafts]
    return traces[0] if traces and all(trace == traces[0] for trace in traces) else None


def _call(
    draft: Draft[Any], batch: UUID, name: str, trace: dict[str, str] | None, customer: str | None
) -> BatchCallback:
    """``customer``: that of the handler which makes the batch; what follows is the customer's, too."""
    spec = draft._spec(draft._app.host.clock.now())
    if "customer" not in draft.options:
        spec = replace(spec, customer=customer)
    spec = replace(spec, metadata={**spec.metadata, "batch": str(batch)}, trace=spec.trace or trace)
    delay: float = draft.options.get("delay") or 0.0
    return BatchCallback(id=child_id(batch, name, 0), spec=spec, payload_text=draft.payload_text, delay=delay)
