"""The role ``jobs``: insert, claim and apply, which have modules of their own, and the smaller verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Overdue, OverdueJobs
from headrace.engines.postgres.jobs.apply import Applying
from headrace.engines.postgres.jobs.claim import Claiming
from headrace.engines.postgres.jobs.insert import Inserting
from headrace.engines.postgres.jobs.rows import Reader
from headrace.engines.postgres.store.arrays import literal
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import LOWEST, micros, moment

__all__ = ["Jobs", "delete_old", "delete_tied"]

_MAX_LEDGER_ROWS = 1000
"""How many rows the ledger, and the counts beside it, may have before they are summed up."""
_KINDS = ("completed", "failed", "cancelled")


def delete_old(schema: str) -> str:
    """Return the statement that removes old jobs. $1 statuses, $2 their moments, $3 how many, $4 the latest moment, $5
    the moments up to which they were checked before, $6 now"""
    return sql("find_old", schema) + sql("delete", schema, latest=_latest(4, schema))


def delete_tied(schema: str) -> str:
    """Return the statement that removes locked jobs that others once waited for. $1 seqs, $2 the latest moment"""
    return sql("find_tied", schema) + sql("delete", schema, latest=_latest(2, schema))


def _latest(parameter: int, schema: str) -> str:
    """Return the latest moment up to which jobs are removed: core.lifecycle.retention.latest_end."""
    ends = f"SELECT max(j.finished_at) FROM old o JOIN {schema}.jobs j ON j.seq = o.seq"
    return f"(SELECT greatest(${parameter}::bigint, ({ends})))"


class Jobs:
    """The role ``jobs`` of one session."""

    def __init__(
        self, hot: Pool, cold: Pool, schema: str, inserting: Inserting, claiming: Claiming, applying: Applying
    ) -> None:
        self._hot, self._cold, self._schema = hot, cold, schema
        # The methods themselves, without a call in between: they run for every batch of jobs.
        self.insert, self.insert_one, self.realign = inserting.insert, inserting.insert_one, inserting.realign
        self.claim, self.promote = claiming.claim, claiming.promote
        self.apply = applying.apply

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> OverdueJobs:
        reader = Reader()
        rows = await self._hot.fetch(sql("overdue", self._schema), micros(now), limit)
        jobs = tuple(
            Overdue(reader.job(row[6:]), alive, unnamed, None if beat_at is None else moment(beat_at), *of_burial)
            for row in rows
            for alive, unnamed, beat_at, *of_burial in (row[1:6],)
            if alive is not None  # else the row is there for the next deadline alone
        )
        next_at = rows[0][0]
        return OverdueJobs(jobs, None if next_at is None else moment(next_at))

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        if not before:
            return 0
        # As a text: for arrays of any other type the driver first queries the server for the type, on each connection.
        moments = f"{{{','.join(str(micros(moment)) for moment in before.values())}}}"
        done = {} if since is None else {status: micros(moment) for status, moment in since.items()}
        sinces = f"{{{','.join(str(done.get(status, LOWEST)) for status in before)}}}"
        latest = max(map(micros, before.values()))
        statuses = [str(status) for status in before]
        until = LOWEST if now is None else micros(now)
        args = statuses, moments, limit, latest, sinces, until
        [(removed, tied)] = await self._hot.fetch(delete_old(self._schema), *args)
        count: int = removed
        if tied != "{}":
            async with self._hot.transaction() as connection:
                # With these jobs locked, an insert that waits for one has committed before this, or comes too late.
                held = [seq for (seq,) in await connection.fetch(sql("hold_ended", self._schema), tied)]
                count += await connection.fetchval(delete_tied(self._schema), literal(held), latest)
        await self._sum_up("ledger", "accepted", "pruned")
        if count:
            await self._sum_up("pruned", *(f"{whose}{kind}" for whose in ("", "own_") for kind in _KINDS))
        return count

    async def _sum_up(self, table: str, *columns: str) -> None:
        """Sum up what is only ever added, where there is much: each insert adds a row to the ledger."""
        rows = f"SELECT 1 FROM {self._schema}.{table} LIMIT {_MAX_LEDGER_ROWS}"
        few = f"SELECT count(*) < {_MAX_LEDGER_ROWS} FROM ({rows}) t"
        if (await self._cold.fetch(few))[0][0]:
            return
        sums = ", ".join(f"sum({column})" for column in columns)
        statement = sql("sum_up", self._schema, table=table, columns=", ".join(columns), sums=sums)
        while (await self._cold.fetch(statement, _MAX_LEDGER_ROWS * 10))[0][0] == _MAX_LEDGER_ROWS * 10:
            pass

    async def changed(self, known: Sequence[tuple[UUID, int]]) -> list[UUID]:
        ids, revs = [id for id, _ in known], [rev for _, rev in known]
        return [row[0] for row in await self._hot.fetch(sql("changed", self._schema), ids, revs)]

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        rows = await self._hot.fetch(sql("get", self._schema), list(dict.fromkeys(ids)))
        jobs = {job.id: job for job in Reader().jobs(rows)}
        return [jobs.get(id) for id in ids]
