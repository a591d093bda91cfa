"""Settings, leases and profiles: the small documents of the store."""

from __future__ import annotations

from headrace.core.attempt import Event
from headrace.core.defaults import MAX_AUDIT_ENTRIES
from headrace.engine import Setting
from headrace.engines.limits_cache import readable_queue
from headrace.engines.postgres.store.connection import askable, sql
from headrace.engines.postgres.store.pool import Pool, fetching
from headrace.engines.sql.documents import SqlDocuments
from headrace.engines.sql.encoding import encode
from headrace.engines.validation import refuse_text

__all__ = ["Documents"]

_QUEUE = "queue:"


class Documents(SqlDocuments):
    """The role ``documents`` of one session."""

    def __init__(self, hot: Pool, cold: Pool, schema: str) -> None:
        super().__init__(fetching(cold, schema), fetching(hot, schema), askable)
        self._cold, self._schema = cold, schema

    async def put_setting(self, key: str, value: str | None, expect: int, act: Event | None = None) -> Setting | None:
        refuse_text(key, value)
        rule = readable_queue(value) if key.startswith(_QUEUE) else None
        queue = (None, None, None) if rule is None else (key.removeprefix(_QUEUE), rule.priority, rule.paused)
        event = None if act is None else encode(act)
        async with self._cold.transaction() as connection:
            await connection.fetch(sql("lock_books", self._schema))
            written = await connection.fetchrow(sql("put_setting", self._schema), key, value, expect, *queue, event)
            if event is not None and written is not None:
                await connection.execute(sql("trim_audit", self._schema), MAX_AUDIT_ENTRIES)
        if written is None:
            return None
        rev, was = written
        before = readable_queue(was) if rule is not None else None
        if rule is not None and (before is None or before.by_customer is not rule.by_customer):
            # The subqueues of its jobs are others now: sessions forget those that they know. After the commit, because
            # all see this at once, and then read the settings.
            await self._cold.fetch(f"SELECT nextval('{self._schema}.collections')")
        return Setting(key, "null" if was is None else was, expect) if value is None else Setting(key, value, rev)
