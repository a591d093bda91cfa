"""Processing of notes in rounds, each in its own transaction; the changes of one round may leave notes for the next."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from asyncpg.exceptions import LockNotAvailableError

from headrace.core.batch import Batch
from headrace.core.change import Change, LeftOut, Note
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.status import Status
from headrace.engines.postgres.jobs.apply import Storing, apply_text, rows_of_changes
from headrace.engines.postgres.jobs.rows import Reader
from headrace.engines.postgres.store.arrays import literal
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.engines.postgres.store.drivers import run_statements
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.families import batch_of
from headrace.engines.sql.inserts import Lost
from headrace.errors import Unavailable
from headrace.runtime.host import Host

__all__ = ["Notes", "batches_by_id"]

_LOCK_TIMEOUT_MILLISECONDS = 250
"""Milliseconds to wait for a job that another transaction has locked: longer than a commit takes."""

_NO_WAIT_SECONDS = 2.0
"""Seconds without any waiting after a wait was in vain."""

_NOTES = {note[0]: note for note in Note}

_places = msgspec.json.Decoder(list[int]).decode


async def batches_by_id(connection: Connection, schema: str, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """Return the batches with these ids, as far as they are stored."""
    if not ids:
        return {}
    rows: list[Any] = await connection.fetch(sql("batches", schema), list(ids))
    return {row[0]: batch_of(row) for row in rows}


class _Round(msgspec.Struct):
    """The result of one round."""

    last: int
    """The last note it read."""
    used: int
    """How many jobs and notes it read."""
    changes: list[Change]
    busy: bool
    """Whether a job was skipped because another transaction had locked it; its note is still stored."""
    moved: bool
    """Whether any note was processed."""
    over: bool
    """Whether no further round is needed: the notes did not reach the limit, and the changes left no new ones."""
    left_out: Sequence[LeftOut] = ()
    """What the changes should have inserted, and did not."""


class _Page(msgspec.Struct):
    """The jobs that the notes of one round concern, by note."""

    notes: dict[int, Note]
    hearing: dict[int, list[int]]
    partly: int | None
    """The note that concerns more jobs than this round may read; its rest is for the next one."""

    @property
    def concerned(self) -> set[int]:
        return {seq for seqs in self.hearing.values() for seq in seqs}

    @property
    def parent_cancelled(self) -> set[int]:
        return self._hear(Note.CANCELLED)

    @property
    def stopped(self) -> set[int]:
        return self._hear(Note.STOPPED)

    def _hear(self, note: Note) -> set[int]:
        return {seq for id, seqs in self.hearing.items() if self.notes[id] is note for seq in seqs}

    def rest(self, busy: Collection[int]) -> dict[int, int]:
        """Return the notes that are still needed, with their new cursors."""
        found: dict[int, int] = {}
        for id, seqs in self.hearing.items():
            missed = min((seq for seq in seqs if seq in busy), default=None)
            if missed is not None:
                found[id] = missed - 1
            elif id == self.partly:
                found[id] = seqs[-1]
        return found


class Notes:
    """Processes the notes of a store, for one session."""

    def __init__(self, cold: Pool, schema: str, rules: Rules, host: Host, storing: Storing) -> None:
        self._cold, self._schema, self._rules, self._host, self._storing = cold, schema, rules, host, storing
        self._apply = sql("changes_rows", schema) + apply_text(schema)
        self.forget()

    def forget(self) -> None:
        """Forget what an earlier session learned of the store."""
        self._hurry_until = -math.inf

    async def process(self, now: datetime, limit: int, changes: list[Change], left_out: list[LeftOut]) -> bool:
        """Process notes until there are none left, or ``limit`` jobs were checked; return whether there may be more.

        Each round adds what it applied to ``changes``, and what these did not insert to ``left_out``, so that the
        caller knows of it even if a later round fails.
        """
        last, busy, moved = 0, False, False
        while limit > 0:
            done = await self._round(now, last, limit)
            changes += done.changes
            left_out += done.left_out
            last, busy, moved = done.last, busy or done.busy, moved or done.moved
            limit -= done.used
            if done.over:
                break
        if busy and self._host.clock.monotonic() >= self._hurry_until:
            # Most such locks last only a moment: another session processes another note of the same job, and may not
            # see yet what this one has seen.
            try:
                done = await self._round(now, 0, max(limit, 1), patience=_LOCK_TIMEOUT_MILLISECONDS)
            except Unavailable as error:
                if not isinstance(error.__cause__, LockNotAvailableError):
                    raise
                self._hurry_until = self._host.clock.monotonic() + _NO_WAIT_SECONDS
            else:
                changes += done.changes
                left_out += done.left_out
                return limit <= 0 or not done.over
        return limit <= 0 and moved

    async def _round(self, now: datetime, last: int, limit: int, patience: int | None = None) -> _Round:
        """Process the notes behind the last one. A job that another has locked is skipped, or awaited until the
        timeout.

        All jobs of a round are locked by one statement, in the same order in all transactions, so that there is no
        deadlock.
        """
        async with self._cold.transaction() as connection:
            if patience is not None:
                await connection.execute(f"SET LOCAL lock_timeout = {patience}")
            notes: list[Any] = await connection.fetch(sql("take_notes", self._schema), last, limit)
            if not notes:
                return _Round(last, 0, [], busy=False, moved=False, over=True)
            page = await self._page(connection, notes, limit)
            jobs, busy = await self._hold(connection, page, wait=patience is not None)
            changes = await self._follows(connection, jobs, page, now)
            noted, lost = await self._write(connection, changes)
            if ended := [job.seq for job in jobs if job.seq in page.parent_cancelled and family.passes_on(job)]:
                await connection.execute(sql("pass_on", self._schema), literal(ended))
                noted = True
            rest = page.rest(busy)
            gone = [id for id in page.hearing if id not in rest]
            ends = (literal(gone), literal(list(rest)), literal(list(rest.values())))
            await connection.execute(sql("processed", self._schema), *ends)
        used = max(len(page.hearing), len(page.concerned))
        fewer = len(notes) < limit and page.partly is None
        moved = bool(gone or changes) or any(rest.get(id, cursor) > cursor for id, _, _, cursor in notes)
        last, out = max(page.hearing, default=last), [one for found in lost.values() for one in found]
        return _Round(last, used, changes, bool(busy), moved, over=fewer and not noted, left_out=out)

    async def _page(self, connection: Connection, notes: Sequence[Any], limit: int) -> _Page:
        ids, kinds, seqs, cursors = (list(column) for column in zip(*notes, strict=True))
        # As texts: for arrays of any other type the driver first queries the server for the type, on each connection.
        given = (literal(ids), kinds, literal(seqs), literal(cursors))
        rows: list[Any] = await connection.fetch(sql("concerned", self._schema), *given, limit + 1)
        end, partly = None, None
        if len(rows) > limit:
            # One row too many was read. Its note is where this page ends: within that note, or before it.
            end = rows.pop()[0]
            partly = end if rows and rows[-1][0] == end else None
        hearing: dict[int, list[int]] = {id: [] for id in ids if end is None or id < end or id == partly}
        for id, seq in rows:
            hearing[id].append(seq)
        return _Page({id: _NOTES[kind] for id, kind in zip(ids, kinds, strict=True)}, hearing, partly)

    async def _hold(self, connection: Connection, page: _Page, *, wait: bool) -> tuple[list[Job], set[int]]:
        """Lock the jobs that may have to change; return them, and the order numbers that another has locked."""
        if not page.concerned:
            return [], set()
        text = sql("hold", self._schema, wait="" if wait else " SKIP LOCKED")
        meant = (literal(list(page.concerned)), literal(list(page.parent_cancelled | page.stopped)), Status.WAITING)
        rows: list[Any] = await connection.fetch(text, *meant)
        reader = Reader()
        held = [reader.job(row[1:]) for row in rows if row[1] is not None]
        return held, {row[0] for row in rows if row[1] is None}

    async def _follows(self, connection: Connection, jobs: Sequence[Job], page: _Page, now: datetime) -> list[Change]:
        parent_cancelled, stopped = page.parent_cancelled, page.stopped
        waiting = [job.seq for job in jobs if job.status is Status.WAITING]
        rows: list[Any] = await connection.fetch(sql("parents", self._schema), literal(waiting)) if waiting else []
        parents = {child: [None if one is None else Status(one) for one in statuses] for child, statuses in rows}
        of = {job.seq: job.spec.batch for job in jobs if job.seq in stopped and job.spec.batch is not None}
        cancelled = await batches_by_id(connection, self._schema, set(of.values()))
        batches = {seq: cancelled.get(batch) for seq, batch in of.items()}
        changes = (
            family.follow(
                job,
                parents.get(job.seq, []),
                now,
                self._rules,
                parent_cancelled=job.seq in parent_cancelled,
                batch=batches.get(job.seq),
            )
            for job in jobs
        )
        return [change for change in changes if change is not None]

    async def _write(self, connection: Connection, changes: list[Change]) -> tuple[bool, Lost]:
        """Apply the changes; return whether they left notes, and what they should have inserted and did not."""
        if not changes:
            return False, {}
        places = _places(await connection.fetchval(self._apply, *rows_of_changes(changes)))
        took = {place if place >= 0 else ~place for place in places}
        lost, applied = Lost(), [change for place, change in enumerate(changes) if place in took and change.inserts]
        if applied:
            storing = await self._storing([job for change in applied for job in change.inserts])
            lost = await run_statements(connection, storing(applied))
        others = any(note is not Note.ENDED for change in changes for note in change.notes)
        return others or any(place < 0 for place in places), lost
