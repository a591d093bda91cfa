"""Jobs, attempts and events from the records that statements return, the same in every SQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.attempt import Attempt, ErrorInfo, Event, History
from headrace.core.codec.stand_in import stand_in, told_fault
from headrace.core.job import Job
from headrace.core.status import Outcome, Status
from headrace.engines.sql.columns import Specs, fields_of, fields_to, function
from headrace.engines.sql.encoding import Micros, Moments
from headrace.errors import Unreadable

__all__ = ["Past", "PastRow", "RecordReader", "Sight", "Stored", "attempt_of", "history_of", "past_of"]


class Past(msgspec.Struct, array_like=True):
    """An attempt as it is stored; the count and the end come first, because folding reads them."""

    count: int
    finished_at: int
    epoch: int
    outcome: Outcome
    worker: UUID | None
    assigned_at: int | None
    started_at: int | None
    cause: str | None
    error: ErrorInfo | None
    processing_time: float | None = None
    retry_at: int | None = None


_SHORT = fields_to(Past, "attempt", Attempt, but=2)
"""Without the last two fields, which most attempts do not have."""

past_of: Callable[[Attempt, Micros], str] = function(
    "past_of",
    "attempt, at",
    [
        f"if attempt.processing_time is attempt.retry_at is None: return encode({_SHORT})",
        f"encode({fields_to(Past, 'attempt', Attempt)})",
    ],
)
"""An attempt as it is kept."""

PastRow = tuple[int, int, int | None, Past]
"""The number of an attempt, how many more were folded into its record, when the last of those ended, and the record."""

_attempt: Callable[[int, Past, Moments], Attempt] = function(
    "attempt_of", "number, past, at", [f"Attempt(number=number, {fields_of(Past, 'past', Attempt)})"], Attempt=Attempt
)
_pasts = msgspec.json.Decoder(list[PastRow]).decode
_events = msgspec.json.Decoder(tuple[Event, ...]).decode


def history_of(attempts: str, events: str) -> History:
    """Return the history in two JSON arrays."""
    at = Moments()
    return History(tuple(attempt_of(row, at) for row in _pasts(attempts)), _events(events))


def attempt_of(row: PastRow, at: Moments) -> Attempt:
    """Return the attempt in one row of a history."""
    number, folded, until, past = row
    past.count += folded
    past.finished_at = past.finished_at if until is None else until
    return _attempt(number, past, at)


Sight = tuple[int | None, Job | None, Job | None, Attempt | None]
"""The id of a job's last change, the job, the other job that has the dedup key it wants, and the stored attempt that a
change would close."""

Stored = tuple[dict[UUID, Job], list[UUID], dict[str, UUID], dict[str, Job]]
"""The jobs that are stored already, by id or key; which of these ids are stored; which job has each dedup key; and the
job of each request."""


class RecordReader:
    """Makes jobs from records, and reuses the parts that records of one result share."""

    def __init__(self, make: Callable[..., Job], names: Sequence[str]) -> None:
        """``make``: makes a job from what is shared, ``Moments`` and ``Specs``, and the columns of a record with these
        ``names``."""
        self._at, self._specs, self._make = Moments(), Specs(), make
        self._names = names

    def jobs(self, records: Sequence[Sequence[Any]]) -> list[Job]:
        """Return the jobs in these records; :raises Unreadable: one of them is none"""
        at, specs, make = self._at, self._specs, self._make
        try:
            return [make(at, specs, *record) for record in records]
        except Exception:
            for record in records:
                try:
                    self.job(record)
                except Exception as error:
                    raise Unreadable(self._about(record)[0], told_fault(error)) from error
            raise

    def shown(self, records: Sequence[Sequence[Any]]) -> list[Job]:
        """Return the jobs in these records for display, with a stand-in for each that cannot be read."""
        try:
            return self.jobs(records)
        except Unreadable:
            return [self._shown(record) for record in records]

    def _shown(self, record: Sequence[Any]) -> Job:
        try:
            return self.job(record)
        except Exception as error:
            id, seq, status = self._about(record)
            return stand_in(id, error, seq=seq, status=status)

    def _about(self, record: Sequence[Any]) -> tuple[UUID, int, Status]:
        """Return the id, order number and status of a record that cannot be read."""
        id, seq, status = (record[self._names.index(name)] for name in ("id", "seq", "status"))
        known = Status(status) if status in set(Status) else Status.FAILED
        return id if isinstance(id, UUID) else UUID(str(id)), seq if isinstance(seq, int) else 0, known

    def job(self, record: Sequence[Any]) -> Job:
        """Return the job in a record."""
        return self._make(self._at, self._specs, *record)

    def sights(self, rows: Iterable[tuple[int | None, Any, Any, PastRow | None]]) -> list[Sight]:
        """Return the result of ``second_look.sql``."""
        return [
            (
                last,
                None if record is None else self.job(record),
                None if holder is None else self.job(holder),
                None if past is None else attempt_of(past, self._at),
            )
            for last, record, holder, past in rows
        ]

    def stored(self, rows: Iterable[tuple[str | None, Any]]) -> Stored:
        """Return the result of ``known.sql``: of each record, by what it was found.

        That is null for its id, "d" and the dedup key as it is stored, or "r" and the request key.
        """
        known, here = dict[UUID, Job](), list[UUID]()
        holders, firsts = dict[str, UUID](), dict[str, Job]()
        for by, record in rows:
            job = self.job(record)
            known[job.id] = job
            if by is None:
                here.append(job.id)
            elif by.startswith("r"):
                firsts[by[1:]] = job
            else:
                holders[by[1:]] = job.id
        return known, here, holders, firsts
