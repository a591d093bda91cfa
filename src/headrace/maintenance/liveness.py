"""Watches workers, and buries those that died: at once where the kernel or the server proves it, else by checks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from headrace.core.explain.explanation import many
from headrace.core.lifecycle.departure import Departure, How
from headrace.core.lifecycle.liveness import Seen, Watch, died_together, is_dead, is_gone, patience
from headrace.engine import Engine, Watched, WorkerRow
from headrace.logs import short
from headrace.maintenance.attendance import Program, programs_of
from headrace.runtime.host import Host

__all__ = ["LivenessWatch"]

_log = logging.getLogger("headrace.sweeper")

PROBE_SECONDS = 1.0
"""Seconds between two probes."""
_FAST_PROBE_SECONDS = 0.1
"""Seconds between two probes of a worker that is known to have ended."""
_OVERDUE_LEASE_RATIO = 0.5
"""Of a lease, after which a silent worker is checked as often as it is probed, and the checks are put on record."""
_PROGRAM_POLL_LEASES = 4
"""Leases between two reads for programs of which no hint came."""
_SLACK_SECONDS = 0.02

_Key = tuple[UUID, int, bool]
"""A worker, its beat, and whether it was cut off since."""


class LivenessWatch:
    """What one sweeper knows of the workers of a store."""

    def __init__(self, engine: Engine, host: Host, holder: UUID) -> None:
        """``holder``: the worker or the program that watches, and is on record as who buried."""
        self._engine, self._host, self._holder, self._rules = engine, host, holder, engine.rules
        self._living: dict[UUID, WorkerRow] = {}
        self._programs: dict[UUID, Program] = {}
        self._programs_at = float("-inf")
        """The programs that hold duties, or would, and are no workers."""
        self._beats: Watch[_Key] = Watch(self._rules.look_gap)
        self._before: dict[_Key, Seen] = {}
        """What was on record of a beat when this watch first saw it."""
        self._free: Watch[tuple[_Key, int]] = Watch(self._rules.look_gap)
        self._found: frozenset[UUID] = frozenset()
        """The workers that were gone at the last probe."""
        self._dying: frozenset[UUID] = frozenset()
        """Of several that were found gone at the same time: those that are still to be buried."""
        self._silent: frozenset[UUID] = frozenset()
        """The same of several that were dead by the same check."""
        self._ripe_in: float | None = None
        """Seconds after which the first of them is dead if it is still gone then."""
        self._probed_at = float("-inf")
        self._hurry = _FAST_PROBE_SECONDS
        self._recorded_at: dict[_Key, float] = {}
        self.ended: UUID | None = None
        """A worker that is known to have ended: its burial waits only for what its process left behind."""
        self.stale = True
        """Whether workers came or went since the last check, as far as hints say."""

    @property
    def probe(self) -> float:
        """Seconds between two probes."""
        return min(PROBE_SECONDS, self._rules.beat / 4)

    def next_in(self, ids: Iterable[UUID], *, looking: bool = False) -> float:
        """Seconds until these are worth another probe, or another check; for ever, if they are not."""
        return max(0.0, self._probed_at + self._interval(ids, looking) - self._host.clock.monotonic())

    def _interval(self, ids: Iterable[UUID], looking: bool) -> float:
        if self.ended is not None:
            return self._hurry
        if not self._provable(ids):
            return self.probe if looking and self.overdue else float("inf")
        return (
            self.probe
            if self._ripe_in is None
            else max(_SLACK_SECONDS, min(self.probe, self._ripe_in + _SLACK_SECONDS))
        )

    def others(self, own: UUID) -> list[UUID]:
        """All living workers and programs but this one, as of the last check."""
        return [id for id in (*self._living, *self._programs) if id != own]

    def _provable(self, ids: Iterable[UUID]) -> list[WorkerRow]:
        """Those of these with a proof of life, so that their death can be proved."""
        rows = {**self._living, **{id: program.row for id, program in self._programs.items()}}
        return [row for id in ids if (row := rows.get(id)) is not None and row.proof is not None]

    @property
    def overdue(self) -> bool:
        """Whether a living worker is late with its beat, by the clock; that buries none, but is worth a check."""
        return any(self._is_overdue(row) for row in self._living.values())

    @property
    def holding(self) -> bool:
        """Whether a living worker holds a job, as of the last check."""
        return any(row.holds for row in self._living.values())

    async def look(self) -> int:
        """Check all workers, bury those without a beat for a lease, put the others' beats on record."""
        clock, buried = self._host.clock, 0
        before = clock.monotonic()
        stale, self.stale = self.stale, False
        # Programs send a hint when they come. One with a lost hint is found later; its duties are leased for seconds.
        rows = await self.meet(programs=stale or before - self._programs_at >= _PROGRAM_POLL_LEASES * self._rules.lease)
        self._beats.look(map(_key, rows), before, clock.monotonic())
        self._before = {key: known for row in rows if (known := self._record_of(row, key := _key(row)))}
        seen = [(row, self._beats.of(_key(row)), self._before.get(_key(row), _NEVER)) for row in rows]
        dead = [row for row, own, earlier in seen if is_dead(own, self._rules, earlier.seconds, self._timeout(row))]
        self._silent = _together(dead, self._silent)
        for row, own, earlier in seen:
            if row in dead:
                silent = max(own.seconds + earlier.seconds, (clock.now() - row.beat_at).total_seconds())
                cut_off = row.grace is not None
                buried += await self._bury(row, How.CUT_OFF if cut_off else How.SILENT, silent)
            elif row.grace is None and self._is_overdue(row):  # that of one that was cut off must not be overwritten
                await self._record(row, Seen(own.looks + earlier.looks, own.seconds + earlier.seconds))
        return buried

    async def find(self, ids: Iterable[UUID]) -> int:
        """Probe these workers, and all if one of them is gone; bury those found gone twice; how many."""
        ids, buried = set(ids), 0
        self._probed_at = self._host.clock.monotonic()
        if self.ended is not None:
            ids.add(self.ended)
            self._hurry = min(self._hurry * 1.2, self.probe)  # a child of its may run on for long
            if self.ended not in self._living:
                await self.meet()
            buried += await self._bury_ended()
        rows = self._provable(ids)
        if not rows:
            self._found, self._ripe_in = frozenset(), None
            return buried
        clock, workers = self._host.clock, self._engine.workers
        before = clock.monotonic()
        found = await workers.gone(rows)
        everybody = self._provable((*self._living, *self._programs))
        if found.workers and len(rows) < len(everybody):
            found = await workers.gone(everybody)  # who died with it
        after = clock.monotonic()
        if found.workers - self._found:
            await self.meet()  # from here on its beat must stand still
        self._found = found.workers
        gone = self._provable(found.workers)
        self._dying = _together(gone, self._dying)
        self._free.look(((_key(row), found.by) for row in gone), before, after)
        self._ripe_in = None
        for row in gone:
            seen = self._free.of((_key(row), found.by))
            if row.info.id == self.ended or is_gone(seen, workers.gone_after):
                buried += await self._bury(row, How.ENDED)
            else:
                left = workers.gone_after - seen.seconds
                self._ripe_in = left if self._ripe_in is None else min(left, self._ripe_in)
        return buried

    async def _bury_ended(self) -> int:
        """Bury the one that is known to have ended, if nothing could be held for it; forget it when it is buried."""
        row = None if self.ended is None else self._living.get(self.ended)
        if row is not None and row.proof is not None:
            return 0
        if row is None:
            self.ended = None
            return 0
        return await self._bury(row, How.ENDED)

    async def meet(self, *, programs: bool = True) -> list[WorkerRow]:
        """Read which workers live, without judging any; also which ``programs``."""
        rows = [row for row in await self._engine.workers.list() if row.alive]
        self._living = {row.info.id: row for row in rows}
        if programs:
            self._programs, self._programs_at = await programs_of(self._engine), self._host.clock.monotonic()
        return rows

    async def _bury(self, row: WorkerRow, how: How, silent: float | None = None) -> int:
        worker = row.info.id
        departure = Departure(at=self._host.clock.now(), how=how, by=self._holder, silent=silent)
        if worker in self._programs:
            buried = await self._programs[worker].bury(self._engine)
        else:
            mass_death = worker in self._dying | self._silent
            workers = self._engine.workers
            buried = await workers.bury(worker, row.beats, mass_death=mass_death, departure=departure)
        # Only now: if the store does not reply, what is known of the worker is still true.
        program = self._programs.pop(worker, None)
        self._living.pop(worker, None)
        self._found -= {worker}
        self._dying -= {worker}
        self._silent -= {worker}
        if worker == self.ended:
            self.ended = None
        if not buried:
            self.stale = True
            return 0
        who = short(worker), row.info.host, row.info.pid
        if program is not None:
            _log.warning("program %s (%s, pid %d) is dead: %s; its duties are free", *who, departure.told)
            return 1
        held = many(row.holds, "job")
        said = "worker %s (%s, pid %d) is dead: %s, holding %s"
        _log.warning(said, *who, departure.told, held, extra={"worker": str(worker)})
        return 1

    def _record_of(self, row: WorkerRow, key: _Key) -> Seen | None:
        """What others had seen of this beat when this watch began to see it."""
        if self._beats.of(key).looks > 1:
            return self._before.get(key)
        known = row.watched
        return None if known is None or known.beats != row.beats else Seen(known.looks, known.seconds)

    async def _record(self, row: WorkerRow, seen: Seen) -> None:
        """Put on record for how long a beat was seen, so that the next watch need not begin anew."""
        now, key = self._host.clock.monotonic(), _key(row)
        if seen.looks > 1 and now - self._recorded_at.get(key, float("-inf")) >= self._rules.beat / 5:
            self._recorded_at = {key: at for key, at in self._recorded_at.items() if key[0] in self._living}
            self._recorded_at[key] = now
            await self._engine.workers.watched(row.info.id, Watched(row.beats, seen.looks, seen.seconds))

    def _timeout(self, row: WorkerRow) -> float:
        return patience(row.lease(self._rules), row.grace)

    def _is_overdue(self, row: WorkerRow) -> bool:
        return row.grace is not None or (
            self._host.clock.now() - row.beat_at
        ).total_seconds() > _OVERDUE_LEASE_RATIO * row.lease(self._rules)


_NEVER = Seen(0, 0.0)


def _together(dead: Iterable[WorkerRow], before: frozenset[UUID]) -> frozenset[UUID]:
    """Those of the dead that died with others; ``before``: the same at an earlier finding: some may be left of it."""
    by_id = {row.info.id: (row.info.host, row.info.pid) for row in dead}
    return frozenset(by_id) if died_together(by_id.values()) else before & frozenset(by_id)


def _key(row: WorkerRow) -> _Key:
    return row.info.id, row.beats, row.grace is not None
