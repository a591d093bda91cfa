"""The shared part of the role ``documents`` for all SQL engines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from headrace.core.attempt import Event
from headrace.core.audit import Audited
from headrace.core.lifecycle.duty import void_after
from headrace.core.matching.match import Profile
from headrace.engine import Profiles, Setting
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.templates import Fetch

__all__ = ["SqlDocuments"]

_event = msgspec.json.Decoder(Event).decode


class SqlDocuments:
    """Of the role ``documents``: profiles, settings, leases."""

    def __init__(self, read: Fetch, write: Fetch, askable: Callable[[str], bool]) -> None:
        """``askable``: whether a store accepts this text in a query."""
        self._read, self._write, self._askable = read, write, askable

    async def profiles(self) -> Profiles:
        rows = await self._read("profiles")
        live = [Profile(id, task, msgspec.json.decode(needs)) for _, id, task, needs in rows if id is not None]
        return Profiles(rows[0][0], tuple(live))

    async def settings(self, prefix: str = "") -> list[Setting]:
        return [Setting(*row) for row in await self._read("settings", prefix)] if self._askable(prefix) else []

    async def audit(self, limit: int) -> list[Audited]:
        return [Audited.of(key, _event(data)) for key, data in await self._read("audit", limit)]

    async def lease(
        self, name: str, holder: UUID, seconds: float, now: datetime, longest: float | None = None
    ) -> int | None:
        until, void = now + timedelta(seconds=seconds), void_after(seconds, now, longest)
        rows = await self._write("lease", name, holder, micros(now), micros(until), micros(void))
        return rows[0][0] if rows else None

    async def unlease(self, name: str, holder: UUID) -> None:
        await self._write("unlease", name, holder)

    async def holder(self, name: str, now: datetime) -> UUID | None:
        rows = await self._read("holder", name, micros(now))
        if not rows:
            return None
        (holder,) = rows[0]
        return holder if isinstance(holder, UUID) else UUID(bytes=holder)
