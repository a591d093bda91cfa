"""Workers of a SQLite store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.defaults import Rules
from headrace.core.lifecycle.departure import Departure
from headrace.core.lifecycle.duty import HOLDER
from headrace.engine import Alive, Attended, Beat, Dead, Gone, WorkerInfo, WorkerRow
from headrace.engines.sql.encoding import encode, micros
from headrace.engines.sql.workers import SqlWorkers, record_of, report_of, row_of_beat
from headrace.engines.sqlite.jobs.rows import jobs_of
from headrace.engines.sqlite.store.connection import ask
from headrace.engines.sqlite.store.presence import Presence
from headrace.engines.sqlite.store.thread import DbThread

__all__ = ["Workers"]

_ids = msgspec.json.Decoder(tuple[UUID, ...]).decode


class Workers(SqlWorkers):
    """The role ``workers`` of one session."""

    gone_after = 1.0

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules, presence: Presence) -> None:
        super().__init__(reader.fetch, writer.fetch)
        self._writer, self._reader, self._rules, self._presence = writer, reader, rules, presence

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        await super().register(info, now)

        def tidy(connection: apsw.Connection) -> None:
            known: list[Any] = connection.execute("SELECT id FROM workers WHERE alive").fetchall()
            kept = {UUID(bytes=id) for (id,) in known}
            for (key,) in connection.execute("SELECT key FROM settings WHERE key GLOB ?", (f"{HOLDER}*",)):
                with suppress(ValueError):  # not one of ours
                    kept.add(UUID(key.removeprefix(HOLDER)))
            self._presence.tidy(frozenset(kept))

        await self._reader.run(tidy)

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        return (await self.beat_many({worker: beat}, now))[worker]

    async def beat_many(self, beats: Mapping[UUID, Beat], now: datetime) -> dict[UUID, Alive | Dead]:
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        said = [
            ((worker.bytes, old, encode(beat.held)), (worker.bytes, *row_of_beat(beat, now)), report_of(beat))
            for worker, beat in beats.items()
        ]

        answers = await self._writer.write(lambda connection: [_beat(connection, *one) for one in said])
        found = dict[UUID, Alive | Dead]()
        for worker, told in zip(beats, answers, strict=True):
            if told is None:
                found[worker] = Dead()
                continue
            beats_now, cancels, unknown, profiles_rev, settings_rev = told
            found[worker] = Alive(beats_now, _ids(cancels), tuple(jobs_of(unknown)), profiles_rev, settings_rev)
        return found

    async def attend(self, worker: UUID) -> Attended | None:
        return await self._reader.run(lambda connection: self._presence.attend(worker))

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        return Gone(await self._reader.run(lambda connection: self._presence.gone(rows)))

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        def write(connection: apsw.Connection) -> bool:
            found = connection.execute(ask("bury"), (worker.bytes, beats, mass_death)).get is not None
            if found:
                connection.execute(ask("free_duties"), (worker.bytes,))
                _record(connection, worker, departure)
            return found

        buried = await self._writer.write(write)
        if buried:
            await self._reader.run(lambda connection: self._presence.remove(worker))
        return buried

    async def retire(self, worker: UUID, *, departure: Departure | None = None) -> None:
        def write(connection: apsw.Connection) -> None:
            if connection.execute(ask("retire"), (worker.bytes,)).get is not None:
                _record(connection, worker, departure)
            connection.execute(ask("free_duties"), (worker.bytes,))
            connection.execute(ask("forget"))

        await self._writer.write(write)
        await self._reader.run(lambda connection: self._presence.remove(worker))


def _record(connection: apsw.Connection, worker: UUID, departure: Departure | None) -> None:
    if departure is not None:
        connection.execute(ask("record_gone"), (worker.bytes, *record_of(departure)))


def _beat(
    connection: apsw.Connection, terms: tuple[Any, ...], kept: tuple[Any, ...], report: tuple[int, str | None]
) -> tuple[int, str, str, int, int] | None:
    """Write one beat, and return what the worker should know; None: it is dead."""
    beats: int | None = connection.execute(ask("beat"), kept).get
    if beats is None:
        return None
    number, finished = report
    if finished is not None and connection.execute(ask("new_report"), (terms[0], number)).get is not None:
        connection.execute("INSERT INTO reports (data) VALUES (?)", (finished,))
    # Most beats name all jobs, and then this writes none.
    connection.execute(ask("unnamed"), terms)
    answer: tuple[str, str, int, int] = connection.execute(ask("beat_answer"), terms).get
    return beats, *answer
