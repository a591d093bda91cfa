"""The columns of a PostgreSQL store: what each has of a job, and how statements name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.engines.sql import entries, families, verification, workers
from headrace.engines.sql.columns import FOR_OTHERS, REPORTED, Column, at_once, job_columns, names, parameters, sets
from headrace.engines.sql.columns import PLAIN as COMMON_PLAIN
from headrace.engines.sql.encoding import State
from headrace.engines.sql.reader import Past

__all__ = [
    "ALIKE",
    "APPEND",
    "CHANGE",
    "CLAIMED",
    "COMPLETE",
    "JOB",
    "NEW",
    "OF_PLAIN",
    "ONE",
    "PLAIN",
    "RECORD",
    "REPORT",
    "RUN",
    "WORDS",
    "texts",
]

_HELD = "{0}={0} if held else None"
"""Read only while the job is held: on a completed job the worker is that of its attempt, and the claim is unused."""

JOB = (
    *job_columns(
        id={"select": "b.id"},
        worker={"read": _HELD.format("worker"), "set": "CASE WHEN j.number IS NULL THEN {} ELSE j.worker END"},
        claim={"read": _HELD.format("claim")},
        created_at={"table": "bodies"},
        progress={
            "read": "progress=read_progress(progress) if progress is not None else None if number is None else DONE"
        },
    ),
    # The number and the start of the attempt that completed the job; only complete.sql writes them.
    Column("number", "integer", read=FOR_OTHERS, given=""),
    Column("began", "bigint", read=FOR_OTHERS, given=""),
)
"""All columns of a job, but ``took``, which is only read with its attempt."""

NEW = (
    *(column for column in JOB if column.new),
    Column("labels", "text", "labels(job)", table="labels"),
    Column("request", "text", "request_key(job)", table="bodies"),
)
"""The rows that ``insert_document.sql`` takes."""

RUN = (
    Column("first", "integer", table=""),
    Column("last", "integer", table=""),
    *(column for column in NEW if column.name not in ("id", "payload", "held_key", "request")),
)
"""What ``insert.sql`` takes for each run of jobs that differ only in id and payload, without dedup and request keys."""

ONE = tuple(column for column in RUN[2:] if column.name not in ("turn_key", "labels"))
"""The columns that ``insert_one.sql`` takes of one job without a concurrency key and without labels."""

PLAIN = tuple(column for column in ONE if column.name in COMMON_PLAIN)
"""Those of them that it takes of a job that is queued at once, as most are: the others follow. Each value that is
passed costs the driver a microsecond."""

RECORD = tuple(column for column in JOB if column.read)
"""The columns of a job as it is read."""

CLAIMED = tuple(column for column in RECORD if column.given is None)
"""The columns of a job as a claim returns it: without what the claim itself has just written."""

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


COMPLETE = (
    *CHANGE[:3],
    *(column for column in JOB if column.name in ("rev", "finished_at", "epoch", "change")),
    Column("number", "integer", changed="job.attempt"),
    Column("began", "bigint", changed="at[job.started_at]"),
    Column("released", "boolean", changed="change.key is RELEASE"),
    Column("progress", "text", changed="None if progress is None or progress is DONE else encode(progress)"),
    Column("state", "text", changed="None if follows else state_of(job, at)"),
    # As a text, since most batches have only nulls.
    Column("took", "text", changed="None if took is None else repr(took)"),
    Column("result", "text", changed="job.result_text"),
    Column("batch", "text", changed="job.spec.batch"),
)
"""The rows that ``complete.sql`` takes; the last is null for most."""

ALIKE = ("rev_before", "rev", "epoch", "number", "released", "result")
"""Columns of these rows that are the same for most jobs that complete together, and passed once then: the server would
take longer to read the arrays than to write the rows."""

REPORT = (*CHANGE[:3], *(column for column in JOB if column.name in REPORTED))
"""The rows that ``report.sql`` takes."""

OWNED = (
    Column("place", "integer"),
    Column("id", "uuid"),
    Column("worker", "uuid"),
    Column("epoch", "bigint"),
)
"""The rows that ``owned.sql`` takes: jobs, and the workers that claim to own them."""

APPEND = (*OWNED, Column("entries", "text"))
"""The rows that ``append.sql`` takes."""


def texts(columns: Iterable[Column]) -> frozenset[int]:
    """Return the indexes of the columns that are texts."""
    return frozenset(place for place, column in enumerate(columns) if column.type == "text")


def _in_jobs(columns: Iterable[Column]) -> str:
    return names(column for column in columns if column.table == "jobs")


def _arrays(columns: Iterable[Column], first: int) -> str:
    """Return parameters from number ``first`` on, one for each column: an array, passed as a text."""
    return ", ".join(f"${place}::text::{column.type}[]" for place, column in enumerate(columns, first))


def _values(columns: Iterable[Column]) -> dict[str, str]:
    """Return an expression for each column, which takes its value from the JSON array ``r``."""
    return {
        column.name: f"r ->> {place}" if column.type == "text" else f"(r ->> {place})::{column.type}"
        for place, column in enumerate(columns)
    }


def _rows(**formats: Sequence[Column]) -> dict[str, str]:
    """Return, for each kind of rows of a statement, their columns and the parameters, each an array, from $1 on."""
    arrays = {f"{kind}_arrays": _arrays(columns, 1) for kind, columns in formats.items()}
    return arrays | {f"{kind}_names": names(columns) for kind, columns in formats.items()}


def _sets(columns: Iterable[Column]) -> str:
    """Return what an update sets these columns of ``jobs j`` to, from the rows ``c``."""
    found = list(columns)
    return sets(found, [f"c.{column.name}" for column in found])


_PAST_OF_COMPLETED = {
    "count": "1",
    "epoch": "epoch - 1",
    "outcome": "'completed'",
    "started_at": "began",
    "cause": "NULL",
    "error": "NULL",
    "processing_time": "took",
    "retry_at": "NULL",
}
"""What a completed job has of its last attempt, where that is not in the column of the same name."""

_new = _values(NEW)


def _words_of_one(values: Mapping[str, str]) -> dict[str, str]:
    """Return the words of ``insert_one.sql`` for these values of columns."""
    kept = [column for column in ONE if column.table == "jobs" and column.name in values]
    news = {f"one_{name}": values[name] for name in ("spec", "created_at", "subqueue")}
    return news | {"one_columns": names(kept), "one_values": ", ".join(values[column.name] for column in kept)}


def _given(columns: Iterable[Column]) -> dict[str, str]:
    """Return a parameter for each column, behind those that every insert of one job has."""
    return {column.name: f"${place}::{column.type}" for place, column in enumerate(columns, 8)}


OF_PLAIN = _words_of_one(at_once(_given(PLAIN)))
"""The words of ``insert_one.sql`` where it takes ``PLAIN``."""

WORDS = {
    "record": ", ".join(column.selected for column in RECORD),
    "claimed": ", ".join(column.selected for column in CLAIMED),
    "claimed_nulls": ", ".join(f"NULL::{column.type} AS {column.name}" for column in CLAIMED),
    "claimed_head": ", ".join(f"j.{column.name}" for column in CLAIMED if column.table == "jobs"),
    "new_columns": _in_jobs(NEW),
    "new_values": ", ".join(_new[column.name] for column in NEW if column.table == "jobs"),
    **{f"new_{name}": _new[name] for name in ("id", "payload", "spec", "labels", "subqueue", "created_at", "request")},
    "run_names": names(RUN),
    "run_columns": _in_jobs(RUN),
    "run_arrays": _arrays(RUN, 9),
    **_words_of_one(_given(ONE)),
    "suspect": f"(coalesce((j.state::json ->> {State.__struct_fields__.index('suspect')})::integer, 0) > 0)",
    "ids": "bodies",
    "job_id": "j.id::text",
    "batch_id": "b.id::text",
    "body_of_job": "b.id = j.id",
    "dedup_of_body": "(b.spec::json ->> 'dedup')",
    "dedup_for_of_body": "(b.spec::json ->> 'dedup_for')",
    "verb_of_event": "(e.data::json ->> 'verb')",
    "task_of_body": "(b.spec::json ->> 'task')",
    "attempt_of_job": f"coalesce((j.state::json ->> {verification.STATE['attempt']})::integer, j.number, 0)",
    "attempt_on_row": "(j.number IS NOT NULL)",
    "last_record_of_job": (
        f"coalesce((j.state::json -> {verification.STATE['streak']} ->> 'number')::integer,"
        f" (j.state::json ->> {verification.STATE['attempt']})::integer)"
    ),
    "binary": ' COLLATE "C"',
    "batch": names(families.COLUMNS),
    "batch_values": ", ".join(_values(families.COLUMNS).values()),
    "batch_ended": ", ".join(f"o.{column.name}" for column in families.COLUMNS),
    **workers.WORDS,
    **verification.WORDS,
    "worker_arrays": ", ".join(
        f"{value}::text::{column.type}[]"
        for column, value in zip(workers.CHANGED, parameters(workers.CHANGED, 5), strict=True)
    ),
    "worker_said": names(workers.CHANGED),
    "worker_changed": sets(workers.CHANGED, (f"l.{column.name}" for column in workers.CHANGED)),
    "named_arrays": ", ".join(f"${len(workers.CHANGED) + place}::text::uuid[]" for place in (5, 6)),
    **entries.WORDS,
    "entry_values": ", ".join(_values(entries.COLUMNS).values()),
    "past_of_completed": ", ".join(_PAST_OF_COMPLETED.get(name, name) for name in Past.__struct_fields__),
    **_rows(change=CHANGE, complete=COMPLETE, report=REPORT, owned=OWNED, append=APPEND),
    **{f"alike_{name}": f"coalesce(c.{name}, ${at})" for at, name in enumerate(ALIKE, len(COMPLETE) + 1)},
    "change_values": ", ".join(f"{value} AS {name}" for name, value in _values(CHANGE).items()),
    "change_sets": _sets(column for column in JOB if column.changed),
    "report_sets": _sets(REPORT[3:]),
}
"""The words in statements that are replaced by lists of columns."""
