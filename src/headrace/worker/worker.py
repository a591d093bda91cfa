"""A worker: claims jobs, runs them, writes what came of them, and gives the rest back when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from headrace.bus import Hint, Topic
from headrace.core.claim import order
from headrace.core.job import ErrorInfo, Job
from headrace.core.lifecycle import release
from headrace.core.outcome import Ending, Failed, TimedOut
from headrace.engine import Alive, Beat, Dead, Engine, WorkerInfo
from headrace.errors import EngineError
from headrace.handler import Handler
from headrace.host import Host
from headrace.runtime.lanes import Lanes
from headrace.runtime.service import Service
from headrace.worker.buffer import Buffer, Pace
from headrace.worker.children import Children
from headrace.worker.fetcher import Fetcher
from headrace.worker.heartbeat import Heartbeat
from headrace.worker.hold import Hold
from headrace.worker.pools import ThreadPool
from headrace.worker.run import Run

__all__ = ["Worker", "WorkerStats"]

_log = logging.getLogger("headrace.worker")

TICK = 0.25
START_WITHIN = 0.5
"""A start that was left out is written when its handler has run for so long: well within the promised second."""
BUFFERED_TOO_LONG = 1.0
UNACKNOWLEDGED_MOST = 1000
"""Finishes on their way to the store; beyond this nothing new is started."""


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is."""

    state: str
    busy: int
    buffered: int
    done: int
    failed: int
    stale: int
    stuck_threads: int
    silence: float
    """Seconds since the store last heard of it."""


def _no_services(worker: UUID) -> Sequence[Service]:
    return ()


class Worker(Service):
    """Runs jobs of the given handlers; a new identity at each start."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        *,
        host: Host,
        lanes: Lanes,
        concurrency: int = 10,
        queues: Sequence[str] | None = None,
        burst: bool = False,
        grace: float = 15.0,
        offers: Mapping[str, Any] | None = None,
        services: Callable[[UUID], Sequence[Service]] = _no_services,
        announce: Callable[[], Awaitable[None]] | None = None,
        version: str = "",
    ) -> None:
        """``services`` run beside it (maintenance); ``announce`` is awaited before the first claim."""
        super().__init__()
        self.engine, self.host, self.lanes, self.handlers = engine, host, lanes, handlers
        self.concurrency, self.grace = concurrency, grace
        self.id = host.dice.new_id(host.clock.now())
        self.threads, self.children = ThreadPool("headrace-handler"), Children()
        self.cancel_grace = engine.rules.cancel_grace
        self.ticked_at = host.clock.monotonic()
        self.exhausted = False
        """Whether it stopped because handlers that cannot be stopped hold half its slots."""
        self._queues = None if queues is None else tuple(queues)
        self._burst, self._offers, self._version = burst, dict(offers or {}), version
        self._make_services, self._announce = services, announce
        self._buffer, self._pace = Buffer(), Pace(concurrency)
        self._runs: dict[UUID, Run] = {}
        self._holds: dict[UUID, Hold] = {}
        self._unacknowledged = 0
        self._ahead = 0
        self._done = self._failed = self._stale = 0
        self._settled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._state = "starting"
        self._side: set[asyncio.Task[None]] = set()
        self._heartbeat: Heartbeat | None = None
        self._fetcher: Fetcher | None = None

    # -- from outside

    @property
    def stats(self) -> WorkerStats:
        """How it is right now."""
        beat = self.beat(blocked=False)
        return WorkerStats(
            state=self._state,
            busy=beat.busy,
            buffered=beat.buffered,
            done=self._done,
            failed=self._failed,
            stale=self._stale,
            stuck_threads=beat.stuck_threads,
            silence=self._heartbeat.silence if self._heartbeat is not None else 0.0,
        )

    @property
    def healthy(self) -> bool:
        """Whether it runs, its loop moves, and the store hears it."""
        heartbeat = self._heartbeat
        if heartbeat is None or self._state != "running" or heartbeat.blocked:
            return False
        return heartbeat.silence <= self.engine.rules.lease

    def request_stop(self) -> None:
        """Stop gracefully; called a second time, stop at once."""
        if self.stopping.is_set():
            self._hurry.set()
        self.stopping.set()
        self._wake()

    async def run(self) -> None:
        """Start, and return when the worker has stopped."""
        await self.start()
        await self.done()

    # -- the life of a worker

    async def main(self) -> None:
        """Register, work until asked to stop, hand back what is left."""
        loop = asyncio.get_running_loop()
        await self._register()
        if self._announce is not None:
            await self._announce()
        self._heartbeat = Heartbeat(self, self.engine, self.host, loop)
        self._fetcher = Fetcher(
            self,
            self.engine,
            self.host,
            tasks=frozenset(self.handlers),
            queues=self._queues,
            offers=self._offers,
            died=self._died,
        )
        services = list(self._make_services(self.id))
        unlisten = self.engine.bus.listen(frozenset({Topic.CANCEL}), self._hinted)
        self._heartbeat.start()
        ticker = asyncio.create_task(self._tick(), name="headrace-tick")
        self._state = "running"
        try:
            for service in (*services, self._fetcher):
                await service.start()
            await self.stopping.wait()
        finally:
            self._state = "draining"
            try:
                await self._fetcher.stop()
                await self._drain()
            finally:
                unlisten()
                for service in reversed(services):
                    await service.stop()
                ticker.cancel()
                await self._leave()

    async def _register(self) -> None:
        info = WorkerInfo(
            id=self.id,
            host=self.host.name,
            pid=self.host.pid,
            started_at=self.host.clock.now(),
            concurrency=self.concurrency,
            tasks=tuple(sorted(self.handlers)),
            queues=self._queues,
            offers=self._offers,
            version=self._version,
        )
        pause = 0.1
        while True:
            try:
                return await self.engine.register(info, self.host.clock.now())
            except EngineError as error:
                _log.warning("the worker could not register, trying on: %s", error)
                if await self.host.wait(self.stopping, pause):
                    raise
                pause = min(pause * 2, 5.0)

    async def _drain(self) -> None:
        """Give the buffer back, let the rest finish within the grace, then hand it back uncharged."""
        for hold in self._buffer.empty():
            self._hand_back(hold)
        if await self._quiet(self.grace):
            return
        for run in list(self._runs.values()):
            run.stop("shutdown")
        if not await self._quiet(min(1.0, self.grace)):
            for run in list(self._runs.values()):
                run.abandon()
            await self._quiet(5.0)

    async def _quiet(self, seconds: float) -> bool:
        """Wait until no job is in our hands; False when time is up, or at once when in a hurry."""
        deadline = self.host.clock.monotonic() + seconds
        while self._holds or self._unacknowledged:
            left = deadline - self.host.clock.monotonic()
            if left <= 0 or self._hurry.is_set():
                return False
            self._settled.clear()
            # Woken by every job that leaves our hands, and by a second request to stop.
            await self.host.wait(self._settled, min(left, TICK))
        return True

    async def _leave(self) -> None:
        for task in list(self._side):
            task.cancel()
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        self.threads.close()
        self.children.close()
        try:
            await self.engine.retire(self.id)
        except EngineError as error:
            _log.warning("the store did not hear that the worker left; its lease will run out: %s", error)
        self._state = "stopped"

    async def _died(self, worker: UUID) -> None:
        """The store buried us: nothing we hold is ours any more; go on under a new name."""
        if worker != self.id:
            return
        _log.warning("worker %s was declared dead; its handlers are stopped and it registers anew", worker)
        for hold in self._buffer.empty():
            self._forget(hold)
        for run in list(self._runs.values()):
            run.stop("lost")
        self.id = self.host.dice.new_id(self.host.clock.now())
        await self._register()
        if self._heartbeat is not None:
            self._heartbeat.acknowledged()

    # -- fetching

    def room(self) -> tuple[int, int]:
        """How many jobs to ask for, and how many of them could be started at once."""
        if self._silent():
            return 0, 0
        buffered = len(self._buffer)
        free = max(0, self._free() - buffered)
        ahead = self._ahead = self._pace.ahead(self._busy_since()) if self._free_to_start() else 0
        if free > 0:
            return free + ahead, free
        # Half-empty before asking again: many small claims would cost more than they bring.
        return (ahead - buffered, 0) if buffered * 2 <= ahead else (0, 0)

    def take(self, jobs: Sequence[Job], queue_priorities: Mapping[str, int]) -> None:
        """Buffer what was claimed and start what there is room for."""
        for job in jobs:
            hold = Hold(job, self.handlers[job.spec.task], self.lanes)
            self._holds[job.id] = hold
            self._buffer.push(order(job, queue_priorities.get(job.spec.queue, 0)), hold)
        self._dispatch()

    def idle(self) -> None:
        """There was nothing to claim."""
        if self._burst and not self._holds and not self._unacknowledged:
            self.stopping.set()

    def _free(self) -> int:
        return self.concurrency - len(self._runs)

    def _free_to_start(self) -> bool:
        return self._unacknowledged < UNACKNOWLEDGED_MOST

    def _silent(self) -> bool:
        return self._heartbeat is None or self._heartbeat.silence > self.engine.rules.silence

    def _busy_since(self) -> float | None:
        """How long the running handlers have been at it, on average."""
        if not self._runs:
            return None
        now = self.host.clock.now()
        spans = [(now - run.started_at).total_seconds() for run in self._runs.values() if run.started_at is not None]
        return sum(spans) / len(spans) if spans else None

    def _wake(self) -> None:
        if self._fetcher is not None:
            self._fetcher.wake()

    # -- running

    def _dispatch(self) -> None:
        while len(self._runs) < self.concurrency and self._free_to_start() and not self._silent():
            hold = self._buffer.pop()
            if hold is None:
                break
            run = Run(hold, self)
            self._runs[hold.job.id] = run
            run.task = asyncio.create_task(self._execute(run))

    async def _execute(self, run: Run) -> None:
        began = self.host.clock.monotonic()
        try:
            await run.go()
        except Exception as error:  # a fault of ours, not the handler's: it must not leave the job in our hands
            _log.exception("job %s: the run broke down", run.hold.job.id)
            run.conclude(Failed(error=ErrorInfo(type(error).__name__, f"the worker broke down: {error}")))
        finally:
            self._pace.ran(self.host.clock.monotonic() - began)
            self._runs.pop(run.hold.job.id, None)
            if run.hold.over or not run.hold.kept:
                self._forget(run.hold)
            self._dispatch()
            if len(self._buffer) * 2 <= self._ahead:
                self._wake()

    def concluded(self, run: Run, ending: Ending) -> Callable[[bool], None]:
        """A run has an end to write."""
        self._unacknowledged += 1

        def settled(stored: bool) -> None:
            self._unacknowledged -= 1
            if not stored:
                self._stale += 1
            elif isinstance(ending, Failed | TimedOut):
                self._failed += 1
            else:
                self._done += 1
            self._forget(run.hold)
            if self._unacknowledged == UNACKNOWLEDGED_MOST - 1:
                self._dispatch()

        return settled

    def _forget(self, hold: Hold) -> None:
        self._holds.pop(hold.job.id, None)
        self._settled.set()
        if self._burst and not self._holds:
            self._wake()

    def _hand_back(self, hold: Hold) -> None:
        hold.hand_back(lambda stored: self._forget(hold))

    # -- what cannot wait

    async def _tick(self) -> None:
        while True:
            self.ticked_at = self.host.clock.monotonic()
            now = self.host.clock.now()
            for run in list(self._runs.values()):
                started = run.started_at
                if started is not None and run.hold.start_due and (now - started).total_seconds() >= START_WITHIN:
                    run.hold.write_start()
            oldest = self._buffer.oldest()
            if oldest is not None and self._free() <= 0:
                waited = (now - (oldest.job.assigned_at or now)).total_seconds()
                if waited > BUFFERED_TOO_LONG:  # the slots have turned slow: let others have these jobs
                    for hold in self._buffer.empty():
                        self._hand_back(hold)
            self._dispatch()
            stuck = sum(run.stuck for run in self._runs.values())
            if stuck * 2 >= self.concurrency and not self.exhausted:
                _log.error(
                    "%d of %d slots are held by handlers that cannot be stopped: leaving", stuck, self.concurrency
                )
                self.exhausted = True
                self.request_stop()
            await self.host.sleep(min(TICK, self.engine.rules.beat / 8))

    # -- for the heartbeat, on its thread

    def beat(self, blocked: bool) -> Beat:
        """What to tell the store."""
        runs = list(self._runs.values())
        return Beat(
            held=tuple(self._holds),
            state="blocked" if blocked else self._state,
            busy=len(runs),
            buffered=len(self._buffer),
            stuck_threads=sum(run.stuck for run in runs),
            done=self._done + self._failed,
        )

    def executing(self) -> Iterable[Hold]:
        """The jobs whose handlers were called."""
        return [run.hold for run in list(self._runs.values())]

    def drop_buffer(self) -> list[Hold]:
        """Take everything out of the buffer; the caller gives it back."""
        holds = self._buffer.empty()
        for hold in holds:
            self._holds.pop(hold.job.id, None)
        return holds

    # -- what the store tells

    def told(self, worker: UUID, answer: Alive | Dead) -> None:
        """The answer to a beat."""
        if isinstance(answer, Dead):
            self._aside(self._died(worker))
            return
        for id in answer.cancels:
            self._cancel(id)
        for job in answer.unknown:
            if job.id not in self._holds and job.worker == self.id:
                _log.warning("job %s was given to this worker but never arrived: handed back", job.id)
                self._aside(self._release(job))
        self._dispatch()
        self._wake()

    def _hinted(self, hint: Hint) -> None:
        ids = [id for id in map(UUID, hint.names) if id in self._holds]
        if ids:
            self._aside(self._cancel_if_asked(ids))

    async def _cancel_if_asked(self, ids: list[UUID]) -> None:
        """A hint proves nothing: only what the store says stops a handler."""
        for job in await self.engine.get(ids):
            if job is not None and job.cancel_requested_at is not None and job.worker == self.id:
                self._cancel(job.id)

    def _cancel(self, id: UUID) -> None:
        run = self._runs.get(id)
        if run is not None:
            run.stop("cancelled")
            return
        for hold in self._buffer.remove(id):
            self._hand_back(hold)  # decided again from the stored job, this ends it cancelled

    async def _release(self, job: Job) -> None:
        await self.lanes.apply(release(job, self.host.clock.now()))

    def _aside(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except EngineError as error:
                _log.warning("%s", error)

        task = asyncio.create_task(quietly())
        self._side.add(task)
        task.add_done_callback(self._side.discard)
