"""The columns of a PostgreSQL store: what each contains of a job, and how statements name them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engines.record import State
from headrace.engines.sql import batches
from headrace.engines.sql.columns import FOR_OTHERS, Column, job_columns

__all__ = ["CHANGE", "CLAIMED", "JOB", "NEW", "RECORD", "RUN", "WORDS", "texts"]

_HELD = "{0}={0} if held else None"
"""Read only while the job is held: on a completed job the worker is that of its attempt, and the claim is unused."""

JOB = (
    *job_columns(
        id={"select": "b.id"},
        worker={"read": _HELD.format("worker"), "set": "CASE WHEN j.number IS NULL THEN {} ELSE j.worker END"},
        claim={"read": _HELD.format("claim")},
        progress={
            "read": "progress=read_progress(progress) if progress is not None else None if number is None else DONE"
        },
    ),
    # The number and the start of the attempt that completed the job; only complete.sql writes them.
    Column("number", "integer", read=FOR_OTHERS, given=""),
    Column("began", "bigint", read=FOR_OTHERS, given=""),
)
"""All columns of a job."""

NEW = (*(column for column in JOB if column.new), Column("labels", "text", "labels(job)", table="labels"))
"""The rows that ``insert_document.sql`` takes."""

RUN = (
    Column("first", "integer", table=""),
    Column("last", "integer", table=""),
    *(column for column in NEW if column.name not in ("id", "payload", "held_key")),
)
"""The columns that ``insert.sql`` takes for each run of jobs that differ only in id and payload; they have no key."""

RECORD = tuple(column for column in JOB if column.read)
"""The columns of a job as it is read."""

CLAIMED = tuple(column for column in RECORD if column.given is None)
"""The columns of a job as a claim answers it: without what the claim itself has just written."""

CHANGE = (
    Column("place", "integer", changed="place"),
    Column("seq", "bigint", changed="job.seq"),
    Column("rev_before", "integer", changed="change.rev"),
    *(column for column in JOB if column.changed),
    Column("attempt_number", "integer", changed="None if attempt is None else attempt.number"),
    Column("attempt", "text", changed="None if attempt is None else past_of(attempt, at)"),
    Column("event", "text", changed="None if change.event is None else encode(change.event)"),
    Column("notes", "text", changed="notes_of(change)"),
    Column("tally", "text", changed="tally_in(change)"),
)
"""The rows that ``apply.sql`` takes; the last two are null for most."""


def texts(columns: Iterable[Column]) -> frozenset[int]:
    """The places of the columns that are texts."""
    return frozenset(place for place, column in enumerate(columns) if column.type == "text")


def _names(columns: Iterable[Column], table: str = "") -> str:
    return ", ".join(column.name for column in columns if column.table == table or not table)


def _arrays(columns: Iterable[Column], first: int) -> str:
    """Parameters from number ``first`` on, one for each column: an array, passed as a text."""
    return ", ".join(f"${place}::text::{column.type}[]" for place, column in enumerate(columns, first))


def _values(columns: Iterable[Column]) -> dict[str, str]:
    """An expression for each column, which takes its value from the JSON array ``r``."""
    return {
        column.name: f"r ->> {place}" if column.type == "text" else f"(r ->> {place})::{column.type}"
        for place, column in enumerate(columns)
    }


_new = _values(NEW)

WORDS = {
    "record": ", ".join(column.selected for column in RECORD),
    "claimed": ", ".join(column.selected for column in CLAIMED),
    "claimed_nulls": ", ".join(f"NULL::{column.type} AS {column.name}" for column in CLAIMED),
    "claimed_head": ", ".join(f"j.{column.name}" for column in CLAIMED if column.table == "jobs"),
    "new_columns": _names(NEW, "jobs"),
    "new_values": ", ".join(_new[column.name] for column in NEW if column.table == "jobs"),
    **{f"new_{name}": _new[name] for name in ("id", "payload", "spec", "labels")},
    "run_names": _names(RUN),
    "run_columns": _names(RUN, "jobs"),
    "run_arrays": _arrays(RUN, 7),
    "suspect": f"(coalesce((j.state::json ->> {State.__struct_fields__.index('suspect')})::integer, 0) > 0)",
    "ids": "bodies",
    "binary": ' COLLATE "C"',
    "batch": ", ".join(batches.COLUMNS),
    "batch_values": ", ".join(f"(r ->> {place})::{type}" for place, type in enumerate(batches.COLUMNS.values())),
    "batch_ended": ", ".join(f"o.{name}" for name in batches.COLUMNS),
    "change_names": _names(CHANGE),
    "change_arrays": _arrays(CHANGE, 1),
    "change_values": ", ".join(f"{value} AS {name}" for name, value in _values(CHANGE).items()),
    "change_sets": ", ".join(
        f"{column.name} = {(column.set or '{}').replace('{}', f'c.{column.name}')}" for column in JOB if column.changed
    ),
}
"""The words that statements have in place of lists of columns."""
