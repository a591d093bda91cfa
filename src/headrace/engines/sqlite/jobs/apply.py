"""Applying decided changes in one statement; a second read finds out why some were not applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import apsw
import msgspec
from msgspec.structs import replace

from headrace.core.change import Applied, Change, Conflict, KeyEffect, Note, Verdict, WasStale, judge
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.engine import MAX_BATCH, InsertAnswer
from headrace.engine.transactions import Statement, Statements
from headrace.engines.sql.encoding import Micros, encode, key_of
from headrace.engines.sql.inserts import Lost, storing_inserts
from headrace.engines.sqlite.jobs.insert import inserting, merging, writing
from headrace.engines.sqlite.jobs.relations import follow, following
from headrace.engines.sqlite.jobs.rows import row_of_change, row_of_report, sights_of
from headrace.engines.sqlite.jobs.subqueues import Limited, moving, reviving
from headrace.engines.sqlite.store.connection import ask, drive, reading
from headrace.errors import HeadraceError

__all__ = ["ChangeSet", "applying", "change_sets"]

# A lookup in their classes costs more than the comparisons.
_PROGRESS, _RETRY, _TAKE = Verb.PROGRESS, Verb.RETRY, KeyEffect.TAKE

_numbers = msgspec.json.Decoder(list[int]).decode


def _wanted(change: Change) -> tuple[UUID, str | None, int | None]:
    """Return what ``second_look.sql`` reads: the job, the holder of the wanted key, the attempt that it closes."""
    key = key_of(change.job) if change.key is _TAKE else None
    return change.job.id, key, None if change.attempt is None else change.attempt.number


class ChangeSet:
    """Changes that are to be written, encoded before they are passed to the thread."""

    def __init__(self, changes: Sequence[Change], *, quietly: bool = False) -> None:
        """``quietly``: leave no notes and add to no batch."""
        at = Micros()
        self.changes = changes
        self.noted: frozenset[int] = frozenset()
        """The order numbers of some jobs, among them those that ended and that others wait for; known once written."""
        self.too_many: HeadraceError | None = None
        """Why a retry is refused for lack of a profile; known once written."""
        self.lost: Lost = {}
        """What should have been inserted, and was not; known once written."""
        # A report with messages to webhooks is written whole, like any other change.
        reports_only = [change.verb is _PROGRESS and not change.inserts for change in changes]
        self._rows = [place for place, only in enumerate(reports_only) if not only]
        self._reports = [place for place, only in enumerate(reports_only) if only]
        self._follows = [] if quietly else following(changes)
        self._inserts = [place for place, change in enumerate(changes) if change.inserts]
        rows = [row_of_change(changes[place], at) for place in self._rows]
        reports = [row_of_report(changes[place], at) for place in self._reports]
        self._args = (encode(rows), encode(reports), len(rows))

    def write(self, connection: apsw.Connection) -> list[int]:
        """Apply the changes; return the indexes of those that were not applied."""
        if not (self._follows or self._inserts) or connection.in_transaction:
            return self._write(connection)
        connection.execute("BEGIN IMMEDIATE")
        missed = self._write(connection)
        connection.execute("COMMIT")
        return missed

    def _write(self, connection: apsw.Connection) -> list[int]:
        rows, reports, noted = connection.execute(ask("apply"), self._args).get
        if noted != "[]":
            self.noted = frozenset(_numbers(noted))
        missed: list[int] = []
        if not rows == reports == "[]":
            rest = [self._rows[key] for key in _numbers(rows)]
            missed = sorted(rest + [self._reports[key] for key in _numbers(reports)])
        if self._follows:
            late = set(missed)
            drive(connection, follow([self.changes[place] for place in self._follows if place not in late]))
        if self._inserts:
            changes = [self.changes[place] for place in self._inserts if place not in missed]
            self.lost = drive(connection, storing_inserts(changes, _in_chunks, ask("record_events")))
        return missed

    def commit(self, connection: apsw.Connection) -> tuple[list[int], str]:
        """Apply the changes in a commit of their own.

        Returns the indexes of those that were not applied, and a document with the present state of their jobs.
        """
        missed = self.write(connection)
        if not missed:
            return missed, "[]"
        changes = [self.changes[place] for place in missed]
        return missed, connection.execute(ask("second_look"), (encode(list(map(_wanted, changes))),)).get

    def applied(self) -> list[Verdict]:
        """Return the verdicts, if all changes were applied."""
        if not self.noted and not self.lost:
            return [Applied(change.job) for change in self.changes]
        return [
            Applied(
                change.job,
                change.job.seq in self.noted and Note.ENDED in change.notes,
                self.lost.get(change.job.id, ()),
            )
            for change in self.changes
        ]

    def judged(self, missed: Sequence[int], seen: str) -> Iterator[tuple[int, Verdict | Change]]:
        """Yield the index and the verdict of each change that was not applied, from what ``commit`` returned.

        In place of a verdict there is a change that can be applied now: its key is free by now, or the order number of
        its job was not known before.
        """
        for place, (last, job, holder, attempt) in zip(missed, sights_of(seen), strict=True):
            change = self.changes[place]
            verdict = judge(change, last, job, holder, attempt)
            if verdict is None and job is not None and self.too_many is not None:
                yield place, Conflict(job, too_many=str(self.too_many))
            elif verdict is None and job is not None:
                yield place, replace(change, job=replace(change.job, seq=job.seq))
            else:
                yield place, verdict or WasStale(None)


def _in_chunks(jobs: Sequence[Job]) -> Statements[list[InsertAnswer]]:
    answers = list[InsertAnswer]()
    for start in range(0, len(jobs), MAX_BATCH):  # of more at once, each takes longer
        answers += yield from inserting(jobs[start : start + MAX_BATCH])
    return answers


class _Taking(ChangeSet):
    """One change that takes a dedup key, which another job may have."""

    def _write(self, connection: apsw.Connection) -> list[int]:
        try:
            return super()._write(connection)
        except apsw.ConstraintError:
            return [0]


class _Moving(ChangeSet):
    """Changes that move their jobs into other subqueues."""

    def write(self, connection: apsw.Connection) -> list[int]:
        connection.execute("BEGIN IMMEDIATE")
        drive(connection, moving(self.changes))
        missed = super().write(connection)
        connection.execute("COMMIT")
        return missed


class _Merging(ChangeSet):
    """One change by which a job takes over what was submitted."""

    def write(self, connection: apsw.Connection) -> list[int]:
        connection.execute("BEGIN IMMEDIATE")
        if self.changes[0].moves:
            drive(connection, moving(self.changes))
        missed = super().write(connection)
        if not missed:
            drive(connection, merging(self.changes[0]))
        connection.execute("COMMIT")
        return missed


class _Reviving(_Taking):
    """One change that retries an ended job; its subqueue may have been collected since."""

    def __init__(self, changes: Sequence[Change], limited: Limited) -> None:
        super().__init__(changes)
        self._limited = limited

    def write(self, connection: apsw.Connection) -> list[int]:
        connection.execute("BEGIN IMMEDIATE")
        self.too_many = drive(connection, reviving(self.changes[0], self._limited))
        missed = [0] if self.too_many is not None else super().write(connection)
        connection.execute("COMMIT")
        return missed


def change_sets(changes: Sequence[Change], limited: Limited) -> list[ChangeSet]:
    """Return the changes in as few sets as possible: one that takes a key has a set of its own, because it may be
    refused, and so has one that merges a submit."""
    cut: list[ChangeSet] = []
    run: list[Change] = []
    moved = False
    for change in changes:
        if change.verb is not _RETRY and change.key is not _TAKE and change.merges is None:
            if change.moves is not moved:
                cut += [_Moving(run) if moved else ChangeSet(run)] if run else []
                run, moved = [], change.moves
            run.append(change)
            continue
        cut += [_Moving(run) if moved else ChangeSet(run)] if run else []
        if change.verb is _RETRY:
            cut.append(_Reviving([change], limited))
        else:
            cut.append((_Taking if change.key is _TAKE else _Merging)([change]))
        run = []
    return [*cut, _Moving(run) if moved else ChangeSet(run)] if run else cut


def applying(change: Change, limited: Limited) -> Statements[Verdict]:
    """Apply one change, if the job is still at its rev and has its owner."""
    here = encode((change.job.seq, change.rev))
    tied = yield Statement("SELECT tied FROM jobs WHERE seq = $1 ->> 0 AND rev = $1 ->> 1", here)
    if tied and change.verb is _RETRY and (why := (yield from reviving(change, limited))) is not None:
        seen = yield Statement(reading("second_look"), encode([_wanted(change)]))
        return Conflict(sights_of(seen)[0][1] or change.job, too_many=str(why))
    if tied:
        if change.moves and change.verb is not _RETRY:
            yield from moving([change])
        yield from writing(change)
        yield from follow([change])
        lost = (yield from storing_inserts([change], inserting, ask("record_events"))) if change.inserts else {}
        return Applied(change.job, tied == "1" and Note.ENDED in change.notes, lost.get(change.job.id, ()))
    seen = yield Statement(reading("second_look"), encode([_wanted(change)]))
    [(last, job, holder, attempt)] = sights_of(seen)
    verdict = judge(change, last, job, holder, attempt)
    if verdict is None and job is not None:  # the order number of the job was not known
        verdict = yield from applying(replace(change, job=replace(change.job, seq=job.seq)), limited)
    return verdict or WasStale(None)
