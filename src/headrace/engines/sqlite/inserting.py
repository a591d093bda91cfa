"""Insert new jobs in one statement; they are looked up only if an id or a dedup key is stored already."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.engine import InsertAnswer, Inserted
from headrace.engine.statements import Statements
from headrace.engines.sql.admission import is_related
from headrace.engines.sql.record import Micros, encode, labels_of
from headrace.engines.sqlite.connection import ask, drive
from headrace.engines.sqlite.rows import is_new, row_of_new
from headrace.engines.sqlite.statements import storing

__all__ = ["Collected", "Insertion"]


class Collected(Exception):
    """Lines were collected since this session learned their numbers."""


class Insertion:
    """Jobs that are to be stored, encoded before they are passed to the thread."""

    def __init__(self, jobs: list[Job], lines: list[int], collected: int, of: Batch | None, whole: bool) -> None:
        self._jobs, self._lines, self._collected, self._of, self._whole = jobs, lines, collected, of, whole
        self._new = all(is_new(job) for job in jobs)
        self._alone = of is None and not any(map(is_related, jobs))
        self._args = self._encode(range(len(jobs)))

    def _encode(self, chosen: Sequence[int]) -> tuple[str, str, int, int]:
        at = Micros()
        rows = [row_of_new(self._jobs[index], self._lines[index], at) for index in chosen]
        labels = [
            (place, label)
            for place, index in enumerate(chosen)
            if (spec := self._jobs[index].spec).tags
            or spec.schedule is not None
            or spec.parent is not None
            or spec.batch is not None
            for label in labels_of(self._jobs[index])
        ]
        return encode(rows), encode(labels), len(rows), self._collected

    def write(self, connection: apsw.Connection) -> int | list[InsertAnswer]:
        """Store the jobs; the order number of the first if all were new, else an answer for each."""
        if self._new and self._alone:
            try:
                return self._insert(connection, self._args) + 1
            except apsw.ConstraintError:
                pass  # an id or a key is stored already: find out which
        connection.execute("BEGIN IMMEDIATE")
        answers = self._sort_out(connection)
        connection.execute("COMMIT")
        return answers

    def inserted(self, first: int) -> list[InsertAnswer]:
        """The answers when all were new."""
        return [Inserted(replace(job, seq=seq)) for seq, job in enumerate(self._jobs, first)]

    def _insert(self, connection: apsw.Connection, args: tuple[str, str, int, int]) -> int:
        """Write the rows; the order number before that of the first."""
        try:
            last: int = connection.execute(ask("insert"), args).get
        except apsw.ConstraintError as error:
            if "collected" in str(error):
                raise Collected from None
            raise
        return last - args[2]

    def _sort_out(self, connection: apsw.Connection) -> list[InsertAnswer]:
        def insert(chosen: Sequence[int]) -> Statements[int]:
            yield from ()
            return self._insert(connection, self._args if len(chosen) == len(self._jobs) else self._encode(chosen))

        return drive(connection, storing(self._jobs, insert, self._of, whole=self._whole))
