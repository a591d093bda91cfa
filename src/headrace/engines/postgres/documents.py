"""Settings, leases and profiles: the small documents of the store."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from headrace.core.match import Profile
from headrace.engine import Profiles, Setting
from headrace.engines.postgres.connection import askable, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.record import micros
from headrace.engines.refusing import refuse_text
from headrace.engines.rulebook import readable_queue

__all__ = ["Documents"]

_QUEUE = "queue:"


class Documents:
    """The role ``documents`` of one session."""

    def __init__(self, hot: Pool, cold: Pool, schema: str) -> None:
        self._hot, self._cold, self._schema = hot, cold, schema

    async def profiles(self) -> Profiles:
        rows = await self._cold.fetch(sql("profiles", self._schema))
        live = [Profile(id, task, msgspec.json.decode(needs)) for _, id, task, needs in rows if id is not None]
        return Profiles(rows[0][0], tuple(live))

    async def settings(self, prefix: str = "") -> list[Setting]:
        if not askable(prefix):
            return []
        return [Setting(*row) for row in await self._cold.fetch(sql("settings", self._schema), prefix)]

    async def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        refuse_text(key, value)
        rule = readable_queue(value) if key.startswith(_QUEUE) else None
        queue = (None, None, None) if rule is None else (key.removeprefix(_QUEUE), rule.priority, rule.paused)
        async with self._cold.transaction() as connection:
            await connection.fetch(sql("lock_books", self._schema))
            written = await connection.fetchrow(sql("put_setting", self._schema), key, value, expect, *queue)
        if written is None:
            return None
        rev, was = written
        return Setting(key, "null" if was is None else was, expect) if value is None else Setting(key, value, rev)

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        args = (name, holder, micros(now), micros(now + timedelta(seconds=seconds)))
        rows = await self._hot.fetch(sql("lease", self._schema), *args)
        return rows[0][0] if rows else None

    async def unlease(self, name: str, holder: UUID) -> None:
        await self._hot.fetch(sql("unlease", self._schema), name, holder)
