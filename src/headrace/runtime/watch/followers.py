"""The followers of jobs: however many read one, it is followed once.

Nothing is queued for a reader. It reads what there is when it has taken what came before: the job as it is by then, and
the entries behind those that it has. So a slow reader costs as much as a quick one, blocks no other, and misses what a
job was in between, but no line, no item, and not the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Self
from uuid import UUID

from headrace.core.attempt import History
from headrace.core.entry import Cursor, Entry, Kind
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.core.updates import Place, ResumeToken, Update, happened_since
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import HeadraceError, NotOpen, StoreLost, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.watch.positions import Places, Placing
from headrace.runtime.watch.watcher import Watcher

__all__ = ["Followed", "Followers", "Reader"]

PAGE_ENTRIES, _MAX_PAGE_BYTES = 200, 1024 * 1024
"""Entries that are read at once, and of the next ones so many as have about so many bytes, if they are like these."""
FIRST_ITEMS = 10
"""Items of a stream that are read first: each may be as large as a result."""
_MAX_CACHED_PAGES = 8
"""Maximum number of pages of a job that are kept for readers at the same position."""
_POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, _POLL_FACTOR = 1.0, 10.0, 1.6
"""Seconds between two polls for entries of a running job without a hint."""
_STORE_RETRY_SECONDS = 1.0
"""Seconds between two tries while the store is away."""

_log = logging.getLogger("headrace.audience")


class Followers:
    """The followed jobs and their readers, in one session."""

    def __init__(self, engine: Engine, host: Host, watcher: Watcher, placing: Placing) -> None:
        self.engine, self.host, self.watcher = engine, host, watcher
        self.places = Places(host, placing, self._standing)
        self._followed: dict[UUID, Followed] = {}
        self._unlisten: Callable[[], None] | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many jobs are followed."""
        return len(self._followed)

    def follow(
        self,
        job: Job,
        since: ResumeToken | None = None,
        *,
        entries: bool = True,
        wake: Callable[[], None] | None = None,
    ) -> Reader:
        """Follow a job, which the store has just returned so."""
        if self._closed:
            raise NotOpen("the App is closed")
        followed = self._followed.get(job.id)
        if followed is None:
            followed = self._followed[job.id] = Followed(self, job)
        followed.see(job)
        if entries and self._unlisten is None:
            self._unlisten = self.engine.bus.listen(frozenset({Topic.ENTRIES}), self._hear)
        return Reader(followed, since, entries=entries, wake=wake)

    def leave(self, followed: Followed) -> None:
        """Follow a job no longer that has no reader."""
        followed.stop()
        if self._followed.get(followed.id) is followed:
            del self._followed[followed.id]
        if not self._followed and self._unlisten is not None:
            unlisten, self._unlisten = self._unlisten, None
            unlisten()

    async def close(self) -> None:
        """End all readers with an error."""
        self._closed = True
        self.places.stop()
        for followed in list(self._followed.values()):
            followed.fail(NotOpen("the App was closed while a job was followed"))
            self.leave(followed)

    def _standing(self) -> Iterable[Followed]:
        """The queued jobs."""
        return [one for one in self._followed.values() if one.job.status is Status.QUEUED]

    def _hear(self, hint: Hint) -> None:
        if not hint.names:
            for followed in self._followed.values():
                followed.renew()
        for name in hint.names:
            if (one := self._followed.get(UUID(name))) is not None:
                one.renew()


class Followed:
    """One job that is followed, for all its readers."""

    def __init__(self, followers: Followers, job: Job) -> None:
        self.followers, self.id, self.job = followers, job.id, job
        self.place: Place | None = None
        self.error: Exception | None = None
        """Why it cannot be followed any more."""
        self.version = 0
        """Grows whenever there may be new entries."""
        self.readers: set[Reader] = set()
        self._pages: dict[tuple[Kind, Cursor, int], asyncio.Future[list[Entry]]] = {}
        self._task = self._begin()
        if job.status is Status.QUEUED:
            followers.places.expect(job.queue)

    def _begin(self) -> asyncio.Task[None]:
        # In a context of its own: it outlives the reader that happens to be the first.
        return asyncio.create_task(self._run(), name="headrace-followed", context=Context())

    async def _run(self) -> None:
        while not self.job.ended:
            try:
                async for job in self.followers.watcher.follow(self.id):
                    self.see(job)
            except HeadraceError as error:
                if not isinstance(error, Unavailable) or isinstance(error, StoreLost):
                    return self.fail(error)
                _log.debug("job %s cannot be followed for now: %s", self.id, error)
                await self.followers.host.sleep(_STORE_RETRY_SECONDS)
            except Exception as error:
                _log.exception("job %s cannot be followed", self.id)
                return self.fail(error)
        return None

    def stop(self) -> None:
        """Follow it no longer."""
        self._task.cancel()

    def see(self, job: Job) -> None:
        """Note how it is now."""
        if job == self.job or job.rev < self.job.rev:
            return
        self.job = job
        if self._task.done() and not job.ended and self.error is None:
            self._task = self._begin()  # it had ended, and was retried
        if job.status is Status.QUEUED:
            self.followers.places.expect(job.queue)
        else:
            self.place = None
        if job.ended:
            self.renew()
        else:
            self._tell()

    def stand(self, place: Place) -> bool:
        """Note its position; whether that is a change, which another estimate alone is not."""
        if self.job.status is not Status.QUEUED or (self.place is not None and place.like(self.place)):
            return False
        self.place = place
        self._tell()
        return True

    def renew(self) -> None:
        """Wake the readers, since there may be new entries."""
        self.version += 1
        self._pages.clear()
        self._tell()

    def fail(self, error: Exception) -> None:
        """End its readers with an error."""
        self.error = error
        self._tell()

    def _tell(self) -> None:
        for reader in self.readers:
            reader.wake()

    async def entries(self, log: Cursor, item: Cursor, items: int) -> tuple[list[Entry], list[Entry]]:
        """Lines and items behind these cursors, read at the same time; readers at the same position share that."""
        pages = self._page(Kind.LOG, log, PAGE_ENTRIES), self._page(Kind.ITEM, item, items)
        try:
            return await asyncio.shield(pages[0]), await asyncio.shield(pages[1])
        except HeadraceError:
            self._pages.clear()
            raise

    def _page(self, kind: Kind, after: Cursor, most: int) -> asyncio.Future[list[Entry]]:
        page = self._pages.get((kind, after, most))
        if page is None:
            if len(self._pages) >= _MAX_CACHED_PAGES:
                self._pages.clear()
            page = asyncio.ensure_future(self.followers.engine.entries.tail(self.id, kind, after, most))
            page.add_done_callback(_heard)
            self._pages[kind, after, most] = page
        return page


def _heard(page: asyncio.Future[list[Entry]]) -> None:
    """Mark the error as seen: the reader may have gone."""
    if not page.cancelled():
        page.exception()


class Reader:
    """A reader of a job: ``async with reader: async for update in reader``, until the job has ended."""

    def __init__(
        self, followed: Followed, since: ResumeToken | None, *, entries: bool, wake: Callable[[], None] | None
    ) -> None:
        """``wake`` is called whenever there may be an update, instead of waiting for it in ``next``."""
        self._followed, self._entries, self._woken = followed, entries, asyncio.Event()
        self.wake: Callable[[], None] = wake or self._woken.set
        self._since = since
        self._mark = since or ResumeToken(0, followed.job.created_at)
        self._told: Job | None = None
        self._place: Place | None = None
        self._most = FIRST_ITEMS
        self._read = -1
        """The version of the entries that it has all of."""
        self._over = False
        followed.readers.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        """The next update.

        :raises JobNotFound: the job is not there any more
        :raises NotOpen: the App was closed
        """
        if self._over:
            raise StopAsyncIteration
        while (update := await self.next(None)) is None:
            pass
        return update

    def close(self) -> None:
        """Read no longer."""
        followed = self._followed
        followed.readers.discard(self)
        if not followed.readers:
            followed.followers.leave(followed)

    @property
    def job(self) -> Job:
        """The job as it is, as far as is known."""
        return self._followed.job

    async def next(self, timeout: float | None) -> Update | None:
        """The next update, once there is one; None if that takes longer than the timeout."""
        host = self._followed.followers.host
        pauses = Pauses(host, _POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, factor=_POLL_FACTOR)
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while True:
            self._woken.clear()
            try:
                if (update := await self.take()) is not None:
                    return update
            except Unavailable as error:
                if isinstance(error, StoreLost):
                    raise
                _log.debug("job %s cannot be read for now: %s", self._followed.id, error)
                await host.sleep(_STORE_RETRY_SECONDS)
                continue
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                return None
            look = self._entries and self._followed.job.held
            seconds = left if not look else pauses.seconds if left is None else min(pauses.seconds, left)
            if not await host.wait(self._woken, seconds) and look and seconds == pauses.seconds:
                pauses.grow()
                self._followed.renew()  # a hint may have been lost

    async def take(self) -> Update | None:
        """The update there is; None: there is none; :raises JobNotFound: the job is not there any more"""
        followed = self._followed
        if self._over:
            return None
        if followed.error is not None:
            raise followed.error
        job, place, version = followed.job, followed.place, followed.version
        if self._told is None:
            return await self._first(job)
        logs, items, whole = list[Entry](), list[Entry](), True
        before = self._told
        if self._entries and version != self._read and job.attempt > 0:  # before, there are none
            # After the read of the job: what was added before the end is there when the end is.
            most = self._most
            logs, items = await followed.entries(self._mark.log, self._mark.item, most)
            whole = len(logs) < PAGE_ENTRIES and len(items) < most
            if items:
                self._most = max(
                    1, min(PAGE_ENTRIES, _MAX_PAGE_BYTES * len(items) // (1 + sum(len(one.data) for one in items)))
                )
            if whole:
                self._read = version
        if job.ended and not whole:
            job = before  # its end is reported behind all of its entries
        moved = place if place != self._place else None
        over = whole and job.ended
        if not (logs or items or moved or over) and job == before:
            return None
        history = History()
        if _may_hide_attempts(before, job):
            history = await self._history(job, self._mark)
        self._told, self._place, self._over = job, place, over
        self._mark = ResumeToken(
            job.rev,
            job.updated_at,
            logs[-1].cursor if logs else self._mark.log,
            items[-1].cursor if items else self._mark.item,
        )
        return Update(
            job=job,
            before=before,
            mark=self._mark,
            history=history,
            logs=tuple(logs),
            items=tuple(items),
            place=moved,
            over=over,
        )

    async def _first(self, job: Job) -> Update:
        """How the job is, and what happened to it that the reader does not know."""
        since, history = self._since, History()
        if job.rev > 1 and (since is None or since.rev != job.rev):
            history = await self._history(job, since)
        self._told = job
        self._mark = ResumeToken(job.rev, job.updated_at, self._mark.log, self._mark.item)
        self.wake()  # the entries come next
        return Update(job=job, before=None, mark=self._mark, history=history)

    async def _history(self, job: Job, since: ResumeToken | None) -> History:
        history = (await self._followed.followers.engine.records.history(job.id)).timed()
        return history if since is None else happened_since(history, since)


def _may_hide_attempts(before: Job, job: Job) -> bool:
    """Whether attempts have ended in between, beside the one that ended the job."""
    return _over(job) - _over(before) > (1 if job.ended else 0)


def _over(job: Job) -> int:
    """How many attempts are over."""
    return job.attempt - 1 if job.status is Status.RUNNING else job.attempt
