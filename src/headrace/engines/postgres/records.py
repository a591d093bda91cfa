"""The role ``records``: find and count jobs, their histories, and their positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from headrace.core.attempt import History
from headrace.core.explain.position import MAX_COUNTED_JOBS, PACE_WINDOW_SECONDS, Position
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.stats.load import LOAD_MINUTES, MAX_LOAD_JOBS, Loads
from headrace.core.status import Status
from headrace.engine.transactions import walk_async
from headrace.engines.postgres.jobs.rows import Reader, label
from headrace.engines.postgres.store.connection import askable, sql
from headrace.engines.postgres.store.pool import Pool, fetching
from headrace.engines.sql.encoding import STAGES, encode
from headrace.engines.sql.reader import history_of
from headrace.engines.sql.records import SqlRecords, load_asked, loads_in, position_asked, position_of
from headrace.engines.sql.search.dialect import Asked, Asking, Dialect
from headrace.engines.sql.search.finder import Finder
from headrace.engines.sql.verification import counting

__all__ = ["Records"]

T = TypeVar("T")

_PARKED = [status.value for status in Status if STAGES[status] == 0]
"""The statuses of jobs that are not queued yet."""


def _dialect(schema: str) -> Dialect:
    tables = {"jobs": f"{schema}.jobs", "bodies": f"{schema}.bodies"}
    return Dialect(
        prefix=f"{schema}.",
        subqueue_shift=10,
        time_shift=13,
        state="(j.state::json ->> {})",
        number="::integer",
        created="b.created_at",
        task=f"(SELECT p.task FROM {schema}.subqueues l JOIN {schema}.profiles p ON p.id = l.profile"
        " WHERE l.id = j.subqueue)",
        has_error="j.error IS NOT NULL",
        error_type="(SELECT i.error::json ->> 'type' FROM {jobs} i WHERE i.seq = j.seq)".format(**tables),
        page=sql("find", schema),
        body=" JOIN {bodies} b ON b.id = j.id".format(**tables),
        join="JOIN",
        by_status=frozenset({0, 5}),
        by_number=f"{schema}.jobs j",
        blocks_of_subqueues=sql("blocks_of_subqueues", schema),
        ranges="json_array_elements(?::text::json) AS k (r) CROSS JOIN LATERAL (SELECT * FROM {jobs} i"
        " WHERE i.seq >= (k.r ->> 0)::bigint AND i.seq < (k.r ->> 1)::bigint OFFSET 0) j".format(**tables),
        all_of_them=" OFFSET 0",
    )


class Finding(Finder):
    """Searches on connections of their own."""

    def __init__(self, pool: Pool, schema: str) -> None:
        super().__init__(_dialect(schema))
        self._pool, self._schema = pool, schema

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        async with self._pool.snapshot() as connection:

            async def execute(asked: Asked) -> list[Any]:
                text, values = asked
                numbers = count(1)
                numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", text)
                return await connection.fetch(
                    numbered, *(encode(one) if isinstance(one, list) else one for one in values)
                )

            return await walk_async(begin(), execute)

    def read(self, rows: Sequence[Any]) -> list[Job]:
        return Reader().shown(rows)

    def label(self, text: str) -> str:
        return label(text)

    def is_storable(self, filter: Filter) -> bool:
        return askable(*filter.texts)

    def text(self, text: str) -> Asked:
        if not askable(text):
            return "j.error IS NOT NULL", []  # the error is a user's text and may have anything
        asked = sql("find_text", self._schema)
        return asked, [text] * asked.count("?")


class Records(SqlRecords):
    """The role ``records`` of one session."""

    def __init__(self, hot: Pool, search: Pool, schema: str) -> None:
        super().__init__(fetching(hot, schema), fetching(search, schema), Finding(search, schema))
        self._pool, self._schema = search, schema

    async def _standing(self, at: int) -> list[Any]:
        return await self._by_index("count_standing", at, Status.FAILED.value, _PARKED)

    async def _by_index(self, name: str, *args: Any) -> list[Any]:
        """Count live jobs."""
        async with self._pool.snapshot() as connection:
            # One long queue is most of the table, so the planner would count it by reading all history, too. Nor may it
            # use several processes: it runs repeatedly beside workers, which need them more.
            await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL max_parallel_workers_per_gather = 0")
            return await connection.fetch(sql(name, self._schema), *args)

    async def history(self, id: UUID) -> History:
        rows = await self._search("history", id)
        return history_of(*rows[0]) if rows else History()

    async def _compare(self, book: str, *args: Any) -> Sequence[Any]:
        return await self._pool.fetch(counting(book, sql(f"verify_{book}", self._schema), f"{self._schema}."), *args)

    async def position(
        self, job: Job, now: datetime, window: float = PACE_WINDOW_SECONDS, most: int = MAX_COUNTED_JOBS
    ) -> Position:
        return position_of(*(await self._read("position", *position_asked(job, now, window, most)))[0])

    async def load(
        self, now: datetime, minutes: int = LOAD_MINUTES, most: int = MAX_LOAD_JOBS, recent: int = MAX_COUNTED_JOBS
    ) -> Loads:
        asked = load_asked(now, minutes, most, recent)
        return loads_in(await self._by_index("load", *asked), asked[-1])
