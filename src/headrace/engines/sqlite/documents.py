"""Documents of a SQLite store: settings, profiles, leases."""

from __future__ import annotations

import apsw

from headrace.core.attempt import Event
from headrace.core.defaults import MAX_AUDIT_ENTRIES
from headrace.engine import Setting
from headrace.engines.limits_cache import readable_queue
from headrace.engines.sql.documents import SqlDocuments
from headrace.engines.sql.encoding import encode
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.validation import has_halves, refuse_text

__all__ = ["Documents"]

_QUEUE, _LIMIT = "queue:", "limit:"


class Documents(SqlDocuments):
    """The role ``documents`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread) -> None:
        super().__init__(reader.fetch, writer.fetch, lambda text: not has_halves(text))
        self._writer = writer

    async def put_setting(self, key: str, value: str | None, expect: int, act: Event | None = None) -> Setting | None:
        refuse_text(key, value)
        event = None if act is None else encode(act)
        rule = readable_queue(value) if key.startswith(_QUEUE) else None

        def write(connection: apsw.Connection) -> Setting | None:
            here = connection.execute("SELECT value, rev FROM settings WHERE key = ?", (key,)).get
            was = Setting(key, "null", 0) if here is None else Setting(key, *here)
            if was.rev != expect:
                return None
            # One counter for all settings: so a key never gets the same rev twice, even after it was deleted.
            rev: int = connection.execute("UPDATE books SET settings_rev = settings_rev + 1 RETURNING settings_rev").get
            if value is None:
                connection.execute("DELETE FROM settings WHERE key = ?", (key,))
            else:
                connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (key, value, rev))
            was_rule = readable_queue(None if here is None else was.value) if rule is not None else None
            if rule is not None and (was_rule is None or was_rule.by_customer is not rule.by_customer):
                # The subqueues of its jobs are others now: sessions forget those that they know.
                connection.execute("UPDATE books SET collected = collected + 1")
            if rule is not None:
                queue = (key.removeprefix(_QUEUE), rule.priority, rule.paused)
                connection.execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?)", queue)
            if key.startswith(_LIMIT):
                # The task may be paused now, or no longer: claims read again which subqueues they serve.
                connection.execute("UPDATE books SET subqueues_rev = subqueues_rev + 1")
            if event is not None:
                connection.execute("INSERT INTO audit (key, data) VALUES (?, ?)", (key, event))
                connection.execute(
                    "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (MAX_AUDIT_ENTRIES,)
                )
            return was if value is None else Setting(key, value, rev)

        return await self._writer.write(write)
