"""The sweeper: buries workers that fell silent, takes their jobs back, ends what is overdue, queues what is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.account import account, name_of
from headrace.core.change import Applied, Change, Conflict
from headrace.core.clock_steps import Step
from headrace.core.defaults import Rules
from headrace.core.explain.explanation import many
from headrace.core.job import Job
from headrace.core.liveness import PAUSE, Watch, is_certain, is_dead, is_late
from headrace.core.sweep import cause_of, sweep
from headrace.engine import MAX_BATCH, Engine, Overdue
from headrace.engine.bus import Hint, Topic
from headrace.errors import Unstorable
from headrace.maintenance.elector import Duty
from headrace.maintenance.step_record import StepRecord
from headrace.runtime.host import Host
from headrace.runtime.lanes import Lanes

__all__ = ["Sweeper"]

_log = logging.getLogger("headrace.sweeper")

_TRIES = 10


class Sweeper(Duty):
    """Looks for dead workers, lost jobs, passed deadlines, due jobs and notes left over; two at once do no harm."""

    name = "sweeper"
    share = 0.75  # whoever takes over must watch for a whole lease before it may bury the one before it

    def __init__(self, engine: Engine, lanes: Lanes, host: Host, holder: UUID, *, limit: int = MAX_BATCH) -> None:
        super().__init__(engine, lanes, host, holder)
        self._limit = limit
        self._beats: Watch[tuple[UUID, int]] = Watch(self.rules.look_gap)
        self._late: Watch[tuple[UUID, int]] = Watch(self.rules.look_gap)
        self._steps = StepRecord(engine, host)
        self._again_at = float("-inf")
        """When to promote and to process notes again (monotonic)."""
        self._quiet = False
        """Whether the last sweep found no question open; then the next round leaves it out."""
        self._told = 0
        """How many jobs the last notes changed: while there are some, there may be more."""

    def pause(self) -> float:
        """Seconds until the next look."""
        return self.rules.beat * PAUSE * self._jitter()

    async def tick(self) -> int:
        """Promote, process notes, look at the workers, sweep; how many jobs and workers were moved."""
        moved, clock = 0, self.host.clock
        # Every claim promotes first, and whoever makes a change processes its notes: this is for stores where nobody
        # claims just now, and for writers that died in between.
        due = clock.monotonic() >= self._again_at
        if due:
            moved += await self.promote()
            self._again_at = clock.monotonic() + self.rules.lease
        if due or self._told:
            self._told = await self.lanes.notes.process()
            moved += self._told
        buried = await self.look()
        if buried or not self._quiet:
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
        """Look at the workers and bury those whose beat has stood still for a lease; how many."""
        clock = self.host.clock
        before = clock.monotonic()
        rows = await self.engine.workers.list()
        living = {(row.info.id, row.beats): row for row in rows if row.alive}
        self._beats.look(living, before, clock.monotonic())
        buried = 0
        for (worker, beats), row in living.items():
            seen = self._beats.of((worker, beats))
            if not is_dead(seen, self.rules):
                continue
            if await self.engine.workers.bury(worker, beats):
                buried += 1
                _log.warning(
                    "worker %s (%s, pid %d) is dead: silent for %.0f s, holding %s",
                    worker,
                    row.info.host,
                    row.info.pid,
                    # Longer than it was watched, if it died while nobody was there to watch.
                    max(seen.seconds, (clock.now() - row.beat_at).total_seconds()),
                    many(row.holds, "job"),
                )
        return buried

    async def sweep(self) -> int:
        """Decide about every overdue job, and write the changes; how many."""
        clock, total, first = self.host.clock, 0, True
        await self.host.measure(self.engine)
        while True:
            before = clock.monotonic()
            # One moment for all that follows, and the steps after it: so no step is in the moment and not among them.
            now = clock.now()
            rows = await self.engine.jobs.overdue(now, self._limit)
            self._quiet = first and not rows
            steps = await self._steps.known() if self._steps.is_behind or self._deadlines(rows, now) else ()
            late = [(row.job.id, row.job.epoch) for row in rows if not _certain(row, now, self.rules, steps)]
            if first:
                self._late.look(late, before, clock.monotonic())
            else:
                self._late.add(late, clock.monotonic())
            swept = await self._settle_all([row for row in rows if self._ripe(row, now, steps)], now, steps)
            total, first = total + swept, False
            # What is not ripe yet stays among the overdue, so a full page without a change is the end as well.
            if len(rows) < self._limit or not swept:
                break
        if total:  # also where none of them is in line again: what they held of limits is free
            self.engine.bus.send(Hint(Topic.READY))
        return total

    def _deadlines(self, rows: Sequence[Overdue], now: datetime) -> bool:
        """Whether any of these is here because of a deadline, so that it matters whether time has stepped."""
        return any(not _certain(row, now, self.rules) for row in rows)

    def _ripe(self, row: Overdue, now: datetime, steps: Sequence[Step]) -> bool:
        """Whether it can be decided now what becomes of this job."""
        if _certain(row, now, self.rules, steps):
            return True
        return is_late(self._late.of((row.job.id, row.job.epoch)), self.rules)

    async def _settle_all(self, rows: Sequence[Overdue], now: datetime, steps: Sequence[Step]) -> int:
        answers = await asyncio.gather(*(self._settle(row, now, steps) for row in rows), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer is True for answer in answers)

    async def _settle(self, row: Overdue, now: datetime, steps: Sequence[Step]) -> bool:
        """Decide about one job until the store agrees, or somebody else has moved it on; whether we moved it."""
        job, epoch = row.job, row.job.epoch
        for _ in range(_TRIES):
            change = sweep(
                job,
                now,
                self.host.dice.chance(),
                self.rules,
                alive=row.alive,
                unnamed=row.unnamed,
                heard_at=row.heard_at,
                beside_suspect=row.beside_suspect,
                steps=steps,
            )
            if change is None:
                return False
            try:
                verdict = await self.lanes.apply(change)
            except Unstorable:
                _log.exception("job %s could not be swept", job.id)  # it must not keep the others waiting
                return False
            if isinstance(verdict, Applied):
                _say(change, verdict.job, now, charged=verdict.job.charged > job.charged)
                return True
            if not isinstance(verdict, Conflict) or verdict.job.epoch != epoch:
                return False  # another owner: what we know of the worker says nothing about this one
            job = verdict.job
        return False


def _certain(row: Overdue, now: datetime, rules: Rules, steps: Sequence[Step] = ()) -> bool:
    return is_certain(cause_of(row.job, now, rules, alive=row.alive, unnamed=row.unnamed, steps=steps))


def _say(change: Change, job: Job, now: datetime, *, charged: bool) -> None:
    """Log what was taken from its worker: nobody else may be left to do so."""
    attempt = change.attempt
    if attempt is None:
        _log.info("%s: %s, now %s", name_of(job), change.verb, job.status)
    else:
        _log.warning("%s", account(job, attempt.outcome, now, charged=charged, began=attempt.started_at is not None))
