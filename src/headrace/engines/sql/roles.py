"""What roles do alike in every SQL engine: verbs that are asked for now and then, each one statement of ``sql/``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from headrace.core.entry import BEGIN, Cursor, Entry, Kind
from headrace.core.lease import SLACK
from headrace.core.match import Profile
from headrace.engine import MAX_BATCH, Beat, Profiles, Setting, WorkerInfo, WorkerRow
from headrace.engines.record import encode, micros, moment

__all__ = ["Fetch", "SqlDocuments", "SqlEntries", "SqlWorkers"]

_info = msgspec.json.Decoder(WorkerInfo).decode
_beat = msgspec.json.Decoder(Beat).decode


class Fetch(Protocol):
    """Runs the statement of this name, in a commit of its own; the rows that it answers."""

    async def __call__(self, name: str, *args: Any) -> list[Any]: ...


class SqlDocuments:
    """Of the role ``documents``: profiles, settings, leases."""

    def __init__(self, read: Fetch, write: Fetch, askable: Callable[[str], bool]) -> None:
        """``askable``: whether a store can be asked for this text."""
        self._read, self._write, self._askable = read, write, askable

    async def profiles(self) -> Profiles:
        rows = await self._read("profiles")
        live = [Profile(id, task, msgspec.json.decode(needs)) for _, id, task, needs in rows if id is not None]
        return Profiles(rows[0][0], tuple(live))

    async def settings(self, prefix: str = "") -> list[Setting]:
        return [Setting(*row) for row in await self._read("settings", prefix)] if self._askable(prefix) else []

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        until = now + timedelta(seconds=seconds)
        rows = await self._write("lease", name, holder, micros(now), micros(until), micros(until + SLACK))
        return rows[0][0] if rows else None

    async def unlease(self, name: str, holder: UUID) -> None:
        await self._write("unlease", name, holder)


class SqlEntries:
    """Of the role ``entries``: tail."""

    def __init__(self, read: Fetch) -> None:
        self._read = read

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        rows = await self._read("tail_newest" if newest else "tail", job, str(kind), *after, limit)
        found = [Entry(kind, attempt, number, data, moment(at), name) for attempt, number, at, name, data in rows]
        return found[::-1] if newest else found


class SqlWorkers:
    """Of the role ``workers``: register and list."""

    def __init__(self, read: Fetch, write: Fetch) -> None:
        self._read, self._write = read, write

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        await self._write("register", info.id, encode(info), encode(Beat()), micros(now))

    async def list(self) -> list[WorkerRow]:
        rows = await self._read("workers")
        if any(not alive and not holds for *_, alive, holds in rows):
            await self._write("forget")
            rows = [row for row in rows if row[4] or row[5]]
        known = [
            WorkerRow(_info(info), _beat(beat), beats, moment(beat_at), bool(alive), holds)
            for info, beat, beats, beat_at, alive, holds in rows
        ]
        return sorted(known, key=lambda row: row.info.started_at)
