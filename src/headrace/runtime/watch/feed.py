"""A feed: the changes of many jobs as they happen.

Hints name the jobs that changed. The feed reads these when its reader wants more, so that a slow reader blocks no
other: what changes meanwhile is one id in a bounded list, and is read as it is by then. Hints may be lost, so a feed
also polls the newest jobs and those it knows to be live.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Self
from uuid import UUID

from msgspec.structs import replace

from headrace.core.job import Job
from headrace.core.query import Filter, as_seen, matches
from headrace.core.status import LIVE
from headrace.core.updates import Allowance, Changed, Memory
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import NotOpen, StoreLost, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.reads import readable
from headrace.runtime.writes.hints import GAP_SECONDS, MAX_HINT_JOBS

__all__ = ["Feed"]

MAX_BACKLOG_JOBS = 2000
"""Maximum number of jobs that wait to be read; of more, only the number is reported."""
MAX_POLLED_JOBS = 1000
"""Maximum number of live jobs that are polled without a hint."""
POLL_SECONDS = 5.0
"""Seconds between two polls of them."""
_OMISSION_POLL_SECONDS = 1.0
"""Seconds until the next poll when changes were left out."""
_BURST_JOBS, _JOBS_PER_SECOND = 2000, 1000
"""Maximum number of jobs read at once after a quiet time, and then in a second."""
_FLOOD_SECONDS, _MAX_FLOOD_JOBS, _FLOOD_GAP_SECONDS = 1.0, 50, 0.2
"""For how many seconds after changes were left out there are too many to read them all, how many are read at a time
then, and how often: store and processors are for the work that causes them, and a sample shows it as well."""
_FLOOD_PAUSE_RATIO, _FLOOD_MAX_SECONDS = 50, 1.0
"""How many times as long as the last read took it waits then, and maximum seconds: a busy store gets fewer reads."""
_FIRST_PAGE_JOBS = 20
"""How many of the newest jobs are read first."""
_NEWEST_POLL_SECONDS = 0.1
"""Seconds between two polls of the newest jobs."""
_MAX_LATE_NUMBERS = 200
"""Maximum order numbers by which a job is behind the newest and still new: commits need not be in order."""
_OMISSION_NOTICE_SECONDS = 1.0
"""Seconds after which it reports that changes were left out though there are no jobs to report it with."""
_STORE_RETRY_SECONDS = 1.0
"""Seconds between two tries while the store is away."""

_log = logging.getLogger("headrace.feed")


class Feed:
    """The changes of all jobs that match a filter, from when it was opened: ``async for changed in feed``.

    ``async with`` opens and closes it; without that, the first step opens it and ``aclose`` ends it. It never ends by
    itself, but once it is garbage it listens no more. It may miss what a job was in between, never how a job that it
    knows ended; ``Changed.dropped`` is the number of changes it did not read.
    """

    _engine: Engine
    _host: Host

    def __init__(self, attach: Callable[[Feed], tuple[Engine, Host]], filter: Filter) -> None:
        """``attach``: called when it is opened, on the loop that reads it; returns what it reads with."""
        self._attach, self._filter = attach, filter
        self._any_status = replace(filter, status=frozenset())
        self._hinted: dict[str, None] = {}
        """Jobs to read, in the order of their first hint."""
        self._recheck: dict[UUID, None] = {}
        """Jobs to read if there is nothing better to do, because a hint may have been lost."""
        self._dropped = 0
        self._memory = Memory(MAX_POLLED_JOBS)
        self._newest = 0
        """The highest order number seen among the newest jobs."""
        self._may_be_new = False
        self._allowance = Allowance(_BURST_JOBS, _JOBS_PER_SECOND)
        self._read_at = self._newest_at = self._poll_at = self._gave_at = 0.0
        """When jobs, or the newest, may be read next, when all known ones are polled, when it gave something."""
        self._flood_until = 0.0
        self._wake = asyncio.Event()
        self._unlisten: Callable[[], None] | None = None
        self._closed = self._lost = False

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        await self._open()
        return self

    async def __aexit__(self, *error: object) -> None:
        """End it."""
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changed:
        """The next changes, once there are some.

        :raises NotOpen: the App was closed
        :raises StoreLost: the store is not coming back
        """
        while not self._closed:
            if self._unlisten is None:
                await self._open()
            self._wake.clear()
            jobs = await self._look()
            now = self._time()
            if jobs or (self._dropped and now >= self._gave_at + _OMISSION_NOTICE_SECONDS):
                dropped, self._dropped, self._gave_at = self._dropped, 0, now
                return Changed(tuple(jobs), dropped)
            await self._rest(now)
        if self._lost:
            raise NotOpen("the App was closed while a feed was read")
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it: listen no more, and release a waiting reader."""
        self._end()

    def lose(self) -> None:
        """End it because the App is closed."""
        self._lost = not self._closed
        self._end()

    def _end(self) -> None:
        self._closed = True
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()
        self._hinted.clear()
        self._wake.set()

    async def _open(self) -> None:
        """Listen, and learn what is there: the end of a job that is live now must not be missed."""
        if self._closed or self._unlisten is not None:
            return
        self._engine, self._host = self._attach(self)
        self._unlisten = self._listen()
        try:
            now = self._host.clock.now()
            newest = await self._engine.records.find(Filter(), now, 1)
            live = await self._engine.records.find(replace(self._filter, status=LIVE), now, MAX_POLLED_JOBS)
        except BaseException:
            self._unlisten()
            self._unlisten = None
            raise
        self._newest = max((job.seq for job in newest.items), default=0)
        for job in reversed(live.items):
            self._memory.note(job)
        self._poll_at = self._time() + POLL_SECONDS

    def _time(self) -> float:
        # As sleeps take it: where a test moves the clock by hand, a feed goes on.
        return asyncio.get_running_loop().time()

    # -- hearing

    def _listen(self) -> Callable[[], None]:
        """Listen until the returned function is called, or until the feed is garbage: a loop may be left by break."""
        itself = weakref.ref(self)

        def hear(hint: Hint) -> None:
            if (feed := itself()) is not None:
                feed._hear(hint)

        unlisten = self._engine.bus.listen(frozenset({Topic.CHANGED, Topic.READY}), hear)
        left = weakref.finalize(self, _soon, asyncio.get_running_loop(), unlisten)
        left.atexit = False

        def end() -> None:
            left.detach()
            unlisten()

        return end

    def _hear(self, hint: Hint) -> None:
        if hint.topic is Topic.READY:
            self._may_be_new = True
        elif hint.names or hint.dropped:
            if dropped := hint.dropped:
                self._flood_until = self._time() + _FLOOD_SECONDS
            for name in hint.names:
                if len(self._hinted) < MAX_BACKLOG_JOBS:
                    self._hinted[name] = None
                elif name not in self._hinted:
                    dropped += 1
            if dropped:
                self._dropped += dropped
                self._poll_at = min(self._poll_at, self._time() + _OMISSION_POLL_SECONDS)
        else:  # it may be anything
            self._poll_at = 0.0
        self._wake.set()

    # -- polling

    async def _look(self) -> list[Job]:
        """Read what may be read now; those that changed and match."""
        now = self._time()
        if now < self._read_at:
            return []
        if now >= self._poll_at:
            self._poll_at = now + POLL_SECONDS * (0.75 + self._host.dice.chance() / 2)
            self._may_be_new = True
            self._recheck = dict.fromkeys(self._memory.live)
        for id in self._memory.fallen_due(self._host.clock.now()):
            self._hinted.setdefault(str(id))
        new = self._may_be_new and now >= self._newest_at
        flood = now < self._flood_until
        most, gap = (_MAX_FLOOD_JOBS, _FLOOD_GAP_SECONDS) if flood else (MAX_HINT_JOBS, GAP_SECONDS)
        if not (new or self._hinted or self._recheck) or not (room := min(most, self._allowance.left(now))):
            return []
        try:
            return await (self._find_new(room) if new else self._read(room, newest=flood))
        except StoreLost:
            raise
        except Unavailable as error:
            _log.debug("a feed cannot read for now: %s", error)
            self._read_at = self._time() + _STORE_RETRY_SECONDS
            return []
        finally:
            if flood:
                gap = max(gap, min(_FLOOD_PAUSE_RATIO * (self._time() - now), _FLOOD_MAX_SECONDS))
            self._read_at = max(self._read_at, now + gap)

    async def _find_new(self, room: int) -> list[Job]:
        """Of the newest jobs, those not known yet."""
        self._may_be_new, self._newest_at = False, self._time() + _NEWEST_POLL_SECONDS
        before, found, cursor = self._newest, list[Job](), None
        while True:
            limit = min(_FIRST_PAGE_JOBS if cursor is None else MAX_HINT_JOBS, room - len(found))
            try:
                page = await self._engine.records.find(Filter(), self._host.clock.now(), limit, cursor)
            except Unavailable:
                self._may_be_new = True
                raise
            self._allowance.spend(len(page.items))
            found += page.items
            cursor = page.cursor
            if cursor is None or found[-1].seq <= before:
                break
            if len(found) >= room:
                self._dropped += found[-1].seq - before - 1
                break
        if found:
            self._newest = max(before, found[0].seq)
        new = (job for job in reversed(found) if job.id not in self._memory)
        return self._changed(
            job for job in new if job.seq > before or (job.seq > before - _MAX_LATE_NUMBERS and job.rev == 1)
        )

    async def _read(self, room: int, *, newest: bool) -> list[Job]:
        """Of the hinted jobs, the newest or the oldest, and of those known to be live, those that changed."""
        names = list(islice(reversed(self._hinted) if newest else self._hinted, room))
        for name in names:
            del self._hinted[name]
        ids = [UUID(name) for name in names]
        for id in list(self._recheck)[: room - len(ids)]:
            del self._recheck[id]
            ids.append(id)
        self._allowance.spend(len(ids))
        try:
            found = await readable(self._engine, ids)
        except Unavailable:
            self._hinted = dict.fromkeys(map(str, ids)) | self._hinted
            raise
        for id, job in zip(ids, found, strict=True):
            if job is None:
                self._memory.forget(id)
        return self._changed(job for job in found if job is not None)

    def _changed(self, jobs: Iterable[Job]) -> list[Job]:
        """Of these jobs, those that match and are not as they were given last."""
        now, changed = self._host.clock.now(), list[Job]()
        for job in jobs:
            seen = as_seen(job, now)
            if not matches(seen, self._any_status, now):
                self._memory.forget(seen.id)
            elif self._memory.note(seen) and matches(seen, self._filter, now):
                changed.append(seen)
        return changed

    async def _rest(self, now: float) -> None:
        """Wait until there may be something to read."""
        if now < self._read_at:
            return await self._host.sleep(self._read_at - now)
        if self._hinted or self._recheck:  # but nothing may be read just now
            return await self._host.sleep(GAP_SECONDS)
        until = self._poll_at
        if self._may_be_new:
            until = min(until, self._newest_at)
        if self._dropped:
            until = min(until, self._gave_at + _OMISSION_NOTICE_SECONDS)
        seconds = max(0.0, until - now)
        if (due := self._memory.next_due) is not None:
            seconds = min(seconds, max(0.0, (due - self._host.clock.now()).total_seconds()))
        await self._host.wait(self._wake, max(seconds, 0.001))
        return None


def _soon(loop: asyncio.AbstractEventLoop, unlisten: Callable[[], None]) -> None:
    """Call it on the loop: garbage is collected on any thread, and in the middle of anything."""
    with suppress(RuntimeError):  # the loop is closed, and nothing listens on it
        loop.call_soon_threadsafe(unlisten)
