"""Waiting for jobs and batches: however many wait, one subscription and one read for all of them."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from datetime import timedelta
from heapq import heappop, heappush
from math import ceil
from typing import Generic, TypeVar
from uuid import UUID

from headrace.core.batch import Batch, is_over
from headrace.core.job import Job
from headrace.core.query import as_seen
from headrace.core.status import DEFERRED
from headrace.engine import MAX_BATCH, Engine, FindsChanged
from headrace.engine.bus import Hint, Topic
from headrace.errors import HeadraceError, JobNotFound, NotOpen, StoreLost, Unavailable, Unreadable
from headrace.runtime.host import Host
from headrace.runtime.reads import readable
from headrace.runtime.slot import SlotWait

__all__ = ["MAX_POLLED_PER_SECOND", "BatchWatcher", "Watcher", "no_batch"]

T = TypeVar("T")

POLL_FIRST_SECONDS = 0.02
POLL_MAX_SECONDS = 1.0
POLL_FACTOR = 1.6
HINTED_FIRST_SECONDS, HINTED_MAX_SECONDS = 0.5, 5.0
"""The same for a job that is followed, while hints of its changes come: then a read finds what a hint lost."""
FOLLOWED_BATCH_SECONDS = 0.25
"""Seconds until a followed batch is first read again after a change."""
LINGER_SECONDS = 5.0
"""Seconds a subscription outlasts the last wait: many callers wait again at once."""
GATHER_SECONDS = 0.01
"""Seconds; reads that fall due so soon after one another are made at once."""
MIN_CHECKED_JOBS = 50
"""From so many jobs on, it reads first which have changed."""
MAX_POLLED_PER_SECOND = 10_000
"""Jobs or batches that are read without a hint: the more there are, the rarer the reads."""
MIN_REST_SECONDS, MAX_MISSED_PER_SECOND = 0.1, 1000
"""Seconds between two reads of all followed jobs while changes are left out of hints, and jobs a second in them."""
GATHER_PAUSE_RATIO = 0.25
"""And, after longer pauses, so soon as a part of the pause."""

_log = logging.getLogger("headrace.runtime.following")


class _Wait(Generic[T]):
    """One caller's wait for one job or batch."""

    __slots__ = ("error", "event", "found", "seen", "waiting")

    def __init__(self, seen: T | None) -> None:
        self.seen = seen
        """What the caller knows already; None: it waits for the end only."""
        self.event = asyncio.Event()
        self.waiting = SlotWait()
        self.found: T | None = None
        self.error: BaseException | None = None

    def settle(self, found: T | None, error: BaseException | None = None) -> None:
        self.found, self.error = found, error
        self.event.set()


class _Watched(Generic[T]):
    """A job or batch that callers wait for; however many do, they share its reads."""

    __slots__ = ("asked", "due", "id", "last", "pause", "waits")

    def __init__(self, id: UUID, pause: float, last: T | None) -> None:
        self.id, self.due, self.pause = id, 0.0, pause
        self.last = last
        """As it was read last."""
        self.asked = float("-inf")
        """When it was read last because of a hint."""
        self.waits: set[_Wait[T]] = set()

    def __lt__(self, other: _Watched[T]) -> bool:
        return self.due < other.due


class _Watching(ABC, Generic[T]):
    """Wakes callers of one session when something ends or changes: by hints, and by polling when none come."""

    topics: frozenset[Topic] = frozenset({Topic.ENDED})
    """The topics of the hints that report it."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self._watched: dict[UUID, _Watched[T]] = {}
        self._hinted: set[UUID] = set()
        """What to read at once."""
        self._polled: frozenset[UUID] = frozenset()
        """What is being read without a hint."""
        self._questions: list[_Watched[T]] = []
        """A heap by when they fall due; also of what has no wait any more, until then."""
        self._wake = asyncio.Event()
        # Time as this loop has waited it, so that a clock moved by hand neither stops nor hurries the reads.
        self._time = 0.0
        self._closed = False
        self._loop: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] | None = None
        """Ends the subscription, which lasts only while a caller waits: hints without a listener are not even made."""

    @abstractmethod
    async def _look(self, ids: Sequence[UUID]) -> Sequence[T | None]:
        """These jobs or batches as they are now; None for one that is not here."""

    @abstractmethod
    def _has_ended(self, found: T) -> bool:
        """Whether there is nothing more to wait for."""

    @abstractmethod
    def _missing(self, id: UUID) -> HeadraceError:
        """The error about one that is not here."""

    async def ended(self, id: UUID, timeout: float | None = None) -> T | None:
        """The job or batch once it has ended; None if that takes longer than the timeout. A timeout of 0 is one read;
        :raises JobNotFound: there is no such job or batch (any more)"""
        if timeout is not None and timeout <= 0:
            [found] = await self._look([id])
            if found is None:
                raise self._missing(id)
            return found if self._has_ended(found) else None
        return await self._wait(id, _Wait(None), timeout)

    async def close(self) -> None:
        """End every wait with an error, and listen no more."""
        self._closed = True
        self._leave()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._settle_all(NotOpen("the App was closed while something waited for a job"))

    # -- the one loop

    async def _wait(self, id: UUID, wait: _Wait[T], timeout: float | None) -> T | None:
        if self._closed:
            raise NotOpen("the App is closed")
        watched = self._watched.get(id)
        if watched is None:
            first = self._first(wait)
            watched = self._watched[id] = _Watched(id, first, wait.seen)
            self._ask_later(watched, first)
        watched.waits.add(wait)
        if wait.seen is None:
            self._hinted.add(id)  # it may have ended already
        if self._unlisten is None and self._wants_hints(wait):
            self._unlisten = self._engine.bus.listen(self.topics, self._hear)
        # A loop that has just seen its last wait go is done before its callback says so.
        if self._loop is None or self._loop.done():
            # In a context of its own: the loop outlives the handler that happens to be the first to wait.
            self._loop = asyncio.create_task(self._run(), name="headrace-watcher", context=Context())
            self._loop.add_done_callback(self._over)
        self._wake.set()
        async with wait.waiting:
            try:
                await self._host.wait(wait.event, timeout)
            finally:
                watched.waits.discard(wait)
                if not watched.waits and self._watched.get(id) is watched:
                    del self._watched[id]
        if wait.error is not None:
            raise wait.error
        return wait.found

    def _wants_hints(self, wait: _Wait[T]) -> bool:
        """Whether this wait is ended by hints about ``topics``."""
        return True

    def _leave(self) -> None:
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()

    def _leave_idle(self) -> None:
        if not self._watched:
            self._leave()

    def _over(self, loop: asyncio.Task[None]) -> None:
        if self._loop is loop:
            self._loop = None
            if not self._closed:
                loop.get_loop().call_later(LINGER_SECONDS, self._leave_idle)
        if not loop.cancelled() and (error := loop.exception()) is not None:
            self._settle_all(error)

    def _settle_all(self, error: BaseException) -> None:
        for watched in self._watched.values():
            for wait in watched.waits:
                wait.settle(None, error)

    def _hear(self, hint: Hint) -> None:
        if not self._watched:
            return
        for name in hint.names:
            id = UUID(name)
            if id in self._watched:
                self._hinted.add(id)
                self._wake.set()

    async def _run(self) -> None:
        while self._watched:
            self._wake.clear()
            due = self._due()
            if due:
                await self._ask(due)
                continue
            soonest = self._questions[0].due - self._time
            before = self._host.clock.monotonic()
            if not await self._host.wait(self._wake, max(soonest, 0.001)):
                self._time += soonest
            else:
                self._time += min(max(0.0, self._host.clock.monotonic() - before), soonest)
        self._questions.clear()

    def _due(self) -> list[UUID]:
        """What to read now; those that were due get a longer pause."""
        hinted, self._hinted = self._hinted, set()
        due = []
        for id in hinted:
            if (one := self._watched.get(id)) is not None:
                one.asked = self._time
                due.append(id)
        now = self._time + GATHER_SECONDS
        over: list[_Watched[T]] = []
        while self._questions and self._questions[0].due <= now:
            over.append(heappop(self._questions))
        jitter = 0.75 + self._host.dice.chance() / 2
        least = len(self._watched) / MAX_POLLED_PER_SECOND
        polled = set[UUID]()
        for watched in over:
            if self._watched.get(watched.id) is watched:  # else nothing waits for it any more
                # Nor is it read if it was just now, as all are again and again while hints are incomplete.
                if watched.id not in hinted and self._time - watched.asked >= watched.pause / 2:
                    polled.add(watched.id)
                self._ask_later(watched, max(watched.pause, least) * jitter)
                watched.pause = min(watched.pause * POLL_FACTOR, self._longest(watched))
        self._polled = frozenset(polled)
        return [*due, *polled]

    def _first(self, wait: _Wait[T]) -> float:
        """Seconds until the first read without a hint."""
        return POLL_FIRST_SECONDS

    def _longest(self, watched: _Watched[T]) -> float:
        """Maximum seconds between two reads without a hint."""
        return POLL_MAX_SECONDS

    def _ask_later(self, watched: _Watched[T], pause: float) -> None:
        # Rounded, so that reads with like pauses fall due together, and stay together.
        step = max(GATHER_SECONDS, pause * GATHER_PAUSE_RATIO)
        watched.due = ceil((self._time + GATHER_SECONDS + pause) / step) * step
        heappush(self._questions, watched)

    async def _ask(self, ids: list[UUID]) -> None:
        for start in range(0, len(ids), MAX_BATCH):
            chunk = ids[start : start + MAX_BATCH]
            try:
                answers = await self._look(chunk)
            except StoreLost:
                raise  # it does not come back: every waiting caller gets the error
            except Unavailable as error:
                # The store comes back or the caller's timeout ends; neither is this loop's to decide.
                _log.debug("the store could not be asked about %d: %s", len(chunk), error)
                await self._host.sleep(POLL_MAX_SECONDS)
                return
            for id, found in zip(chunk, answers, strict=True):
                if (watched := self._watched.get(id)) is not None:
                    watched.last = found
                    for wait in watched.waits:
                        self._answer(id, wait, found)

    def _answer(self, id: UUID, wait: _Wait[T], found: T | None) -> None:
        error: HeadraceError | None = None
        if found is None:
            error = self._missing(id)
        elif not (self._has_ended(found) or (wait.seen is not None and found != wait.seen)):
            wait.waiting.yield_slot()  # not before the store has replied that there is something to wait for
            return
        wait.settle(found, error)


class _Follower:
    """A caller that follows a job."""

    __slots__ = ("hinted", "wait")

    def __init__(self) -> None:
        self.hinted = False
        """Whether a hint came since the job was last read for this follower."""
        self.wait: _Wait[Job] | None = None

    def asks(self) -> None:
        """Note that the job is being read: the result is for those who wait. A follower that is busy, or has a result
        on its way, must read again."""
        if self.wait is not None and not self.wait.event.is_set():
            self.hinted = False


class Watcher(_Watching[Job]):
    """Waits for jobs."""

    topics = frozenset({Topic.ENDED, Topic.PROGRESS, Topic.CANCEL})

    def __init__(self, engine: Engine, host: Host) -> None:
        super().__init__(engine, host)
        self._unreadable: dict[UUID, Unreadable] = {}
        """Why a job that was read counts as missing."""
        self._followers: dict[str, set[_Follower]] = {}
        """The followers of each job."""
        self._unlisten_changes: Callable[[], None] | None = None
        """Ends the subscription to all changes, which lasts only while a job is followed: they are many."""
        self._told = False
        """Whether hints of changes come; until one does, and when a read finds a change without a hint, they do not."""
        self._missed = self._rests = False
        """Whether changes were not named one by one; whether all followed jobs were read just now for that."""

    async def _look(self, ids: Sequence[UUID]) -> list[Job | None]:
        for id in ids:
            for follower in self._followers.get(str(id), ()):
                follower.asks()
        if self._unreadable:
            self._unreadable = {id: one for id, one in self._unreadable.items() if id not in ids}
        known = self._known(ids) if len(ids) >= MIN_CHECKED_JOBS else {}
        if not known or not isinstance(jobs := self._engine.jobs, FindsChanged):
            return await readable(self._engine, ids, self._unreadable)
        # Most of many are as they were, and to read a job takes ten times as long as to see that.
        changed = set(await jobs.changed([(id, job.rev) for id, job in known.items()]))
        anew = [id for id in ids if id in changed or id not in known]
        found = dict(zip(anew, await readable(self._engine, anew, self._unreadable) if anew else (), strict=True))
        return [found[id] if id in found else known[id] for id in ids]

    def _known(self, ids: Sequence[UUID]) -> dict[UUID, Job]:
        """Those of these jobs that were read before, as they were then."""
        watched = [one for id in ids if (one := self._watched.get(id)) is not None]
        return {one.id: one.last for one in watched if one.last is not None}

    def _has_ended(self, found: Job) -> bool:
        return found.ended

    def _missing(self, id: UUID) -> HeadraceError:
        return self._unreadable.get(id) or JobNotFound(id)

    async def close(self) -> None:
        """End every wait with an error, and listen no more."""
        self._followers.clear()
        self._leave_changes()
        await super().close()

    async def follow(self, id: UUID) -> AsyncGenerator[Job, None]:
        """The job as it is, then whenever it changed, until it ended."""
        with self._following(id) as follower:
            stored = (await self._engine.jobs.get([id]))[0]
            if stored is None:
                raise JobNotFound(id)
            shown = as_seen(stored, self._host.clock.now())
            yield shown
            while not shown.ended:
                now = self._host.clock.now()
                due = shown.available_at - now if shown.status in DEFERRED else timedelta.max
                timeout = max(0.0, due.total_seconds()) if due < timedelta(days=1) else None
                if follower.hinted:
                    self._hinted.add(id)
                follower.wait = _Wait(stored)
                stored = await self._wait(id, follower.wait, timeout) or stored
                follower.wait = None
                seen = as_seen(stored, self._host.clock.now())
                if seen != shown:
                    shown = seen
                    yield shown

    # -- hints of changes

    @contextmanager
    def _following(self, id: UUID) -> Iterator[_Follower]:
        """Listen for changes of all jobs, and note those of this one."""
        name, follower = str(id), _Follower()
        self._followers.setdefault(name, set()).add(follower)
        if self._unlisten_changes is None:
            self._unlisten_changes = self._engine.bus.listen(frozenset({Topic.CHANGED}), self._hear_changes)
        try:
            yield follower
        finally:
            if (others := self._followers.get(name)) is not None:
                others.discard(follower)
                if not others:
                    del self._followers[name]
            if not self._followers and not self._closed:
                asyncio.get_running_loop().call_later(LINGER_SECONDS, self._leave_idle_changes)

    def _leave_idle_changes(self) -> None:
        if not self._followers:
            self._leave_changes()

    def _leave_changes(self) -> None:
        unlisten, self._unlisten_changes = self._unlisten_changes, None
        if unlisten is not None:
            unlisten()

    def _hear_changes(self, hint: Hint) -> None:
        if hint.names:
            self._told = True
        for name in hint.names:
            if name in self._followers:
                for follower in self._followers[name]:
                    follower.hinted = True
                self._hinted.add(UUID(name))
                self._wake.set()
        if hint.dropped or not hint.names:
            self._missed = True
            if not self._rests:
                self._wake.set()

    def _due(self) -> list[UUID]:
        if self._missed and not self._rests:
            self._missed, self._rests = False, True
            rest = min(max(MIN_REST_SECONDS, len(self._followers) / MAX_MISSED_PER_SECOND), POLL_MAX_SECONDS)
            asyncio.get_running_loop().call_later(rest, self._rested)
            self._hinted.update(id for id in self._watched if str(id) in self._followers)
            for followers in self._followers.values():
                for follower in followers:
                    follower.hinted = True
        return super()._due()

    def _wants_hints(self, wait: _Wait[Job]) -> bool:
        # A follower hears of all changes already, and in full flow a hint for each end costs a worker dear.
        return wait.seen is None

    def _rested(self) -> None:
        self._rests = False
        if self._missed:
            self._wake.set()

    def _first(self, wait: _Wait[Job]) -> float:
        return POLL_FIRST_SECONDS if wait.seen is None or not self._told else HINTED_FIRST_SECONDS

    def _longest(self, watched: _Watched[Job]) -> float:
        rare = self._told and all(wait.seen is not None for wait in watched.waits)
        return HINTED_MAX_SECONDS if rare else POLL_MAX_SECONDS

    def _answer(self, id: UUID, wait: _Wait[Job], found: Job | None) -> None:
        super()._answer(id, wait, found)
        if wait.found is not None and not wait.found.ended and id in self._polled:
            self._told = False


class BatchWatcher(_Watching[Batch]):
    """Waits for batches."""

    async def follow(self, id: UUID) -> AsyncGenerator[Batch, None]:
        """The batch as it is, then whenever it changed, until it is over; of many changes in a moment the last."""
        [found] = await self._look([id])
        if found is None:
            raise no_batch(id)
        yield found
        while not is_over(found):
            found = await self._wait(id, _Wait(found), None) or found
            yield found

    def _first(self, wait: _Wait[Batch]) -> float:
        # Its jobs end in any number, without a hint for each: the pause also bounds how often a follower reads.
        return POLL_FIRST_SECONDS if wait.seen is None else FOLLOWED_BATCH_SECONDS

    async def _look(self, ids: Sequence[UUID]) -> list[Batch | None]:
        return await self._engine.families.batches(ids)

    def _has_ended(self, found: Batch) -> bool:
        return is_over(found)

    def _missing(self, id: UUID) -> HeadraceError:
        return no_batch(id)


def no_batch(id: UUID) -> JobNotFound:
    """The error about a batch that is not here."""
    return JobNotFound(id, f"no batch {id}: never stored here, or pruned after its retention")
