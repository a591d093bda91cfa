"""The role ``workers``: which are known, which are alive, and the answers to their beats."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from headrace.core.defaults import Rules
from headrace.engine import Alive, Beat, Dead
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.pool import Pool, fetching
from headrace.engines.postgres.rows import Reader
from headrace.engines.sql.record import micros, moment
from headrace.engines.sql.workers import SqlWorkers, row_of_beat

__all__ = ["Workers"]


class Workers(SqlWorkers):
    """The role ``workers`` of one session."""

    def __init__(self, hot: Pool, cold: Pool, schema: str, rules: Rules) -> None:
        super().__init__(fetching(cold, schema), fetching(cold, schema))
        self._hot, self._schema, self._rules = hot, schema, rules

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        args = (worker, old, list(beat.held), *row_of_beat(beat, now))
        # If the connection is dead, the beat must fail early enough to be sent on another one in time.
        patience = min(self._rules.silence, 30.0)
        beats, profiles_rev, settings_rev, cancels, forgotten, there = (
            await self._hot.fetch(sql("beat", self._schema), *args, patience=patience)
        )[0]
        if beats is None:
            return Dead()
        unknown = []
        if forgotten:
            rows = await self._hot.fetch(sql("get", self._schema), forgotten)
            # The worker may have handed back or finished some of them since.
            unknown = [job for job in Reader().jobs(rows) if job.worker == worker and job.held]
            unknown.sort(key=lambda job: job.seq)
        return Alive(beats, tuple(cancels), tuple(unknown), profiles_rev, settings_rev, moment(there))
