"""A job as its submitter holds it: read, wait, do actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast
from uuid import UUID

import msgspec

from headrace.client.options import JobOptions
from headrace.core.attempt import ErrorInfo
from headrace.core.entry import LogLine
from headrace.core.explain.explanation import Explanation
from headrace.core.job import Job
from headrace.core.lifecycle.actions import (
    Action,
    CancelAction,
    DiscardAction,
    MoveAction,
    PostponeAction,
    ReprioritiseAction,
    ResolveAction,
    RetryAction,
    RunNowAction,
)
from headrace.core.priority import PriorityBand
from headrace.core.status import Status
from headrace.core.times import Seconds, seconds
from headrace.engine import Duplicated, Inserted
from headrace.errors import Duplicate, JobCancelled, JobFailed, JobNotFound, NotCommitted, ResultTimeout
from headrace.runtime.watch.stream import Stream, StreamItem

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.draft import Draft
    from headrace.worker.handler import Handler

__all__ = ["JobHandle", "StreamHandle", "answered", "handle_of"]


R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class JobHandle(Generic[R_co]):
    """One job; ``R_co`` is what its function returns."""

    __slots__ = ("_app", "_handler", "_uncommitted", "duplicate", "id", "last", "replaced")

    def __init__(
        self,
        app: App,
        id: UUID,
        *,
        last: Job | None = None,
        duplicate: bool = False,
        replaced: bool = False,
        handler: Handler | None = None,
        uncommitted: bool = False,
    ) -> None:
        """``uncommitted``: it was submitted within a transaction, of which nothing has been seen yet."""
        self._app, self._handler, self._uncommitted = app, handler, uncommitted
        self.id = id
        """The job's id."""
        self.last = last
        """The record as it was last seen; None if it never was."""
        self.duplicate = duplicate
        """Whether another job has the same dedup key: this is that job."""
        self.replaced = replaced
        """Whether that job was changed by the submit (``on_duplicate="replace"``): it has the new payload."""

    def __repr__(self) -> str:
        seen = f" {self.last.task} ({self.last.status})" if self.last is not None else ""
        return f"<JobHandle {self.id}{seen}>"

    @property
    def task(self) -> str | None:
        """The task's name, as far as it is known here."""
        if self.last is not None:
            return self.last.task
        return None if self._handler is None else self._handler.name

    @property
    def status(self) -> Status | None:
        """The status as it was last seen."""
        return None if self.last is None else self.last.status

    async def refresh(self) -> Job:
        """The record as it is now.

        :raises JobNotFound:
        :raises NotCommitted: it was submitted within a transaction that is not committed
        """
        with self._in_store():
            self.last = await self._app.jobs.get(self.id)
        return self.last

    @contextmanager
    def _in_store(self) -> Iterator[None]:
        """Read the store; a job it does not know may be one that is not committed yet."""
        try:
            yield
        except JobNotFound:
            if self._uncommitted:
                raise NotCommitted(self.id) from None
            raise
        self._uncommitted = False

    async def result(self, *, timeout: Seconds | None = None) -> R_co:
        """Wait for the end and return what the function returned, in the type it promised.

        :raises JobFailed: it ended ``failed``
        :raises JobCancelled: it ended ``cancelled``
        :raises ResultTimeout: it had not ended in time; the job goes on
        :raises NotCommitted: it was submitted within a transaction that is not committed
        """
        job = await self.ended(timeout=timeout)
        if job is None:
            raise ResultTimeout(self.id, seconds(timeout or 0.0, "timeout"))
        if job.status is Status.FAILED:
            raise JobFailed(job, job.error)
        if job.status is Status.CANCELLED:
            raise JobCancelled(job)
        return cast("R_co", self._decoded(job))

    async def ended(self, *, timeout: Seconds | None = None) -> Job | None:
        """Wait for the end and return the record, however it ended; None: it had not ended in time, and goes on;
        :raises JobNotFound:"""
        if self.last is not None and self.last.ended:
            return self.last
        limit = timeout if timeout is None else seconds(timeout, "timeout")
        with self._in_store():
            job = await self._app.session.watcher.ended(self.id, limit)
        self.last = job or self.last
        return job

    def _decoded(self, job: Job) -> Any:
        handler = self._handler or self._app._handlers.get(job.task)
        if handler is None or job.result_text is None:
            return job.result
        return handler.decode_result(job.result_text)

    async def watch(self) -> AsyncIterator[Job]:
        """The record as it is, then whenever it changed, until the job ended."""
        following = self._app.jobs.watch(self.id)
        while True:
            with self._in_store():
                job = await anext(following, None)
            if job is None:
                return
            self.last = job
            yield job

    def stream(self, start: int | StreamItem[Any] = 0) -> Stream[Any]:
        """The items of its stream, from the first, and those still to come; the job goes on whether or not they are
        read. ``start``: how many to leave out, or the last ``StreamItem`` read: then a new attempt since is noticed.
        """
        return Stream(lambda: self._app.session.writer.entry_reader, self.id, self._decode_item, start)

    def _decode_item(self, text: str) -> Any:
        handler = self._handler or (None if self.last is None else self._app._handlers.get(self.last.task))
        return msgspec.json.decode(text) if handler is None else handler.decode_item(text)

    def logs(self, *, follow: bool = False, attempt: int | None = None) -> AsyncIterator[LogLine]:
        """The log lines of its handler, oldest first; ``follow``: also new ones, until the job has ended."""
        return self._app.jobs.logs(self.id, follow=follow, attempt=attempt)

    async def cancel(self, *, by: str | None = None) -> Job:
        """End it, or request that its worker stops it; a second time changes nothing;
        :raises TransitionRefused: it ended already"""
        return await self._act(CancelAction(), by)

    async def retry(self, *, delay: Seconds = 0.0, by: str | None = None) -> Job:
        """Retry a failed or cancelled job under its own id, with a new budget; ``delay``: not before so long from now.

        :raises TransitionRefused: it did not end, or was completed or discarded
        :raises Duplicate: another live job holds its dedup key now
        """
        return await self._act(RetryAction(delay=cast(Any, delay)), by)

    async def rerun(
        self, *, payload: Mapping[str, Any] | None = None, by: str | None = None, **options: Unpack[JobOptions]
    ) -> JobHandle[R_co]:
        """Do the same work again as a new job, with the same payload and options, or with others.

        ``payload``: all arguments by name, in place of the old ones. :raises TransitionRefused: it has not ended

        :raises ConfigError, InvalidPayload: an option or the payload cannot be used
        """
        from headrace.client.api.actions import AnyRerun, rerun  # which make drafts, that make handles

        with self._in_store():
            answer = await rerun(self._app, self.id, AnyRerun(payload=cast(Any, payload), given=options), by)
        return answered(self._app, answer, self._handler)

    async def discard(self, *, by: str | None = None) -> Job:
        """End a completed or failed job as ``cancelled (discarded)``; :raises TransitionRefused: it is neither"""
        return await self._act(DiscardAction(), by)

    async def resolve(self, *, result: Any = None, error: str | ErrorInfo | None = None, by: str | None = None) -> Job:
        """Set its outcome by hand: ``error`` fails it, else ``result`` completes it.

        :raises TransitionRefused: a worker holds it, or it ended
        :raises InvalidResult: its task returns no such thing
        """
        return await self._act(ResolveAction(result=result, error=cast(Any, error)), by)

    async def run_now(self, *, by: str | None = None) -> Job:
        """Make it ``queued`` at once, if it is scheduled or waits for its next attempt;
        :raises TransitionRefused: it waits for no time"""
        return await self._act(RunNowAction(), by)

    async def postpone(self, until: datetime | Seconds, *, by: str | None = None) -> Job:
        """Let it wait for another time: a moment, or so long from now;
        :raises TransitionRefused: a worker holds it, it waits for other jobs, or it ended"""
        return await self._act(PostponeAction(until=cast(Any, until)), by)

    async def move(self, queue: str, *, by: str | None = None) -> Job:
        """Move it to another queue, with its arrival: ``job.queue``; ``job.asked_queue`` is the first one;
        :raises TransitionRefused: a worker holds it, or it ended"""
        return await self._act(MoveAction(queue=queue), by)

    async def reprioritise(self, priority: int | PriorityBand, *, by: str | None = None) -> Job:
        """Give it another priority, 0 to 100 or a name: ``job.priority``; ``job.asked_priority`` is the first one;
        :raises TransitionRefused: a worker holds it, or it ended"""
        return await self._act(ReprioritiseAction(priority=priority), by)

    async def _act(self, action: Action, by: str | None) -> Job:
        with self._in_store():
            self.last = await self._app.jobs.act(self.id, action, by=by)
        return self.last

    async def explain(self) -> Explanation:
        """Why the job is in its status, in a few lines; for a queued job, its position and its expected start."""
        with self._in_store():
            return await self._app.jobs.explain(self.id)


class StreamHandle(JobHandle[int], Generic[T_co]):
    """A job that streams; ``T_co`` is what its items are, its result how many."""

    __slots__ = ()

    def stream(self, start: int | StreamItem[Any] = 0) -> Stream[T_co]:
        """The items of its stream; see ``JobHandle.stream``."""
        return super().stream(start)


def handle_of(draft: Draft[R_co], answer: Inserted | Duplicated, *, uncommitted: bool = False) -> JobHandle[R_co]:
    """The job as its submitter holds it; :raises Duplicate: if the draft says so A request that is repeated is no
    duplicate in this sense: it gets the same reply as the first time."""
    job = answer.job
    if not isinstance(answer, Duplicated):
        return JobHandle(draft._app, job.id, last=job, handler=draft._handler, uncommitted=uncommitted)
    if draft.options.get("on_duplicate") == "raise" and not _is_repeated(draft, job):
        raise Duplicate(job)
    return answered(draft._app, answer, draft._handler, uncommitted=uncommitted)


def answered(
    app: App, answer: Inserted | Duplicated, handler: Handler | None, *, uncommitted: bool = False
) -> JobHandle[Any]:
    """The handle of the job that a submit stored or found."""
    duplicate, replaced = isinstance(answer, Duplicated), isinstance(answer, Duplicated) and answer.replaced
    known: dict[str, Any] = {"last": answer.job, "handler": handler, "uncommitted": uncommitted}
    return JobHandle(app, answer.job.id, duplicate=duplicate, replaced=replaced, **known)


def _is_repeated(draft: Draft[Any], job: Job) -> bool:
    """Whether the job is that of an earlier submit of the same request."""
    key = draft.options.get("request_key")
    customer = draft.options.get("customer", job.spec.customer)  # left out, it is that of the handler that submits
    return key is not None and (key, customer) == (job.spec.request_key, job.spec.customer)
