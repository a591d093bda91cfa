"""A worker: claims jobs, runs them, stores their results, and gives the rest back when it stops; its state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.attempt import Released
from headrace.core.codec.record import Record
from headrace.core.job import Job
from headrace.core.lifecycle.departure import Departure
from headrace.core.lifecycle.execution import release
from headrace.core.lifecycle.suspects import REQUIREMENT
from headrace.core.stats.own_tasks import runs_only_own
from headrace.core.stats.utilisation import Meter
from headrace.core.status import Status
from headrace.engine import Alive, Beat, Dead, Engine, WorkerInfo
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import ConfigError, EngineError, StoreLost, TransitionRefused
from headrace.logs import labels, short
from headrace.runtime.host import Host, own_memory
from headrace.runtime.retries import Pauses
from headrace.runtime.service import Service
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer
from headrace.worker.claim.fetcher import Fetcher
from headrace.worker.claim.suspects import SuspectFetcher
from headrace.worker.delayed_starts import POLL_SECONDS
from headrace.worker.drain import Drain
from headrace.worker.execution.resources import Resource, Resources
from headrace.worker.execution.run import Run
from headrace.worker.handler import Handler
from headrace.worker.heartbeat import Heartbeat
from headrace.worker.log_capture import caught_logs
from headrace.worker.owned_job import OwnedJob
from headrace.worker.process.signals import answering
from headrace.worker.slots import Slots

__all__ = ["Worker", "WorkerStats", "succeed"]


class WorkerStats(msgspec.Struct, Record, frozen=True, kw_only=True):
    """How a worker is."""

    state: str
    busy: int
    """Handlers at work; those that have yielded their slots are not."""
    buffered: int
    done: int
    """Attempts that completed or were snoozed."""
    failed: int
    """Attempts that failed or timed out."""
    released: int
    """Attempts that were handed back, or stopped by a cancel."""
    stale: int
    """Attempts whose end had no say any more: the job had another owner."""
    stuck_threads: int
    silence: float
    """Seconds since the store last heard of it."""


_log = logging.getLogger("headrace.worker")

_POLL_SECONDS = 60.0
"""Seconds between two checks of what still runs, besides those when something ends."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 5.0
"""Seconds between two tries to register."""

TICK_SECONDS = 0.25


class Worker(Service):
    """Runs jobs of the given handlers; a new identity at each start."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        *,
        host: Host,
        writer: Writer,
        concurrency: int = 10,
        queues: Sequence[str] | None = None,
        burst: bool = False,
        grace: float = 15.0,
        offers: Mapping[str, Any] | None = None,
        services: Callable[[UUID, UUID | None], Sequence[Service]] = lambda worker, predecessor: (),
        announce: Callable[[], Coroutine[Any, Any, None]] | None = None,
        version: str = "",
        resources: Sequence[Resource[Any]] = (),
        sums: FinishTotals | None = None,
    ) -> None:
        """``services`` run beside it (maintenance), made of its id and of the worker that it replaces; ``announce`` is
        awaited before the first claim; ``resources`` are open for as long as it lives; ``sums``: where others add to
        what it hands in."""
        super().__init__()
        self.engine, self.host, self.writer, self.handlers = engine, host, writer, handlers
        self.concurrency, self.grace = concurrency, grace
        self.id = self._new_id()
        self.ticked_at = host.clock.monotonic()  # when the loop last showed that it moves
        self.exhausted = False
        """Whether it stopped because handlers that cannot be stopped hold half its slots."""
        self.queues = None if queues is None else tuple(queues)
        if REQUIREMENT in (offers or {}):
            raise ConfigError(f"a worker must not offer {REQUIREMENT!r}: headrace keeps that for itself")
        self.offers, self._burst, self.version = dict(offers or {}), burst, version
        self._make_services, self._announce = services, announce
        self._resources, self.sums = Resources(resources), sums or FinishTotals()
        self._slots = self._new_slots()
        self._hurry, self._rebirth, self._state = asyncio.Event(), asyncio.Lock(), "starting"
        self._side: set[asyncio.Task[None]] = set()
        self._heartbeat: Heartbeat | None = None
        self.fetchers, self._idle = list[Fetcher](), set[Fetcher]()
        self._services: Sequence[Service] = ()
        self._predecessor: UUID | None = None
        self._retired: asyncio.Event | None = None
        """There if it was retired; set when a stop is requested all the same."""
        self._leaving = Drain(engine, self.retire)
        self._meter = Meter(self.ticked_at)
        self._own = runs_only_own(self.handlers)
        self._claimed_at: datetime | None = None
        self._polled_at: datetime | None = None

    # -- from outside

    @property
    def stats(self) -> WorkerStats:
        """The present state of the worker."""
        slots, tally = self._slots, self._slots.tally
        return WorkerStats(
            state=self._state,
            busy=max(0, len(slots.runs) - slots.yielded.count),
            buffered=slots.waiting,
            done=tally.done,
            failed=tally.failed,
            released=tally.released,
            stale=tally.stale,
            stuck_threads=len(slots.stuck),
            silence=self._heartbeat.silence if self._heartbeat is not None else 0.0,
        )

    @property
    def healthy(self) -> bool:
        """Whether it runs, its loop moves, and the store hears it."""
        if (heartbeat := self._heartbeat) is None or self._state != "running" or heartbeat.blocked:
            return False
        return heartbeat.silence <= self.engine.rules.lease

    def running(self) -> list[Job]:
        """The jobs that run now; may be called on any thread."""
        return [owned.job for owned in list(self._slots.runs)]

    @property
    def child_pids(self) -> list[int]:
        """The child processes that it runs handlers in."""
        return self._slots.children.pids

    def retire(self) -> None:
        """Claim no more, and stop when what runs has ended, however long that takes: another worker replaces it.
        ``request_stop`` then stops it gracefully, as if it had not been retired."""
        if not self.stopping.is_set():
            self._retired = asyncio.Event()
            self.stopping.set()

    def request_stop(self) -> None:
        """Stop gracefully; called a second time, stop at once."""
        if self._retired is not None and not self._retired.is_set():
            self._retired.set()
            self._slots.freed.set()
            return
        if self.stopping.is_set():
            self._hurry.set()
            self._slots.freed.set()
        self.stopping.set()

    async def start(self) -> None:
        """Start; a worker that has stopped may start again, under a new id."""
        if self._state == "stopped":
            self.id, self._slots, self._hurry = self._new_id(), self._new_slots(), asyncio.Event()
            self._state, self.exhausted, self._retired = "starting", False, None
        await super().start()
        if self._resources and self._task is not None:
            await self._resources.wait(self._task)

    async def run(self, *, signals: bool = True) -> None:
        """Start, and return when it has stopped; a caller that is cancelled stops it.

        The first SIGTERM or SIGINT stops it in good order, so that this returns; the second stops it at once, the third
        does what it would have done without headrace. That is so on the main thread, for each of the two signals
        unless the program handles or ignores it itself; ``signals=False`` leaves both alone. The handlers from before
        are there again afterwards.
        """
        with answering(self) if signals else nullcontext():
            async with self:
                await self.done()

    # -- the life of a worker

    def _new_id(self) -> UUID:
        return self.host.dice.new_id(self.host.clock.now())

    def _new_slots(self) -> Slots:
        means = self.handlers, self.writer, self.host, self._resources
        return Slots(*means, concurrency=self.concurrency, may_start=self._may_start, hungry=self._wake, sums=self.sums)

    async def main(self) -> None:
        """Open the resources, register, work until a stop is requested, hand back what is left."""
        self._slots.keeper = asyncio.current_task()
        try:
            if self._resources and not await self.unless_stopped(self._resources.open()):
                return
            self._heartbeat = heartbeat = Heartbeat(self, self.engine, self.host, asyncio.get_running_loop())
            self._slots.children.attended = lambda: heartbeat.attended
            try:
                await self._register(self.id)
                self._slots.tally.worker = self.id
            except BaseException:
                await heartbeat.stop()
                raise
            try:
                with caught_logs():
                    if self._announce is None or await self.unless_stopped(self._announce()):
                        await self._serve()
            finally:
                await self._leave()
        finally:
            await self._resources.close()

    async def _serve(self) -> None:
        assert self._heartbeat is not None
        plain = frozenset(name for name, handler in self.handlers.items() if handler.bulk is None)
        saturated = self._slots.yielded.saturated
        self.fetchers, self._idle = [Fetcher(self, self._slots, plain, saturated)], set()
        for collector in self._slots.collectors:
            self.fetchers.append(Fetcher(self, collector, collector.names, saturated))
            collector.wake = self.fetchers[-1].wake
        suspects = SuspectFetcher(self, self._slots.suspects, frozenset(self.handlers), saturated)
        self.fetchers.append(suspects)
        self._slots.suspects.wake = suspects.wake
        self._services = self._make_services(self.id, self._predecessor)
        services = [*self._services, *self.fetchers]
        unlisten = self.engine.bus.listen(frozenset({Topic.CANCEL, Topic.SETTINGS}), self._hinted)
        self._heartbeat.start()
        lost = asyncio.get_running_loop().create_future()
        ticker, self._state = asyncio.create_task(self._tick(lost), name="headrace-tick"), "running"
        try:
            for service in services:
                await service.start()
            await self._work(services, ticker, lost)
        finally:
            self._state = "draining"
            try:
                for fetcher in self.fetchers:
                    await fetcher.end()
                await self._drain()
            finally:
                unlisten()
                for service in services[: -len(self.fetchers)]:
                    await service.end()
                ticker.cancel()

    async def _work(self, services: Sequence[Service], ticker: asyncio.Task[None], lost: asyncio.Future[None]) -> None:
        """Wait until a stop is requested; raises if a part breaks down: a worker that only looks alive is of no use."""
        asked: asyncio.Future[Any] = asyncio.create_task(self.stopping.wait())
        parts = [lost, *(asyncio.create_task(one.done()) for one in services)]
        try:
            await asyncio.wait({asked, ticker, *parts}, return_when=asyncio.FIRST_COMPLETED)
            if not self.stopping.is_set():
                raise _why_ended((ticker, *parts))
        finally:
            for task in (asked, *parts):
                task.cancel()
            await asyncio.gather(asked, *parts, return_exceptions=True)

    async def _register(self, id: UUID) -> None:
        """Make the worker known to the store, and try again while that is away;
        :raises EngineError: a stop was requested meanwhile, or the store does not come back"""
        assert self._heartbeat is not None
        proof = await self._heartbeat.attend(id)
        info = WorkerInfo(
            id=id,
            host=self.host.name,
            pid=self.host.pid,
            started_at=self.host.clock.now(),
            concurrency=self.concurrency,
            tasks=tuple(sorted(self.handlers)),
            queues=self.queues,
            offers=self.offers,
            version=self.version,
            lease=self.engine.rules.lease,
            proof=proof,
        )
        pauses = Pauses(self.host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            try:
                await self.engine.workers.register(info, self.host.clock.now())
                self.engine.bus.send(Hint(Topic.SETTINGS, (f"{WORKER}{id}",)))
                return
            except StoreLost:
                raise
            except EngineError as error:
                _log.warning("the worker could not register, trying on: %s", error)
                if await pauses.wait(self.stopping):
                    raise

    async def _drain(self) -> None:
        """Give the buffer back, let the rest finish within the grace, then hand it back uncharged."""
        self._slots.release_buffer()
        while self._retired is not None and not self._retired.is_set() and not self._slots.empty:
            self._slots.freed.clear()
            await self.host.wait(self._slots.freed, _POLL_SECONDS)
        if await self._quiet(self.grace):
            return
        self._slots.reactions.cancel()
        for run in list(self._slots.runs.values()):
            run.stop("shutdown")
        self._hurry.clear()
        if not await self._quiet(min(1.0, self.grace)):
            for run in list(self._slots.runs.values()):
                run.abandon(Released())
            self._hurry.clear()
            await self._quiet(5.0)

    async def _quiet(self, seconds: float) -> bool:
        """Wait until the worker owns no job; False when time is up, or at once when in a hurry."""
        slots, deadline = self._slots, self.host.clock.monotonic() + seconds
        while not slots.empty:
            left = deadline - self.host.clock.monotonic()
            if left <= 0 or self._hurry.is_set():
                return False
            slots.freed.clear()
            await self.host.wait(slots.freed, left)
        return True

    async def _leave(self) -> None:
        for task in list(self._side):
            task.cancel()
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        self._slots.close()
        try:
            await self._hand_in()
            if self._retired is not None:
                await self._leaving.forget(self.id)
            await self.engine.workers.retire(self.id, departure=Departure(at=self.host.clock.now()))
        except EngineError as error:
            level = logging.DEBUG if isinstance(error, StoreLost) else logging.WARNING  # which was said
            _log.log(level, "the store did not hear that the worker left; its lease will run out: %s", error)
        self._state = "stopped"

    async def _hand_in(self) -> None:
        """Hand in what was finished since the last beat."""
        self.sums.gather()
        self.report_slots()
        number, finished = self.sums.report(self.id)
        if finished:
            last = replace(self.beat(False), report=number, finished=finished)
            try:
                await self.engine.workers.beat(self.id, last, self.host.clock.now())
                self.sums.acknowledged(number)
            except EngineError as error:
                _log.debug("what the worker finished last is in no chart: %s", error)

    async def died(self, worker: UUID) -> None:
        """Go on under a new id: the store has declared this worker dead, and it owns none of its jobs any more."""
        # The fetcher and the heartbeat may both learn of it: whichever comes second waits for the new id.
        async with self._rebirth:
            if worker != self.id:
                return
            said = "worker %s was declared dead; its handlers are stopped and it registers anew"
            _log.warning(said, short(worker), extra={"worker": str(worker)})
            self._slots.drop_buffer()
            for run in list(self._slots.runs.values()):
                run.stop("lost")
            id = self._new_id()
            await self._register(id)
            self.id = id  # only now: a worker that is not registered yet counts as dead, too
            self._slots.tally.worker = id
            for service in self._services:
                service.renamed(id)
            if self._heartbeat is not None:
                self._heartbeat.acknowledged()

    async def _tick(self, lost: asyncio.Future[None]) -> None:
        """Tick until cancelled; ``lost`` is given the error when the heartbeat finds that the store is lost."""
        could = True
        while True:
            self.ticked_at = self.host.clock.monotonic()
            self._slots.tick()
            if self._heartbeat is not None and self._heartbeat.lost is not None and not lost.done():
                # And tick on while running jobs are awaited: a loop without ticks counts as blocked.
                lost.set_exception(self._heartbeat.lost)
            if (can := self._may_start()) and not could:  # beats reach the store again
                self._wake()
            could = can
            if self._slots.stuck.hopeless * 2 >= self.concurrency and not self.exhausted:
                _log.error("half the slots are held by handlers that cannot be stopped: leaving")
                self.exhausted = True
                self.request_stop()
            await self._rest(min(TICK_SECONDS, self.engine.rules.beat / 8))

    async def _rest(self, seconds: float) -> None:
        """Let time pass until the next tick, and have listeners notified of starts meanwhile."""
        while self._slots.starts.write_for_listeners() and seconds > POLL_SECONDS:
            await self.host.sleep(POLL_SECONDS)
            seconds -= POLL_SECONDS
        await self.host.sleep(seconds)

    # -- for the fetcher

    def polled(self) -> None:
        """Note that the store replied to a claim."""
        self._polled_at = self.host.clock.now()

    def taken(self) -> None:
        """Note that jobs were claimed: idle fetchers claim again before a burst ends, for these may submit more."""
        self._claimed_at = self.host.clock.now()
        self._idle.clear()

    def idle(self, fetcher: Fetcher) -> None:
        """Note that this fetcher found nothing to claim; when none of them does, a burst ends."""
        if self._slots.empty:
            self._idle.add(fetcher)
            # Notes that are being processed may release jobs that waited for those that have just ended.
            if self._burst and len(self._idle) == len(self.fetchers) and self.writer.notes.quiet:
                self.stopping.set()

    def _may_start(self) -> bool:
        return self._heartbeat is not None and not self._heartbeat.silent and not self.stopping.is_set()

    def _wake(self) -> None:
        if self._burst and self._slots.empty:  # at its end all have to claim once more
            for fetcher in self.fetchers:
                fetcher.wake()
        elif self.fetchers:  # those of bulk handlers know themselves when there is room
            self.fetchers[0].slot_freed()

    # -- for the heartbeat, on its thread

    def beat(self, blocked: bool) -> Beat:
        """The beat that the worker sends to the store."""
        stats, clock = self.stats, self.host.store_clock
        return Beat(
            held=tuple(owned.job.id for owned in list(self._slots.owned.values())),
            state="blocked" if blocked else stats.state,
            busy=stats.busy,
            buffered=stats.buffered,
            stuck_threads=stats.stuck_threads,
            done=stats.done + stats.failed,
            clock_apart=0.0 if clock is None else round(clock.apart, 3),
            utilisation=self._meter.measured(
                self.host.clock.monotonic(),
                failed=stats.failed,
                claimed_at=self._claimed_at,
                polled_at=self._polled_at,
                memory=own_memory(self.child_pids),
            ),
        )

    def measure(self) -> None:
        """Note how many slots are busy: now and then is exact enough, and costs those that run jobs nothing."""
        self._meter.note(self._slots.busy, self.concurrency, self.host.clock.monotonic())

    def report_slots(self) -> None:
        """Add how busy the slots were since the last beat to what is handed in, unless they are headrace's own."""
        if not self._own:
            clock = self.host.clock
            self.sums.occupied(*self._meter.taken(clock.monotonic()), clock.now())

    def executing(self) -> Iterable[Run]:
        """The runs in their handlers, except those of jobs that a transaction of the handler has."""
        return [run for owned, run in list(self._slots.runs.items()) if not owned.in_transaction]

    def drop_buffer(self) -> list[OwnedJob]:
        """Take all jobs out of the buffer; the caller gives them back."""
        return self._slots.drop_buffer()

    # -- what the store sends

    def on_beat_reply(self, worker: UUID, answer: Alive | Dead) -> None:
        """Process the reply to a beat."""
        if isinstance(answer, Dead):
            self._aside(partial(self.died, worker))
            return
        for id in answer.cancels:
            self._slots.cancel(id)
        if self.fetchers and answer.profiles_rev != self.fetchers[0].profiles_rev:
            self._aside(self.fetchers[0].know_profiles)  # claims say so, too; but there may be no room for any
        if self._leaving.is_news(answer.settings_rev):
            self._aside(partial(self._leaving.look, worker, answer.settings_rev))
        for job in answer.unknown:
            # A job that the store has as running, but that does not run here, did run: beats do not name it, so the
            # sweeper takes it, and the attempt is charged.
            here = job.id.int in self._slots.owned or any(job.claim == one.request for one in self.fetchers)
            if not here and job.worker == self.id and job.status is not Status.RUNNING:
                _log.warning(
                    "job %s was given to this worker but never arrived: handed back", job.id, extra=labels(job)
                )
                self._aside(partial(self.writer.apply, release(job, self.host.clock.now())))
        self._slots.dispatch()

    def _hinted(self, hint: Hint) -> None:
        if hint.topic is Topic.SETTINGS:
            if self._leaving.concerns(hint, self.id):
                self._aside(partial(self._leaving.look, self.id))
        elif ids := [id for id in map(UUID, hint.names) if id.int in self._slots.owned]:
            self._aside(partial(self._cancel_if_asked, ids))

    async def _cancel_if_asked(self, ids: list[UUID]) -> None:
        """Stop the handlers of those of these jobs that the store has as cancelled: a hint alone proves nothing."""
        for job in await self.engine.jobs.get(ids):
            if job is not None and job.cancel_requested_at is not None and job.worker == self.id:
                self._slots.cancel(job.id)

    def _aside(self, work: Callable[[], Awaitable[object]]) -> None:
        # Called by its task: a coroutine that was made before would never be awaited if the worker leaves first.
        async def quietly() -> None:
            try:
                await work()
            except StoreLost:
                pass  # a part of the worker ends by it as well, which is logged once
            except (EngineError, TransitionRefused) as error:
                _log.warning("%s", error)

        task = asyncio.create_task(quietly())
        self._side.add(task)
        task.add_done_callback(self._side.discard)


def _why_ended(parts: Iterable[asyncio.Future[None]]) -> BaseException:
    """The reason why a part ended by itself, which ends the worker. That the store is lost is logged here, before
    running jobs are awaited, and once, however many parts notice it."""
    for part in parts:
        if part.done() and not part.cancelled() and (error := part.exception()) is not None:
            if isinstance(error, StoreLost):
                _log.error("the worker claims no more and stops: %s", error)
            return error
    return RuntimeError("a part of the worker ended by itself")


def succeed(worker: Worker, id: UUID, predecessor: UUID | None) -> None:
    """Let a worker that has not started take this id, and replace another one after the end of its process."""
    worker.id, worker._predecessor = id, predecessor
