"""Workers as rows, and the shared part of the role ``workers`` for all SQL engines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.batch import cursor_at
from headrace.core.lifecycle.departure import MAX_LOST_IDS, Departure
from headrace.core.query import Page
from headrace.engine import MAX_BATCH, Beat, GoneWorker, Watched, WorkerInfo, WorkerRow
from headrace.engine.workers import last_gone_first
from headrace.engines.sql.columns import Column, arguments, function, names, parameters, row
from headrace.engines.sql.encoding import encode, micros, moment
from headrace.engines.sql.templates import Fetch

__all__ = ["CHANGED", "COLUMNS", "WORDS", "SqlWorkers", "record_of", "report_of", "row_of_beat"]

COLUMNS = (
    Column("id", "uuid", "info.id"),
    Column("info", "text", "encode(info)", read="info=read_info(info)"),
    Column("beat", "text", "encode(Beat())", "encode(beat.kept)", "beat=read_beat(beat)"),
    Column("beats", "bigint", "0", read="beats=beats"),
    Column("beat_at", "bigint", "micros(now)", "micros(now)", "beat_at=moment(beat_at)"),
    Column("alive", "boolean", "True", read="alive=bool(alive)"),
    Column("watched", "text", read="watched=None if watched is None else read_watched(watched)"),
)
"""What is stored of a worker. What is written may use ``now``, the ``info`` of a new worker, and the ``beat`` of a
known one; what is read makes a ``WorkerRow``, except for how many jobs the worker holds."""

NEW = [column for column in COLUMNS if column.new]
CHANGED = [column for column in COLUMNS if column.changed]
READ = [column for column in COLUMNS if column.read]

WORDS = {
    "worker_new": names(NEW),
    "worker_values": ", ".join(parameters(NEW)),
    "worker_read": names(READ),
}
"""The words in statements that are replaced by lists of columns."""

_NAMES: dict[str, Any] = {
    "Beat": Beat,
    "WorkerRow": WorkerRow,
    "micros": micros,
    "moment": moment,
    "read_info": msgspec.json.Decoder(WorkerInfo).decode,
    "read_beat": msgspec.json.Decoder(Beat).decode,
    "read_watched": msgspec.json.Decoder(Watched).decode,
}

_row_of_new: Callable[[WorkerInfo, datetime], tuple[Any, ...]] = function(
    "row_of_new", "info, now", [row(column.new for column in NEW)], **_NAMES
)
row_of_beat: Callable[[Beat, datetime], tuple[Any, ...]] = function(
    "row_of_beat", "beat, now", [row(column.changed for column in CHANGED)], **_NAMES
)
"""What a beat writes."""


def report_of(beat: Beat) -> tuple[int, str | None]:
    """Return the number of the report of a beat, and the report as it is stored; None: nothing."""
    return beat.report, encode(beat.finished) if beat.finished else None


_worker: Callable[..., WorkerRow] = function(
    "worker", f"{names(READ)}, holds", [f"WorkerRow(holds=holds, {arguments(READ)})"], **_NAMES
)


def record_of(departure: Departure | None) -> tuple[int | None, str | None, int]:
    """Return what is stored of a departure: when, itself, and how many ids of jobs; None: no record."""
    if departure is None:
        return None, None, 0
    return micros(departure.at), encode(departure), MAX_LOST_IDS


_departure = msgspec.json.Decoder(Departure).decode
_ids = msgspec.json.Decoder(tuple[UUID, ...]).decode


def _gone(departure: str, info: str, beat: str, beats: int, beat_at: int, holds: int, lost: str) -> GoneWorker:
    last = WorkerRow(_NAMES["read_info"](info), _NAMES["read_beat"](beat), beats, moment(beat_at), False, holds)
    return GoneWorker(replace(last, info=last.present), _departure(departure), _ids(lost))


class SqlWorkers:
    """Part of the role ``workers``: register, watched, bury, retire, list, and the records of the gone."""

    def __init__(self, read: Fetch, write: Fetch) -> None:
        self._read, self._write = read, write

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        await self._write("register", *_row_of_new(info, now))

    async def watched(self, worker: UUID, watched: Watched) -> None:
        await self._write("watched", worker, watched.beats, encode(watched))

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        return bool(await self._write("bury", worker, beats, mass_death, *record_of(departure)))

    async def retire(self, worker: UUID, *, departure: Departure | None = None) -> None:
        await self._write("retire", worker, *record_of(departure))
        await self._write("forget")

    async def find_gone(self, limit: int = 50, cursor: str | None = None) -> Page[GoneWorker]:
        rows = await self._read("find_gone", *cursor_at(cursor), limit + 1)
        return last_gone_first([_gone(*row) for row in rows], limit)

    async def get_gone(self, worker: UUID) -> GoneWorker | None:
        rows = await self._read("get_gone", worker)
        return _gone(*rows[0]) if rows else None

    async def forget_gone(self, before: datetime, limit: int = MAX_BATCH) -> int:
        return len(await self._write("forget_gone", micros(before), limit))

    async def list(self) -> list[WorkerRow]:
        known = [_worker(*row) for row in await self._read("workers")]
        needed = [row for row in known if row.alive or row.holds]
        if len(needed) < len(known):
            await self._write("forget")
        return sorted(needed, key=lambda row: row.info.started_at)
