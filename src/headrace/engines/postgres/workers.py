"""The role ``workers``: which are known, which are alive, and the replies to their beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.engine import Alive, Attended, Beat, Dead, Gone, WorkerRow
from headrace.engines.postgres.jobs.rows import Reader
from headrace.engines.postgres.store.arrays import columns, literal
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.pool import Pool, fetching
from headrace.engines.postgres.store.presence import Presence
from headrace.engines.sql.encoding import micros, moment
from headrace.engines.sql.workers import CHANGED, SqlWorkers, report_of, row_of_beat

__all__ = ["Workers"]

_TEXTS = frozenset({2, *(place for place, column in enumerate(CHANGED, 3) if column.type == "text")})
"""Which of the columns of a beat are texts: the report, and what is stored of the beat."""

_numbers = msgspec.json.Decoder(list[tuple[UUID, int]]).decode
_pairs = msgspec.json.Decoder(list[tuple[UUID, UUID]]).decode


def _by_worker(found: str) -> dict[UUID, list[UUID]]:
    """Return jobs by worker, from pairs."""
    jobs: dict[UUID, list[UUID]] = {}
    for worker, job in _pairs(found):
        jobs.setdefault(worker, []).append(job)
    return jobs


class Workers(SqlWorkers):
    """The role ``workers`` of one session."""

    gone_after = 3.0  # a connection that was cut is replaced within two seconds

    def __init__(self, hot: Pool, cold: Pool, schema: str, rules: Rules, presence: Presence) -> None:
        super().__init__(fetching(cold, schema), fetching(cold, schema))
        self._hot, self._schema, self._rules, self._presence = hot, schema, rules, presence

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        return (await self.beat_many({worker: beat}, now))[worker]

    async def beat_many(self, beats: Mapping[UUID, Beat], now: datetime) -> dict[UUID, Alive | Dead]:
        if not beats:
            return {}
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        # In order, so that two that beat for the same workers do not wait for each other.
        said = [(worker, *report_of(beat), *row_of_beat(beat, now)) for worker, beat in sorted(beats.items())]
        named = [literal([worker for worker, beat in beats.items() for _ in beat.held])]
        named.append(literal([job for beat in beats.values() for job in beat.held]))
        # If the connection is dead, the beat must fail early enough to be sent on another one in time.
        patience = min(self._rules.silence, 30.0)
        profiles_rev, settings_rev, there, *told = (
            await self._hot.fetch(
                sql("beat_many", self._schema), old, *columns(said, _TEXTS), *named, patience=patience
            )
        )[0]
        numbers = dict(_numbers(told[0]))
        cancels, forgotten = (_by_worker(found) for found in told[1:])
        unknown = await self._unknown(forgotten)
        time = moment(there)
        return {
            worker: Dead()
            if worker not in numbers
            else Alive(
                numbers[worker],
                tuple(cancels.get(worker, ())),
                tuple(unknown.get(worker, ())),
                profiles_rev,
                settings_rev,
                time,
            )
            for worker in beats
        }

    async def _unknown(self, forgotten: Mapping[UUID, Sequence[UUID]]) -> dict[UUID, list[Job]]:
        """Return those of these jobs, by worker, that it still holds: some may be finished or another's by now."""
        found: dict[UUID, list[Job]] = {}
        if forgotten:
            holder = {job: worker for worker, jobs in forgotten.items() for job in jobs}
            rows = await self._hot.fetch(sql("get", self._schema), list(holder))
            for job in sorted(Reader().jobs(rows), key=lambda job: job.seq):
                if (worker := holder[job.id]) == job.worker:
                    found.setdefault(worker, []).append(job)
        return found

    async def attend(self, worker: UUID) -> Attended | None:
        return await self._presence.attend(worker)

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        return await self._presence.gone(rows)
