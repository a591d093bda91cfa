"""Jobs and changes as rows of the store: written and read as JSON arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.change import Change, Key, Note
from headrace.core.job import Job
from headrace.engines.sql.attempts import past_of
from headrace.engines.sql.columns import Specs, function, job_of, row, tuple_type
from headrace.engines.sql.columns import is_new as make_is_new
from headrace.engines.sql.record import Micros, Moments, key_of, stage_of
from headrace.engines.sqlite.columns import CHANGE, NEW, RECORD, REPORT

__all__ = ["RECORD_TYPE", "Reader", "is_new", "jobs_of", "row_of_change", "row_of_new", "row_of_report"]

if TYPE_CHECKING:
    RECORD_TYPE = tuple[Any, ...]
else:
    RECORD_TYPE = tuple_type(RECORD)
"""A job as the view ``record`` gives it."""

_records = msgspec.json.Decoder(list[RECORD_TYPE]).decode
_job: Callable[..., Job] = function(
    "job",
    f"at, specs, {', '.join(column.name for column in RECORD)}",
    ["state = NEW if state is None else read_state(state)", job_of(column.read for column in RECORD)],
)


_seen = msgspec.json.Decoder(list[tuple[int | None, RECORD_TYPE | None, RECORD_TYPE | None]]).decode


class Reader:
    """Makes jobs from records, and reuses the parts that records of one answer share."""

    def __init__(self) -> None:
        self._at, self._specs = Moments(), Specs()

    def job(self, record: tuple[Any, ...]) -> Job:
        """The job in a record."""
        return _job(self._at, self._specs, *record)

    def sights(self, document: str) -> list[tuple[int | None, Job | None, Job | None]]:
        """The answer of ``second_look.sql``: the id of a job's last change, the job, the other job that has its key."""
        return [
            (last, None if record is None else self.job(record), None if holder is None else self.job(holder))
            for last, record, holder in _seen(document)
        ]


def jobs_of(document: str) -> list[Job]:
    """The jobs in a JSON array of records."""
    at, specs = Moments(), Specs()
    return [_job(at, specs, *record) for record in _records(document)]


is_new = make_is_new(NEW)

row_of_new: Callable[[Job, int, Micros], tuple[Any, ...]] = function(
    "row_of_new", "job, line, at", [row(column.new for column in NEW)], stage_of=stage_of, held_key=key_of
)
"""A job as ``insert_rows.sql`` takes it."""

row_of_change: Callable[[Change, Micros], tuple[Any, ...]] = function(
    "row_of_change",
    "change, at",
    ["job, attempt = change.job, change.attempt", row(column.changed for column in CHANGE)],
    stage_of=stage_of,
    held_key=key_of,
    past_of=past_of,
    KEEP=Key.KEEP,
    RELEASE=Key.RELEASE,
    ENDED=Note.ENDED,
)
"""A change as ``apply_row.sql`` takes it."""


row_of_report: Callable[[Change, Micros], tuple[Any, ...]] = function(
    "row_of_report", "change, at", ["job = change.job", row(column.changed for column in REPORT)]
)
"""A report of progress as ``apply.sql`` takes it."""
