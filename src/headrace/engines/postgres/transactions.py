"""The role ``transactions``: inserts and changes within a user's transaction, on a connection of any known driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from headrace.core.change import Change, KeyEffect, Verdict
from headrace.core.job import Job
from headrace.engine import Companions, Enlisted, InsertAnswer, Statements
from headrace.engines.postgres.jobs.apply import Applying, Inserts
from headrace.engines.postgres.jobs.insert import Inserting
from headrace.engines.postgres.jobs.rows import key_lock
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.drivers import Waiting, enlist
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import encode
from headrace.engines.sql.subqueues import Collected
from headrace.errors import HeadraceError, Unavailable

__all__ = ["Transactions"]


class Transactions:
    """The role ``transactions`` of one session."""

    def __init__(self, lent: Pool, schema: str, inserting: Inserting, applying: Applying) -> None:
        self._lent, self._schema, self._inserting, self._applying = lent, schema, inserting, applying

    def enlist(self, connection: Any) -> Enlisted:
        return enlist(connection)

    async def inserting(
        self, jobs: Sequence[Job], now: datetime, *, companions: Companions | None = None
    ) -> Statements[list[InsertAnswer]]:
        return await self._inserting.statements(jobs, companions, now=now)

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        inserts = await self._inserting.of_changes(change.inserts) if change.inserts else None
        await self._inserting.subqueues.renew([change.job])
        return self._apply(change, inserts, *await self._applying.moving(change, now))

    def _apply(
        self, change: Change, inserts: Inserts | None, moving: Statements[None] | None, none: HeadraceError | None
    ) -> Statements[Verdict]:
        # This transaction may stay open for long. With the key locked, an insert that wants it is refused for now
        # instead of waiting for this transaction.
        if change.key is KeyEffect.RELEASE and change.job.spec.dedup is not None:
            document, trying = encode([key_lock(self._schema, change.job)]), sql("try_keys", self._schema)
            yield Waiting(sql("lock_keys", self._schema), document, trying)
        if moving is not None:
            try:
                yield from moving
            except Collected:
                raise Unavailable("the place of this job was just given up as unused: try again") from None
        return (yield from self._applying.statements(change, inserts, none))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._lent.lent()
