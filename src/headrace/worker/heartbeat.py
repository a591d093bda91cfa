"""The sign of life, on a thread of its own with a session of its own: a blocked loop must not look like death.

When the loop stands still, this thread does what cannot wait: it gives the buffer back, records starts that were left
out, and ends attempts that are out of time. The store judges what the loop writes later by rev and epoch as always.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import replace

from headrace.core.change import Applied, Change, Conflict
from headrace.core.job import Job
from headrace.core.lifecycle.execution import finish, release, sign, start_or_release
from headrace.core.lifecycle.loss import timeout_error
from headrace.core.status import Status, Verb
from headrace.core.times import MAX_CLOCK_ERROR_SECONDS, told_apart
from headrace.engine import MAX_BATCH, Alive, Attended, Dead, Engine
from headrace.engine.bus import Topic
from headrace.errors import EngineError, StoreLost, TransitionRefused
from headrace.logs import attempt_summary, labels
from headrace.runtime.host import Host
from headrace.runtime.writes.hints import hint_of
from headrace.runtime.writes.omissions import log_verdicts
from headrace.worker.execution.signs import SignThrottle

if TYPE_CHECKING:
    from headrace.worker.execution.run import Run
    from headrace.worker.worker import Worker

__all__ = ["Heartbeat"]

_log = logging.getLogger("headrace.heartbeat")

CHECK_SECONDS = 0.5
"""Seconds between two checks: well within the time after which a lock that is free twice proves a death."""
_STOP_TIMEOUT_SECONDS = 5.0
_MAX_TRIES = 5

Decide = Callable[[Job], Change | None]
Todo = tuple[Job, Decide, SignThrottle | None]
"""A job, what to write about it, and its signs, of which one may be written."""


class Heartbeat:
    """Beats for one worker until it is stopped; it calls the worker from a thread of its own."""

    def __init__(self, worker: Worker, engine: Engine, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._worker, self._engine, self._host, self._loop = worker, engine, host, loop
        self._rules = engine.rules
        self._acked = (host.clock.monotonic(), host.uptime())
        self._mute_from = self._look_from = 0.0
        self._stop: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._outage = self._wrong = False
        self._beating = False
        self._next = 0.0
        """When the next beat is due (monotonic)."""
        self._here: asyncio.AbstractEventLoop | None = None
        self._session, self._opened, self._holding = engine.another_session(), False, asyncio.Lock()
        self._attending: UUID | None = None
        self._stored_proof: str | None = None
        """The proof that the store has."""
        self.attended: Attended | None = None
        """What is held for the worker, if anything is."""
        self.blocked = False
        """Whether the worker's loop stood still at the last check."""
        self.lost: StoreLost | None = None
        """Why there is no store left to beat in; its worker ends by it."""

    async def attend(self, worker: UUID) -> str | None:
        """Hold what shows that this worker lives, from now on and in place of another's; the proof, for registering. To
        be called before the worker registers: a known worker that holds nothing counts as dead."""
        self._attending = worker
        self._run()
        await asyncio.to_thread(self._ready.wait, _STOP_TIMEOUT_SECONDS)
        if self._here is None:
            return None
        held = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._hold(), self._here))
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_SECONDS):
                await held
        except (EngineError, TimeoutError) as error:  # a beat will send the proof as soon as there is one
            _log.debug("nothing is held for worker %s yet: %s", worker, error)
        self._stored_proof = self._proof(worker)
        return self._stored_proof

    def start(self) -> None:
        """Start beating; the caller has just registered the worker, which counts as the first beat."""
        self.acknowledged()
        self._next = self._host.clock.monotonic() + self._rules.beat * (0.5 + self._host.dice.chance() / 2)
        self._beating = True
        self._run()

    def _run(self) -> None:
        if self._thread is None:
            self._thread = self._host.thread("headrace-heartbeat", self._main)

    async def stop(self) -> None:
        """Stop, and wait until the session is closed."""
        if self._thread is not None:
            await asyncio.to_thread(self._ready.wait, 5)
            self._stop()
            await asyncio.to_thread(self._thread.join, 10)
            self._thread = None

    def acknowledged(self) -> None:
        """Remember that the store has just acknowledged the worker."""
        self._acked = (self._host.clock.monotonic(), self._host.uptime())
        self._mute_from = self._acked[0] + self._rules.silence

    @property
    def silent(self) -> bool:
        """Whether nothing new may be started, because the store has not heard of the worker for too long."""
        # Called before every start, so the clock that shows a suspended machine is read only twice a second.
        monotonic = self._host.clock.monotonic()
        if monotonic >= self._look_from:
            self._look_from = monotonic + 0.5
            if self.silence > self._rules.silence:
                self._mute_from = monotonic
        return monotonic >= self._mute_from

    @property
    def silence(self) -> float:
        """Seconds since the last acknowledged beat, those included that the machine slept."""
        monotonic, uptime = self._acked
        return max(self._host.clock.monotonic() - monotonic, self._host.uptime() - uptime)

    async def _main(self) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        self._here = loop
        self._ready.set()
        try:
            while not await self._host.wait(stopping, min(CHECK_SECONDS, self._rules.beat / 4)):
                try:
                    await self._hold()
                    if self._beating:
                        await self._look(self._session)
                        if self._due():
                            await self._beat(self._session)
                            self._next = self._host.clock.monotonic() + self._rules.beat
                except StoreLost as error:
                    self.lost = error
                except EngineError as error:
                    if self._beating and not self._outage:
                        self._outage = True
                        _log.warning("no beat could be sent, trying on: %s", error)
                except Exception:
                    _log.exception("the heartbeat stumbled; it goes on")
        finally:
            self._here = None
            if self._opened:
                await self._session.close()

    async def _hold(self) -> None:
        """Hold what shows that the worker lives; what was lost, for whatever reason, is held anew."""
        async with self._holding:  # the worker's loop calls this, too
            try:
                if not self._opened:
                    await self._session.open()
                    self._opened = True
                    await self._host.measure(self._session)
                if self._attending is not None:
                    self.attended = await self._session.workers.attend(self._attending)
            except BaseException:
                self.attended = None
                raise

    def _due(self) -> bool:
        """Whether it is time for a beat, or there is something to send to the store, or to read from it, at once."""
        return (
            self._host.clock.monotonic() >= self._next
            or self._unsure
            or self._stored_proof != self._proof(self._worker.id)
        )

    def _proof(self, worker: UUID) -> str | None:
        return self.attended.proof if self.attended is not None and self._attending == worker else None

    async def _beat(self, session: Engine) -> None:
        worker, clock = self._worker.id, self._host.store_clock
        asked = None if clock is None else clock.asking()
        proof = self._proof(worker)
        self._worker.report_slots()
        number, finished = self._worker.sums.report(worker)
        beat = replace(self._worker.beat(self.blocked), proof=proof, report=number, finished=finished)
        answer = await session.workers.beat(worker, beat, self._host.clock.now())
        if isinstance(answer, Dead):
            self._worker.sums.refused()
        else:
            self._worker.sums.acknowledged(number)
            self._stored_proof = proof
            if clock is not None and asked is not None and answer.now is not None:
                clock.told(asked, answer.now)
            self.acknowledged()
            await self._host.make_sure(session)  # the reply may have been on its way when the machine slept
            self._compare()
        if self._outage:
            self._outage = False
            _log.warning("beats are acknowledged again")
        self._pass_on(worker, answer)

    @property
    def _unsure(self) -> bool:
        """Whether the machine slept, or its clock was set, and the store's time must be measured."""
        return (clock := self._host.store_clock) is not None and clock.is_unsure

    def _compare(self) -> None:
        """Log, once, if this machine's clock is wrong."""
        apart = 0.0 if (clock := self._host.store_clock) is None else clock.apart
        if abs(apart) > MAX_CLOCK_ERROR_SECONDS and not self._wrong:
            text = "the clock of this machine is %s; jobs go by the store's, so it costs nothing. Let it follow NTP"
            _log.warning(text, told_apart(apart))
        self._wrong = abs(apart) > MAX_CLOCK_ERROR_SECONDS

    def _pass_on(self, worker: UUID, answer: Alive | Dead) -> None:
        try:
            self._loop.call_soon_threadsafe(self._worker.on_beat_reply, worker, answer)
        except RuntimeError:  # the worker's loop is closed
            _log.debug("the worker's loop is gone")

    async def _look(self, session: Engine) -> None:
        """Measure how busy the worker is and whether its loop moves; if it does not, do what cannot wait for it."""
        self._worker.measure()
        stood = self._host.clock.monotonic() - self._worker.ticked_at
        blocked = stood > self._rules.beat / 2
        if blocked and not self.blocked:
            _log.error(
                "the event loop has not moved for %.1f s: a handler blocks it. Make it a plain function (it runs in a "
                'thread) or use run_in="process"',
                stood,
            )
        self.blocked = blocked
        if blocked:
            await self._stand_in(session)

    async def _stand_in(self, session: Engine) -> None:
        now, monotonic, chance = self._host.clock.now(), self._host.clock.monotonic(), self._host.dice.chance()
        todo: list[Todo] = [(owned.job, lambda job: release(job, now), None) for owned in self._worker.drop_buffer()]
        todo += [
            (
                run.owned.job,
                partial(self._overdue, run, started_at=started, ran=monotonic - run.began, now=now, chance=chance),
                run.signs,
            )
            for run in self._worker.executing()
            if (started := run.owned.started_at) is not None and not run.owned.over
        ]
        tries = _MAX_TRIES
        while todo and tries:
            again = [await self._apply(session, todo[n : n + MAX_BATCH], now) for n in range(0, len(todo), MAX_BATCH)]
            todo, tries = [one for part in again for one in part], tries - 1

    def _overdue(
        self, run: Run, job: Job, started_at: datetime, ran: float, now: datetime, chance: float
    ) -> Change | None:
        """The change that the loop would have written by now: the end if the timeout is over or signs are missing,
        otherwise the start, or a sign. ``ran``: for how many seconds the handler has run, by monotonic time."""
        timeout, signs, monotonic = job.spec.timeout, run.signs, self._host.clock.monotonic()
        late = run.late
        # Not at the first finding: signs of coroutines are missing because the loop stands still.
        if late is None and signs is not None and signs.left(monotonic) <= -self._rules.timeout_check:
            late = timeout_error(job, signs.heartbeat)
        if (timeout is not None and ran >= timeout) or late is not None:
            return finish(job, run.timed_out(late), now, chance, self._rules, started_at)
        if job.status is not Status.RUNNING:
            return start_or_release(job, started_at, self._rules)
        if signs is None or not signs.is_unwritten or signs.wait(monotonic) > 0:
            return None
        return sign(job, now - timedelta(seconds=monotonic - signs.last_at), self._rules)

    async def _apply(self, session: Engine, todo: list[Todo], now: datetime) -> list[Todo]:
        """Write what is decided; returns what must be decided again, by the rule of ``core.change.until_applied``."""
        changes, decided = list[Change](), list[Todo]()
        monotonic = self._host.clock.monotonic()
        for job, decide, signs in todo:
            try:
                change = decide(job)
            except TransitionRefused:
                continue  # the job changed in the meantime
            if change is not None:
                changes.append(replace(change, id=self._host.dice.token()))
                decided.append((job, decide, signs))
        if not changes:
            return []
        # The loop learns what was applied here as a conflict, or as stale.
        verdicts = await session.jobs.apply(changes, now)
        log_verdicts(verdicts)
        if session.bus.wanted(Topic.CHANGED):
            session.bus.send(hint_of([one.job.id for one in changes]))
        for change, verdict, (_, _, signs) in zip(changes, verdicts, decided, strict=True):
            if isinstance(verdict, Applied) and change.verb is Verb.PROGRESS and signs is not None:
                signs.written(monotonic)
            if isinstance(verdict, Applied) and change.attempt is not None:
                _log.warning("%s", attempt_summary(verdict.job, change.attempt.outcome, now), extra=labels(verdict.job))
                self._worker.sums.taken(change.attempt, verdict.job)
        return [
            (verdict.job, decide, signs)
            for verdict, (_, decide, signs) in zip(verdicts, decided, strict=True)
            if isinstance(verdict, Conflict)
        ]
