"""Records of a SQLite store: find, count, history, ledger, usage, position, load.

They are read on connections that cannot write, so that no reader delays a writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import apsw
import msgspec

from headrace.core.attempt import ErrorInfo, History
from headrace.core.explain.position import MAX_COUNTED_JOBS, PACE_WINDOW_SECONDS, Position
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.stats.load import LOAD_MINUTES, MAX_LOAD_JOBS, Loads
from headrace.engine.transactions import walk
from headrace.engines.sql.reader import history_of
from headrace.engines.sql.records import SqlRecords, load_asked, loads_in, position_asked, position_of
from headrace.engines.sql.search.dialect import Asked, Asking, Dialect
from headrace.engines.sql.search.finder import Finder
from headrace.engines.sql.verification import counting
from headrace.engines.sqlite.jobs.rows import shown_of
from headrace.engines.sqlite.store.connection import ask
from headrace.engines.sqlite.store.thread import DbThread, bound
from headrace.engines.validation import has_halves

__all__ = ["Records", "prepare"]

T = TypeVar("T")

_error = msgspec.json.Decoder(ErrorInfo).decode

DIALECT = Dialect(
    prefix="",
    subqueue_shift=10,
    time_shift=12,
    state="(j.state ->> {})",
    number="",
    created="j.created_at",
    task="(SELECT p.task FROM subqueues l JOIN profiles p ON p.id = l.profile WHERE l.id = j.subqueue)",
    has_error="(SELECT error FROM ends WHERE seq = j.seq) IS NOT NULL",
    error_type="(SELECT error ->> 'type' FROM ends WHERE seq = j.seq)",
    page="SELECT (SELECT doc FROM record WHERE seq = found.seq) FROM ({found}) found ORDER BY found.seq DESC",
    body="",
    join="CROSS JOIN",
    by_status=frozenset({5}),
    by_number="jobs j NOT INDEXED",
    blocks_of_subqueues=(
        "SELECT DISTINCT x.block FROM json_each(?) l CROSS JOIN subqueue_blocks x"
        " ON x.subqueue = l.value AND x.block < ? ORDER BY x.block DESC LIMIT ?"
    ),
    ranges="json_each(?) k CROSS JOIN jobs j ON j.seq >= (k.value ->> 0) AND j.seq < (k.value ->> 1)",
    all_of_them=" LIMIT -1 OFFSET 0",
)


def prepare(connection: apsw.Connection) -> None:
    """Make a reading connection search text as ``core.query.matches`` does."""

    def mentions(*args: Any) -> bool:
        place, text = args
        return text in place.lower()

    def mentions_error(*args: Any) -> bool:
        document, text = args
        try:
            error = _error(document)
        except msgspec.MsgspecError:
            return True  # it is checked again, and shown as one that cannot be read
        return text in error.type.lower() or text in error.message.lower()

    connection.create_scalar_function("mentions", mentions, 2, deterministic=True)
    connection.create_scalar_function("mentions_error", mentions_error, 2, deterministic=True)


class Finding(Finder):
    """Searches on a thread of its own."""

    def __init__(self, searcher: DbThread) -> None:
        super().__init__(DIALECT)
        self._searcher = searcher

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        wanted = True

        def act(connection: apsw.Connection) -> T:
            def execute(asked: Asked) -> list[Any]:
                if not wanted:
                    raise asyncio.CancelledError
                text, values = asked
                return connection.execute(text, [bound(value) for value in values]).fetchall()

            connection.execute("BEGIN")
            answer = walk(begin(), execute)
            connection.execute("COMMIT")
            return answer

        try:
            return await self._searcher.run(act)
        finally:
            wanted = False  # a cancelled caller keeps no search behind this one waiting

    def read(self, rows: Sequence[Any]) -> list[Job]:
        return shown_of([row[0] for row in rows])

    def label(self, text: str) -> str:
        return text

    def is_storable(self, filter: Filter) -> bool:
        return not has_halves(*filter.texts, filter.text)

    def text(self, text: str) -> Asked:
        return ask("find_text"), [text] * ask("find_text").count("?")


class Records(SqlRecords):
    """The role ``records`` of one session.

    Statements that may read many jobs run on a thread of their own, so that reads of single jobs need not wait.
    """

    def __init__(self, reader: DbThread, searcher: DbThread) -> None:
        super().__init__(reader.fetch, searcher.fetch, Finding(searcher))
        self._searcher = searcher

    async def history(self, id: UUID) -> History:
        rows = await self._read("history", id)
        return history_of(*rows[0]) if rows else History()

    async def _compare(self, book: str, *args: Any) -> Sequence[Any]:
        statement = counting(book, ask(f"verify_{book}"))
        return await self._searcher.run(lambda connection: connection.execute(statement, args).fetchall())

    async def position(
        self, job: Job, now: datetime, window: float = PACE_WINDOW_SECONDS, most: int = MAX_COUNTED_JOBS
    ) -> Position:
        *place, statuses, since = position_asked(job, now, window, most)
        return position_of(*(await self._search("position", *place, *statuses, since))[0])

    async def load(
        self, now: datetime, minutes: int = LOAD_MINUTES, most: int = MAX_LOAD_JOBS, recent: int = MAX_COUNTED_JOBS
    ) -> Loads:
        *bounds, statuses, since = load_asked(now, minutes, most, recent)
        return loads_in(await self._search("load", *bounds, *statuses, since), since)
