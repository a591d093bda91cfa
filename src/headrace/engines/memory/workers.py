"""Workers of a memory store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from headrace.core.batch import cursor_at
from headrace.core.lifecycle.departure import Departure
from headrace.core.lifecycle.suspects import ran_together
from headrace.core.query import Page
from headrace.engine import MAX_BATCH, Alive, Attended, Beat, Dead, Gone, GoneWorker, Watched, WorkerInfo, WorkerRow
from headrace.engine.workers import last_gone_first
from headrace.engines.memory.state import Role, State, Worker

__all__ = ["Workers"]


class Workers(Role):
    """The role ``workers`` of one session."""

    gone_after = 0.0  # no worker is ever found gone: all users of this store share its process

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        with self._state() as state:
            state.workers.setdefault(info.id, Worker(info, now))

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        return (await self.beat_many({worker: beat}, now))[worker]

    async def beat_many(self, beats: Mapping[UUID, Beat], now: datetime) -> dict[UUID, Alive | Dead]:
        with self._state() as state:
            return {worker: _beat(state, worker, beat, now) for worker, beat in beats.items()}

    async def attend(self, worker: UUID) -> Attended | None:
        return None

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        return Gone()

    async def watched(self, worker: UUID, watched: Watched) -> None:
        with self._state() as state:
            if state.is_alive(worker) and state.workers[worker].beats == watched.beats:
                state.workers[worker].watched = watched

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        with self._state() as state:
            row = state.workers.get(worker)
            if row is None or not row.alive or row.beats != beats:
                return False
            held = (state.table.records[id] for id in state.table.held.get(worker, ()))
            row.beside_suspect = ran_together(held)
            row.mass_death = mass_death
            _record(state, row, departure)
            state.die(worker)
            return True

    async def retire(self, worker: UUID, *, departure: Departure | None = None) -> None:
        with self._state() as state:
            if state.is_alive(worker):
                _record(state, state.workers[worker], departure)
            state.die(worker)

    async def find_gone(self, limit: int = 50, cursor: str | None = None) -> Page[GoneWorker]:
        below = cursor_at(cursor)
        with self._state() as state:
            found = sorted((one for one in state.gone.values() if one.place < below), key=lambda one: one.place)
            return last_gone_first(found[::-1], limit)

    async def get_gone(self, worker: UUID) -> GoneWorker | None:
        with self._state() as state:
            return state.gone.get(worker)

    async def forget_gone(self, before: datetime, limit: int = MAX_BATCH) -> int:
        with self._state() as state:
            found = sorted(
                (one for one in state.gone.values() if one.departure.at <= before), key=lambda one: one.place
            )
            for one in found[:limit]:
                del state.gone[one.row.info.id]
            return len(found[:limit])

    async def list(self) -> list[WorkerRow]:
        with self._state() as state:
            held = state.table.held
            state.workers = {id: row for id, row in state.workers.items() if row.alive or id in held}
            rows = sorted(state.workers.values(), key=lambda row: row.info.started_at)
            return [_row(row, len(held.get(row.info.id, ()))) for row in rows]


def _row(row: Worker, holds: int) -> WorkerRow:
    return WorkerRow(row.info, row.beat, row.beats, row.beat_at, row.alive, holds, watched=row.watched)


def _record(state: State, row: Worker, departure: Departure | None) -> None:
    if departure is not None:
        held = [state.table.records[id] for id in state.table.held.get(row.info.id, ())]
        state.gone[row.info.id] = GoneWorker.of(_row(row, len(held)), departure, held)


def _beat(state: State, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
    if not state.is_alive(worker):
        return Dead()
    row, table = state.workers[worker], state.table
    row.beat, row.beats, row.beat_at = beat.kept, row.beats + 1, now
    if beat.finished and beat.report > row.reported:
        row.reported = beat.report
        state.rollups += beat.finished
    held, named = table.held.get(worker, {}), frozenset(beat.held)
    old = now - timedelta(seconds=2 * state.rules.beat)
    jobs = sorted((table.records[id] for id in held), key=lambda job: job.seq)
    unknown = []
    for job in jobs:
        if job.assigned_at is not None and job.assigned_at <= old:
            held[job.id] = 0 if job.id in named else held[job.id] + 1
            if job.id not in named:
                unknown.append(job)
    cancels = tuple(job.id for job in jobs if job.cancel_requested_at is not None)
    return Alive(row.beats, cancels, tuple(unknown), table.profiles_rev, state.settings_rev)
