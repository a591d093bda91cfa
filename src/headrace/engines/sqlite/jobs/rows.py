"""Jobs and changes as rows of the store: written and read as JSON arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.change import Change, KeyEffect, Note
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.engines.sql.columns import fields_in, function, job_of, names, row, tuple_type
from headrace.engines.sql.columns import is_new as make_is_new
from headrace.engines.sql.encoding import EachMicros, Micros, key_of, stage_of
from headrace.engines.sql.reader import PastRow, RecordReader, Sight, past_of
from headrace.engines.sql.search.finder import BLOCK_SPAN_BITS
from headrace.engines.sqlite.jobs.columns import CHANGE, NEW, PLAIN, RECORD, REPORT

__all__ = [
    "RECORD_TYPE",
    "is_like",
    "is_new",
    "jobs_of",
    "reader",
    "row_like",
    "row_of_change",
    "row_of_new",
    "row_of_one",
    "row_of_plain",
    "row_of_report",
    "shown_of",
    "sights_of",
]

if TYPE_CHECKING:
    RECORD_TYPE = tuple[Any, ...]
else:
    RECORD_TYPE = tuple_type(RECORD)
"""A job as the view ``record`` returns it."""

_job: Callable[..., Job] = function(
    "job",
    f"at, specs, {names(RECORD)}",
    ["state = NEW if state is None else read_state(state)", job_of(column.read for column in RECORD)],
)
_NAMES = [column.name for column in RECORD]
_records = msgspec.json.Decoder(list[RECORD_TYPE]).decode
_seen = msgspec.json.Decoder(list[tuple[int | None, RECORD_TYPE | None, RECORD_TYPE | None, PastRow | None]]).decode


def reader() -> RecordReader:
    """Return a reader of records."""
    return RecordReader(_job, _NAMES)


def jobs_of(document: str) -> list[Job]:
    """Return the jobs in a JSON array of records."""
    return reader().jobs(_records(document))


def shown_of(documents: Sequence[str]) -> list[Job]:
    """Return the jobs in these records for display, whatever is in them."""
    document = f"[{','.join(documents)}]"
    try:
        return reader().shown(_records(document))
    except msgspec.MsgspecError:
        return reader().shown(msgspec.json.decode(document, type=list[list[Any]]))


def sights_of(document: str) -> list[Sight]:
    """Return the result of ``second_look.sql``."""
    return reader().sights(_seen(document))


is_new = make_is_new(NEW)

row_of_new: Callable[[Job, int, Micros], tuple[Any, ...]] = function(
    "row_of_new", "job, subqueue, at", [row(column.new for column in NEW)], stage_of=stage_of, held_key=key_of
)
"""A job as ``insert_rows.sql`` takes it."""

_OWN = {"id": "id", "payload": "payload_text"}
"""The columns that jobs submitted together do not share, and their fields."""

is_like: Callable[[Job, Job], bool] = function(
    "is_like",
    "one, other",
    [" and ".join(f"one.{name} is other.{name}" for name in fields_in(NEW) if name not in _OWN.values())],
)
"""Whether two new jobs differ only in those columns; by identity, since jobs submitted together share the rest."""

row_like: Callable[[tuple[Any, ...], Job], tuple[Any, ...]] = function(
    "row_like",
    "row, job",
    [row(column.new if column.name in _OWN else f"row[{place}]" for place, column in enumerate(NEW))],
)
"""``row_of_new`` of a new job that is like the one of this row, and in the same subqueue."""

row_of_one: Callable[[Job, int, int], tuple[Any, ...]] = function(
    "row_of_one",
    "job, subqueue, collected",
    [
        "at = Micros()",
        row(
            [
                *("job.id.bytes" if column.type == "uuid" else column.new for column in NEW),
                "at[job.spec.created_at] >> BUCKET",
                "collected",
            ]
        ),
    ],
    stage_of=stage_of,
    held_key=key_of,
    Micros=Micros,
    BUCKET=BLOCK_SPAN_BITS,
)
"""A job as ``insert_one.sql`` takes it, in a subqueue that is valid for this count of collections."""

row_of_plain: Callable[[Job, int], tuple[Any, ...]] = function(
    "row_of_plain",
    "job, subqueue",
    [row("job.id.bytes" if column.type == "uuid" else column.new for column in PLAIN)],
    at=EachMicros(),
)
"""A job that is queued at once as ``insert_plain.sql`` takes it, behind its number and the count of collections."""

row_of_change: Callable[[Change, Micros], tuple[Any, ...]] = function(
    "row_of_change",
    "change, at",
    [
        "job, attempt, done = change.job, change.attempt, None",
        "if change.verb is COMPLETE: attempt, done = done, attempt",
        row(column.changed for column in CHANGE),
    ],
    stage_of=stage_of,
    held_key=key_of,
    past_of=past_of,
    KEEP=KeyEffect.KEEP,
    RELEASE=KeyEffect.RELEASE,
    ENDED=Note.ENDED,
    COMPLETE=Verb.COMPLETE,
)
"""A change as ``apply_row.sql`` takes it."""


row_of_report: Callable[[Change, Micros], tuple[Any, ...]] = function(
    "row_of_report", "change, at", ["job = change.job", row(column.changed for column in REPORT)]
)
"""A report of progress as ``apply.sql`` takes it."""
