"""Jobs from records: the answers of statements that read jobs, the same in every SQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from headrace.core.job import Attempt, Job
from headrace.engines.sql.attempts import PastRow, attempt_of
from headrace.engines.sql.columns import Specs
from headrace.engines.sql.record import Moments

__all__ = ["RecordReader", "Sight", "Stored"]

Sight = tuple[int | None, Job | None, Job | None, Attempt | None]
"""The id of a job's last change, the job, the other job that has the dedup key it wants, and what is on record of the
attempt that a change would close."""

Stored = tuple[dict[UUID, Job], list[UUID], dict[str, UUID], dict[str, Job]]
"""The jobs that are stored already, by id or key; which of these ids are stored; which job has each dedup key; and the
job of each request."""


class RecordReader:
    """Makes jobs from records, and reuses the parts that records of one answer share."""

    def __init__(self, make: Callable[..., Job]) -> None:
        """``make``: makes a job from what is shared, ``Moments`` and ``Specs``, and the columns of a record."""
        self._at, self._specs, self._make = Moments(), Specs(), make

    def jobs(self, records: Iterable[Sequence[Any]]) -> list[Job]:
        """The jobs in these records."""
        at, specs, make = self._at, self._specs, self._make
        return [make(at, specs, *record) for record in records]

    def job(self, record: Sequence[Any]) -> Job:
        """The job in a record."""
        return self._make(self._at, self._specs, *record)

    def sights(self, rows: Iterable[tuple[int | None, Any, Any, PastRow | None]]) -> list[Sight]:
        """The answer of ``second_look.sql``."""
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
        """The answer of ``known.sql``: of each record, by what it was found.

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
