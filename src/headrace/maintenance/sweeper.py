"""The sweeper: buries workers that died, takes their jobs back, ends what is overdue, queues what is due.

It keeps steps of the store's time on record, so that the next sweeper knows of them as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.core.change import Applied, Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.clock_steps import SETTING, ClockStep, Steps, on_record
from headrace.core.lifecycle.liveness import POLL_BEAT_RATIO, Watch, is_certain, is_late, poll_in
from headrace.core.lifecycle.sweep import cause_of, sweep
from headrace.core.times import length
from headrace.engine import MAX_BATCH, Engine, Overdue, Setting
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import Unstorable
from headrace.logs import attempt_summary, labels, name_of
from headrace.maintenance.duty import Duty
from headrace.maintenance.liveness import LivenessWatch
from headrace.runtime.host import Host
from headrace.runtime.secrets import setting_of
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.decision import write_decision
from headrace.runtime.writes.writer import Writer

__all__ = ["StepRecord", "Sweeper"]


_log = logging.getLogger("headrace.sweeper")

_MAX_TRIES = 10


class StepRecord:
    """Reads the record, and adds what the clock of this host has noticed."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self._written: tuple[ClockStep, ...] = ()
        """What this host had noticed when it last wrote."""

    @property
    def is_behind(self) -> bool:
        """Whether the clock of this host has noticed a step that is not on record."""
        return self._noticed() != self._written

    def _noticed(self) -> tuple[ClockStep, ...]:
        if (clock := self._host.store_clock) is None:
            return ()
        clock.look()
        return clock.steps

    async def known(self) -> tuple[ClockStep, ...]:
        """All steps, those noticed here included, which are on record now."""
        noticed, known = self._noticed(), tuple[ClockStep, ...]()
        for _ in range(_MAX_TRIES):
            setting = await setting_of(self._engine, SETTING)
            known = () if setting is None else _read(setting)
            wanted = on_record(known, noticed, self._host.clock.now())
            if wanted == known or not wanted:
                break
            rev = 0 if setting is None else setting.rev
            if await self._engine.documents.put_setting(SETTING, Steps(wanted).to_text(), rev) is not None:
                for step in wanted:
                    if step not in known:
                        _log_step(step)
                known = wanted
                break
        self._written = noticed
        return known


def _read(setting: Setting) -> tuple[ClockStep, ...]:
    try:
        return Steps.from_text(setting.value).steps
    except msgspec.MsgspecError as error:
        _log.warning("the setting %r cannot be read, and is written anew: %s", setting.key, error)
        return ()


def _log_step(step: ClockStep) -> None:
    way, seconds = ("forward", step.by) if step.by > 0 else ("back", -step.by)
    _log.warning(
        "the store's time went %s by %s: its clock was set, or the machine slept; attempts that began before are judged"
        " without that",
        way,
        length(seconds),
    )


_PAUSE_SECONDS = 0.05
_STEADY_GAP_RECHECKS = 2.0
"""Rechecks between two sweeps after which the store does not count as watched in between."""
_REALIGN_SECONDS = 300.0
"""Seconds between two checks for jobs in another subqueue than the customer setting of their queue says."""


class Sweeper(Duty):
    """Finds dead workers, lost jobs, passed deadlines, due jobs and notes left over; two at once do no harm."""

    name = "sweeper"
    share = 0.75  # the next holder must watch for a whole lease before it may bury the one before it
    topics = frozenset({Topic.SETTINGS, Topic.DEADLINE})

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        host: Host,
        holder: UUID,
        *,
        ended: UUID | None = None,
        limit: int = MAX_BATCH,
        sums: FinishTotals | None = None,
    ) -> None:
        """``ended``: a worker that is known to have ended; ``sums``: where lost attempts are added up."""
        super().__init__(engine, writer, host, holder)
        self._limit, self._sums = limit, sums or FinishTotals()
        self.siblings: Sequence[Duty] = ()
        """The other duties of the same worker: they request what the dead had."""
        self._watch = LivenessWatch(engine, host, holder)
        self._watch.ended = ended
        self._leader: UUID | None = None
        """The holder of the duty when it was last requested in vain."""
        self._asked_at = float("inf")
        self._late: Watch[tuple[UUID, int]] = Watch(self.rules.look_gap)
        self._replies: Watch[None] = Watch(_STEADY_GAP_RECHECKS * self.rules.recheck)
        """For how long the store has replied to sweeps."""
        self._swept_at, self._sweep_at = float("-inf"), float("inf")
        """When the store was last read for overdue jobs, and when it must be because of a deadline (monotonic)."""
        self._steps = StepRecord(engine, host)
        self._again_at = float("-inf")
        """When to promote and to process notes again (monotonic)."""
        self._realign_at = float("-inf")
        self._quiet = False
        """Whether the last sweep found no question open; then the next round leaves it out."""
        self._told = 0
        """How many jobs the last notes changed: while there are some, there may be more."""

    def pause(self) -> float:
        """Seconds until the next check."""
        return self.rules.beat * POLL_BEAT_RATIO * self._jitter()

    async def tick(self) -> int:
        """Promote, process notes, check the workers, sweep; how many jobs and workers were moved."""
        moved, clock = 0, self.host.clock
        # Every claim promotes first, and the writer of a change processes its notes: this is for stores without claims
        # just now, and for writers that died in between.
        due = clock.monotonic() >= self._again_at
        if due:
            moved += await self.promote()
            self._again_at = clock.monotonic() + self.rules.lease
        if clock.monotonic() >= self._realign_at:
            # The setter of a queue moves its jobs: this is for those that were submitted at the same moment.
            realigned = await self.engine.jobs.realign(self._limit)
            moved += realigned
            if not realigned:
                self._realign_at = clock.monotonic() + _REALIGN_SECONDS
        if due or self._told:
            self._told = await self.writer.notes.process()
            moved += self._told
        buried = await self.look()
        # What a worker holds may have a deadline that was not there at the last sweep.
        if buried or not self._quiet or self._watch.holding:
            return moved + buried + await self.sweep()
        self._quiet = False
        return moved

    async def promote(self) -> int:
        """Queue everything that is due."""
        total = 0
        while True:
            moved = await self.engine.jobs.promote(self.host.clock.now(), self._limit)
            total += moved
            if moved < self._limit:
                break
        if total:
            self.engine.bus.send(Hint(Topic.READY))
        return total

    async def look(self) -> int:
        """Check the workers and bury the dead; how many."""
        buried = await self._watch.look() + await self._watch.find(self._watch.others(self.elector.holder))
        return self._buried(buried)

    async def between(self) -> float:
        """Probe all workers, and sweep if a deadline is near or has passed; the seconds until the next time."""
        watch, own = self._watch, self.elector.holder
        if watch.stale or watch.next_in(watch.others(own), looking=True) <= 0:
            buried = await watch.look() if watch.stale or watch.overdue else 0
            if self._buried(buried + await watch.find(watch.others(own))):
                await self.sweep()
        if self.host.clock.monotonic() >= self._sweep_at:
            await self.sweep()
        return min(watch.next_in(watch.others(own), looking=True), self._sweep_at - self.host.clock.monotonic())

    async def stand_by(self) -> float:
        """Probe the holder of the duty; the seconds until the next probe."""
        watch, elector = self._watch, self.elector
        self._quiet = False  # what is to be swept when the duty is ours is not known
        if watch.stale or self._leader is None or self._asked_at != elector.asked_at:
            watch.stale, self._asked_at = False, elector.asked_at
            self._leader = await self.engine.documents.holder(elector.duty, self.host.clock.now())
            await watch.meet()
        leader = [] if self._leader is None else [self._leader]
        if self._buried(await watch.find(leader)):
            await self.sweep()
        elif not leader:
            elector.hurry()  # it has just become free
            return _PAUSE_SECONDS
        return min(elector.asks_in, watch.next_in(leader))

    def heard(self, hint: Hint) -> None:
        """React to a hint: a deadline is near, a worker came, or the duty changed hands."""
        if hint.topic is Topic.DEADLINE:
            if self.elector.token is not None:
                soon = max(self.host.clock.monotonic(), self._swept_at + self.rules.recheck / 2)
                self._sweep_at = min(self._sweep_at, soon)
                self.wake.set()
            return
        super().heard(hint)
        if not hint.names or any(name.startswith(WORKER) for name in hint.names):
            self._watch.stale = True
            self.wake.set()

    def _buried(self, count: int) -> int:
        """Request the duties of those that were buried: this sweeper is the first to know that they are free."""
        if count:
            self._leader, self._quiet = None, False  # their jobs are still to be swept, whatever comes in between
            for duty in (self, *self.siblings):
                duty.hurry()
        return count

    async def sweep(self) -> int:
        """Decide about every overdue job, and write the changes; how many."""
        clock, total, first = self.host.clock, 0, True
        await self.host.measure(self.engine)
        while True:
            before = clock.monotonic()
            # One moment for all that follows, and the steps after it: so no step is in the moment and not among them.
            now = clock.now()
            found = await self.engine.jobs.overdue(now, self._limit)
            rows, after = found.jobs, clock.monotonic()
            self._quiet = first and not rows
            self._replies.look((None,), before, after)
            steps = await self._steps.known() if self._steps.is_behind or self._deadlines(rows, now) else ()
            late = [(row.job.id, row.job.epoch) for row in rows if not _certain(row, now, self.rules, steps)]
            if first:
                self._late.look(late, before, after)
            else:
                self._late.add(late, after)
            swept = await self._settle_all([row for row in rows if self._ripe(row, now, steps)], now, steps)
            total, first = total + swept, False
            unsettled = any(not self._ripe(row, now, steps) for row in rows)
            # What is not ripe yet stays among the overdue, so a full page without a change is the end as well.
            if len(rows) < self._limit or not swept:
                break
        next_in = None if found.next_at is None else (found.next_at - now).total_seconds()
        self._swept_at, self._sweep_at = before, after + poll_in(next_in, self.rules, unsettled=unsettled)
        if total:  # also where none of them is queued again: what they held of limits is free
            self.engine.bus.send(Hint(Topic.READY))
        return total

    def _deadlines(self, rows: Sequence[Overdue], now: datetime) -> bool:
        """Whether any of these is here because of a deadline, so that it matters whether time has stepped."""
        return any(not _certain(row, now, self.rules) for row in rows)

    def _ripe(self, row: Overdue, now: datetime, steps: Sequence[ClockStep]) -> bool:
        """Whether it can be decided now what becomes of this job."""
        if _certain(row, now, self.rules, steps):
            return True
        return is_late(self._late.of((row.job.id, row.job.epoch)), self.rules, self._replies.of(None).seconds)

    async def _settle_all(self, rows: Sequence[Overdue], now: datetime, steps: Sequence[ClockStep]) -> int:
        answers = await asyncio.gather(*(self._settle(row, now, steps) for row in rows), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer is True for answer in answers)

    async def _settle(self, row: Overdue, now: datetime, steps: Sequence[ClockStep]) -> bool:
        """Decide about one job until the store agrees, or others have moved it on; whether it was moved here."""
        seen: Job | None = None

        def decide(job: Job, _: datetime) -> Change | None:
            nonlocal seen
            if job.epoch != row.job.epoch or (seen is not None and seen.rev == job.rev):
                return None  # another owner, with a worker unknown here; or a transaction has the job
            seen = job
            return sweep(
                job,
                now,
                self.host.dice.chance(),
                self.rules,
                alive=row.alive,
                unnamed=row.unnamed,
                heard_at=row.heard_at,
                beside_suspect=row.beside_suspect,
                mass_death=row.mass_death,
                steps=steps,
            )

        try:
            change, verdict = await write_decision(self.writer, row.job, decide)
        except Unstorable:
            # It must not keep the others waiting.
            _log.exception("job %s could not be swept", row.job.id, extra=labels(row.job))
            return False
        if change is None or seen is None or not isinstance(verdict, Applied):
            return False
        _say(change, verdict.job, now, charged=verdict.job.charged > seen.charged)
        if change.attempt is not None:  # no worker counts its end
            self._sums.taken(change.attempt, verdict.job)
        return True


def _certain(row: Overdue, now: datetime, rules: Rules, steps: Sequence[ClockStep] = ()) -> bool:
    return is_certain(cause_of(row.job, now, rules, alive=row.alive, unnamed=row.unnamed, steps=steps))


def _say(change: Change, job: Job, now: datetime, *, charged: bool) -> None:
    """Log what was taken from its worker, which may not be left to do so."""
    attempt = change.attempt
    if attempt is None:
        _log.info("%s: %s, now %s", name_of(job), change.verb, job.status, extra=labels(job))
    else:
        said = attempt_summary(job, attempt.outcome, now, charged=charged, began=attempt.started_at is not None)
        _log.warning("%s", said, extra=labels(job))
