"""Applying decided changes in one statement; a second read finds out why some were not applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
from asyncpg.exceptions import LockNotAvailableError
from msgspec.structs import replace

from headrace.core.change import Applied, Change, Conflict, KeyEffect, Verdict, WasStale, judge
from headrace.core.job import Job
from headrace.core.lifecycle.decision import COMPLETES, ENDS
from headrace.core.status import Verb
from headrace.engine.transactions import Statement, Statements
from headrace.engines.postgres.jobs.rows import (
    ALIKE_IN_COMPLETE,
    RECORD_TYPE,
    TEXTS_OF_CHANGE,
    TEXTS_OF_COMPLETE,
    TEXTS_OF_REPORT,
    Reader,
    held_key,
    key_lock,
    row_of_change,
    row_of_complete,
    row_of_report,
)
from headrace.engines.postgres.jobs.subqueues import Moving, NoSubqueue
from headrace.engines.postgres.store.arrays import columns
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.drivers import run_statements
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import Micros, encode, row_of_merge
from headrace.engines.sql.inserts import Lost
from headrace.engines.sql.reader import PastRow, Sight
from headrace.engines.sql.subqueues import Collected
from headrace.errors import HeadraceError, Unavailable

__all__ = ["Applying", "Inserts", "Storing", "apply_text", "changing", "complete_text", "rows_of_changes"]

_places = msgspec.json.Decoder(list[int]).decode
_seen = msgspec.json.Decoder(list[tuple[int | None, RECORD_TYPE | None, RECORD_TYPE | None, PastRow | None]]).decode

_LOCK_TIMEOUT_MILLISECONDS = 250
"""Milliseconds for which a change may wait for a key or a job that another transaction has locked."""

_SEQ = 1
_TAKE, _RETRY, _COMPLETE = KeyEffect.TAKE, Verb.RETRY, Verb.COMPLETE  # looked up once: see core.lifecycle.execution
_by_seq = itemgetter(_SEQ)

Inserts = Callable[[Sequence[Change]], Statements[Lost]]
"""Makes statements that store what changes insert."""

Storing = Callable[[Sequence[Job]], Awaitable[Inserts]]
"""Prepares to store what changes insert; see ``Inserting.of_changes``."""


def apply_text(schema: str, *, followed: bool = True) -> str:
    """Return the statement that applies changes; what comes before it says how they are passed in.

    ``followed``: some of them may leave notes, or add to the counts of a batch.
    """
    more = sql("apply_followed", schema) if followed else ""
    return sql("apply", schema) + more + sql("took", schema, changed="changed")


def complete_text(schema: str, *, counted: bool) -> str:
    """Return the statement that completes jobs; ``counted``: some of them are in a batch."""
    more = sql("complete_counted", schema) if counted else ""
    return sql("complete", schema) + more + sql("took", schema, changed="completed")


def changing(schema: str, changes: Sequence[Change]) -> Statements[list[int]]:
    """Apply changes on any connection; return the indexes of the applied ones, as ``~index`` where an end was noted."""
    at = Micros()
    rows = [row_of_change(place, change, at) for place, change in enumerate(changes)]
    text = sql("changes_document", schema) + apply_text(schema)
    return _places((yield Statement(text, encode(rows))))


def rows_of_changes(changes: Sequence[Change]) -> list[Any]:
    """Return changes, at least one, as the arrays of ``changes_rows.sql``, in the order in which all lock jobs."""
    return _rows_by_place(dict(enumerate(changes)))


def _rows_by_place(changes: Mapping[int, Change]) -> list[Any]:
    at = Micros()
    rows = sorted((row_of_change(place, change, at) for place, change in changes.items()), key=_by_seq)
    return columns(rows, TEXTS_OF_CHANGE)


def _look(schema: str, changes: Sequence[Change]) -> Statements[list[Sight]]:
    """Read the present state of the jobs of these changes."""
    wanted = [
        (
            change.job.id,
            held_key(change.job) if change.key is KeyEffect.TAKE else None,
            None if change.attempt is None else change.attempt.number,
        )
        for change in changes
    ]
    return Reader().sights(_seen((yield Statement(sql("second_look", schema), encode(wanted)))))


def _know(change: Change, job: Job) -> Change:
    """Return the change with the order number of its job, which its caller may not have known."""
    return replace(change, job=replace(change.job, seq=job.seq))


def _only_completes(change: Change) -> bool:
    """Return whether ``complete.sql``, the smallest statement, writes all of this change.

    It can note that the job ended, and count one more completed job in its batch.
    """
    if change.verb is not _COMPLETE or change.notes != ENDS:
        return False
    tally = change.tally
    return tally is None if change.job.spec.batch is None else tally is COMPLETES or tally == COMPLETES


def _stands_alone(change: Change) -> bool:
    """Return whether a change needs a transaction of its own, with more than one statement."""
    return (
        change.key is KeyEffect.TAKE or change.verb is Verb.RETRY or bool(change.inserts) or change.merges is not None
    )


def _is_usual(change: Change) -> bool:
    """Return whether a change shares a statement with all others that are so."""
    return not (change.moves or change.inserts or change.merges or change.key is _TAKE or change.verb is _RETRY)


def _kind(change: Change) -> int:
    """Return which changes are written together: 0 in one statement, 1 in one transaction, 2 each in a transaction."""
    return 2 if _stands_alone(change) else int(change.moves)


def _wants_key(change: Change) -> bool:
    """Return whether a change takes a dedup key, for its job or for one that it inserts."""
    return change.key is KeyEffect.TAKE or any(job.spec.dedup is not None for job in change.inserts)


def _runs(changes: Sequence[Change]) -> list[dict[int, Change]]:
    """Return the changes by index, in runs that are written in turn: one change alone, or some in one statement.

    The order of the batch is kept if a change wants a key, because another of the batch may release it. Otherwise those
    that need a transaction of their own come last, so that all the others share one statement.
    """
    by_place = list(enumerate(changes))
    if not any(_wants_key(change) for change in changes):
        by_place.sort(key=lambda one: _kind(one[1]))
    runs: list[dict[int, Change]] = []
    for kind, group in groupby(by_place, key=lambda one: _kind(one[1])):
        run = dict(group)
        runs += [{place: change} for place, change in run.items()] if kind == 2 else [run]
    return runs


class _Kind(msgspec.Struct, frozen=True):
    """A statement for changes of one kind."""

    plain: str
    whole: str
    """The same statement, with what only few changes need."""
    rare: int
    """How many of the last columns only ``whole`` uses; they are texts."""
    texts: frozenset[int]
    alike: frozenset[int] = frozenset()
    """Which columns are passed once where they are the same in all rows."""


class Applying:
    """The changes of one session."""

    def __init__(self, warm: Pool, cold: Pool, schema: str, storing: Storing, moving: Moving) -> None:
        self._warm, self._cold, self._schema, self._storing, self._moving = warm, cold, schema, storing, moving
        report, rows = sql("report", schema), sql("changes_rows", schema)
        plain, counted = complete_text(schema, counted=False), complete_text(schema, counted=True)
        self._complete = _Kind(plain, counted, 1, TEXTS_OF_COMPLETE, ALIKE_IN_COMPLETE)
        plain, followed = rows + apply_text(schema, followed=False), rows + apply_text(schema)
        self._other = _Kind(plain, followed, 2, TEXTS_OF_CHANGE)
        self._report = _Kind(report, report, 0, TEXTS_OF_REPORT)
        self.forget()

    def forget(self) -> None:
        """Forget what an earlier session learned of the store."""
        self._locked: set[int] = set()
        """The order numbers of jobs that another transaction had locked when they were last read."""

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """The verb ``Jobs.apply``."""
        verdicts: list[Verdict] = [Applied(change.job) for change in changes]
        usual = bool(changes) and all(map(_is_usual, changes))  # most batches by far
        for run in [dict(enumerate(changes))] if usual else _runs(changes):
            place, change = next(iter(run.items()))
            if _stands_alone(change):
                found = {place: await self._write_alone(change, now)}
            elif change.moves:
                found = await self._write_moving(run, now)
            else:
                found = await self._write(run, now)
            for place, verdict in found.items():
                verdicts[place] = verdict
        return verdicts

    async def _write(self, changes: dict[int, Change], now: datetime) -> dict[int, Verdict]:
        """Apply changes that share a statement; return verdicts on those that were not applied, and on noted ends.

        All others were applied.
        """
        at = Micros()
        if all(map(_only_completes, changes.values())):  # most batches by far
            rows = [row_of_complete(place, one, at) for place, one in changes.items()]
            took = await self._change(self._complete, rows)
        else:
            reports = [row_of_report(place, one, at) for place, one in changes.items() if one.verb is Verb.PROGRESS]
            rows = [row_of_change(place, one, at) for place, one in changes.items() if one.verb is not Verb.PROGRESS]
            took = await self._change(self._other, rows)
            took += await self._change(self._report, reports)
        return await self._verdicts(changes, took, now)

    async def _verdicts(self, changes: dict[int, Change], took: list[int], now: datetime) -> dict[int, Verdict]:
        """Return the verdicts on those that were not applied, and on ends that were noted."""
        if len(took) == len(changes) and min(took) >= 0:
            return {}
        there = {place if place >= 0 else ~place for place in took}
        noted: dict[int, Verdict] = {~place: Applied(changes[~place].job, noted=True) for place in took if place < 0}
        missed = {place: one for place, one in changes.items() if place not in there}
        return noted | await self._judge(missed, now) if missed else noted

    async def _write_moving(self, changes: dict[int, Change], now: datetime) -> dict[int, Verdict]:
        """Apply changes that move their jobs into other subqueues, in one transaction; return verdicts as ``_write``
        does."""
        # Jobs that another transaction has locked are left out from the start: the others need not wait for it.
        await self._look_whether_locked([change.job.seq for change in changes.values()])
        free = {place: one for place, one in changes.items() if one.job.seq not in self._locked}
        took: list[int] = []
        while free:
            moving, args = await self._moving.statements(list(free.values()), now), _rows_by_place(free)
            try:
                async with self._cold.transaction() as connection:
                    await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MILLISECONDS}")
                    await run_statements(connection, moving)
                    took = _places(await connection.fetchval(self._other.whole, *args))
                break
            except Collected:
                continue
            except Unavailable as error:
                if not isinstance(error.__cause__, LockNotAvailableError):
                    raise
                break  # the caller decides these changes again
        return await self._verdicts(changes, took, now)

    async def _change(self, kind: _Kind, rows: list[tuple[Any, ...]]) -> list[int]:
        """Write the rows; return the indexes of those that were applied, as ``~index`` where an end was noted."""
        rows.sort(key=_by_seq)  # all lock in the same order
        if self._locked and (known := [row[_SEQ] for row in rows if row[_SEQ] in self._locked]):
            await self._look_whether_locked(known)
            rows = [row for row in rows if row[_SEQ] not in self._locked]
        if not rows:
            return []
        try:
            return await self._send(kind, rows)
        except Unavailable as error:
            if not isinstance(error.__cause__, LockNotAvailableError):
                raise
        # Another transaction has locked one of these jobs. The others need not wait for it, now or next time.
        await self._look_whether_locked([row[_SEQ] for row in rows])
        rows = [row for row in rows if row[_SEQ] not in self._locked]
        return await self._send(kind, rows) if rows else []

    async def _send(self, kind: _Kind, rows: list[tuple[Any, ...]]) -> list[int]:
        args, width = columns(rows, kind.texts, kind.alike), len(rows[0])
        more = any(column is not None for column in args[width - kind.rare : width])
        return _places((await self._warm.fetch(kind.whole if more else kind.plain, *args))[0][0])

    async def _look_whether_locked(self, seqs: list[int]) -> None:
        free = {seq for (seq,) in await self._warm.fetch(sql("unlocked", self._schema), seqs)}
        self._locked = (self._locked | set(seqs)) - free

    async def _judge(self, missed: dict[int, Change], now: datetime) -> dict[int, Verdict]:
        async with self._cold.connection() as connection:
            sights = await run_statements(connection, _look(self._schema, list(missed.values())))
        verdicts: dict[int, Verdict] = {}
        for (place, change), (last, job, holder, attempt) in zip(missed.items(), sights, strict=True):
            verdict = judge(change, last, job, holder, attempt)
            if verdict is None and job is not None:
                # Nothing contradicts the change: its order number was unknown, or another transaction had locked the
                # job.
                unknown = job.seq != change.job.seq
                verdict = (await self.apply([_know(change, job)], now))[0] if unknown else Conflict(job)
            verdicts[place] = verdict or WasStale(None)
        return verdicts

    async def _write_alone(self, change: Change, now: datetime) -> Verdict:
        """Apply, in its own transaction, a change that takes a key, retries, merges a submit or inserts other jobs."""
        inserts = await self._storing(change.inserts) if change.inserts else None
        moving, none = await self.moving(change, now)
        try:
            async with self._cold.transaction() as connection:
                await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MILLISECONDS}")
                if change.key is KeyEffect.TAKE or (change.key is KeyEffect.RELEASE and change.inserts):
                    # Inserts take the same lock, so that takers of this key come one after the other.
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", key_lock(self._schema, change.job))
                if moving is not None:
                    await run_statements(connection, moving)
                return await run_statements(connection, self.statements(change, inserts, none))
        except Collected:
            return await self._write_alone(change, now)
        except Unavailable as error:
            if not isinstance(error.__cause__, LockNotAvailableError):
                raise
        # Another transaction has locked the key or the job. The caller decides the change again, and the changes that
        # wait behind it go first.
        return (await self._judge({0: change}, now))[0]

    async def moving(self, change: Change, now: datetime) -> tuple[Statements[None] | None, HeadraceError | None]:
        """Return what puts the job into another subqueue before the change is applied, if necessary; and why an ended
        job cannot be put into one. The subqueue of an ended job may have been collected since."""
        try:
            moves = change.moves or change.verb is Verb.RETRY
            return (await self._moving.statements([change], now) if moves else None), None
        except NoSubqueue as none:
            return None, none.why

    def statements(
        self, change: Change, inserts: Inserts | None = None, none: HeadraceError | None = None
    ) -> Statements[Verdict]:
        """Return one change, with the insert of the jobs that follow from it, as statements for any connection;
        ``none``: why its job can be put into no subqueue."""
        while True:
            sights = yield from _look(self._schema, [change])
            last, job, holder, attempt = sights[0]
            verdict = judge(change, last, job, holder, attempt)
            if verdict is not None or job is None:
                return verdict or WasStale(None)
            if none is not None:
                return Conflict(job, too_many=str(none))
            known = _know(change, job)
            if took := (yield from changing(self._schema, [known])):
                if change.merges is not None:
                    yield Statement(sql("merge", self._schema), row_of_merge(known))
                lost = {} if inserts is None else (yield from inserts([known]))
                return Applied(change.job, took[0] < 0, lost.get(change.job.id, ()))
