"""The columns of a SQLite store: what each has of a job, and how statements name them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.status import Outcome, Status
from headrace.engines.sql import entries, families, verification, workers
from headrace.engines.sql.columns import PLAIN as COMMON_PLAIN
from headrace.engines.sql.columns import REPORTED, Column, at_once, job_columns, names, parameters, sets
from headrace.engines.sql.encoding import STAGES, State
from headrace.engines.sql.reader import Past

__all__ = ["AS_STATEMENT", "AS_TRIGGER", "CHANGE", "JOB", "NEW", "PLAIN", "RECORD", "REPORT", "WORDS"]

JOB = (
    *job_columns(
        id={"select": "hex(j.id)"},
        # On a completed job the worker is that of its attempt.
        worker={
            "select": f"iif(j.stage = {STAGES[Status.RUNNING]}, hex(j.worker), NULL)",
            "changed": "job.worker if done is None else done.worker",
            "set": "iif(number IS NULL, {}, worker)",
        },
        held_key={"set": "CASE WHEN {} IS NULL THEN held_key ELSE nullif({}, '') END"},
        result={"table": "ends"},
        error={"table": "ends"},
    ),
    # The number of the attempt that completed the job, and what its handler took.
    Column("number", "integer", changed="None if done is None else done.number", set="coalesce(number, {})"),
    Column("took", "real", changed="None if done is None else done.processing_time", set="coalesce(took, {})"),
)
"""All columns of a job. In what is written with a change, ``done`` is the attempt that completes the job, and
``attempt`` one that it closes otherwise; each may be None."""

NEW = tuple(column for column in JOB if column.new)
"""The rows that ``insert_rows.sql`` takes."""

PLAIN = tuple(column for column in NEW if column.name in COMMON_PLAIN)
"""What ``insert_plain.sql`` takes of a job that is queued at once, as most are: the rest of its row follows."""

RECORD = tuple(column for column in JOB if column.read)
"""The rows of the view ``record``."""

CHANGE = (
    Column("seq", "integer", changed="job.seq"),
    Column("rev_before", "integer", changed="change.rev"),
    *(column for column in JOB if column.changed),
    Column("attempt_number", "integer", changed="None if attempt is None else attempt.number"),
    Column("attempt", "text", changed="None if attempt is None else past_of(attempt, at)"),
    Column("event", "text", changed="None if change.event is None else encode(change.event)"),
    Column("ended", "integer", changed="ENDED in change.notes"),
)
"""The rows that ``apply_row.sql`` takes."""

REPORT = (*CHANGE[:2], *(column for column in JOB if column.name in REPORTED))
"""The rows of reports that ``apply.sql`` takes."""

_SET = tuple(column for column in JOB if column.changed and column.table == "jobs")


def _value(column: Column, place: int, row: str) -> str:
    """Return what a row, which is a JSON array, has in this column."""
    return f"unhex({row} ->> {place}, '-')" if column.type == "uuid" else f"({row} ->> {place})"


def _words_of_change(values: dict[str, str]) -> dict[str, str]:
    """Return the words of ``apply_row.sql`` for these values of its columns."""
    news = {f"new.{name}": value for name, value in values.items()}
    return news | {"set": sets(_SET, [values[column.name] for column in _SET])}


def _values(columns: Iterable[Column], row: str = "value") -> dict[str, str]:
    """Return an expression for each column, which takes its value from a JSON array."""
    return {column.name: _value(column, place, row) for place, column in enumerate(columns)}


def _told_id(column: str) -> str:
    """Return the SQL for an id as it is written elsewhere."""
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return "lower(" + " || '-' || ".join(f"substr(hex({column}), {first}, {n})" for first, n in parts) + ")"


_PAST_OF_COMPLETED = {
    "count": "1",
    "epoch": "j.epoch - 1",
    "outcome": f"'{Outcome.COMPLETED}'",
    "worker": "iif(j.worker IS NULL, NULL, hex(j.worker))",
    "started_at": f"j.state ->> {verification.STATE['started_at']}",
    "cause": "NULL",
    "error": "NULL",
    "processing_time": "j.took",
    "retry_at": "NULL",
}
"""What a completed job has of its last attempt, where that is not in the column of the same name."""

_new, _report = _values(NEW), _values(REPORT, "e.value")
_kept = [column for column in NEW if column.table == "jobs"]

_plain = at_once({column.name: f"new.{column.name}" for column in PLAIN})
_plainly = [column for column in _kept if column.name in _plain]

_batch = _values(families.COLUMNS, "$1")
_batch["calls"] = f"coalesce({_batch['calls']}, '[null,null]')"

_LAST_NUMBER = "(SELECT max(last_seq, coalesce((SELECT max(seq) FROM jobs), 0)) FROM books)"

WORDS = {
    "last_number": _LAST_NUMBER,
    "count_jobs": (
        f"UPDATE books SET accepted = accepted + {_LAST_NUMBER} - last_seq, last_seq = {_LAST_NUMBER}"
        f" WHERE last_seq < {_LAST_NUMBER}"
    ),
    "record": ", ".join(column.selected for column in RECORD),
    "new_columns": names(_kept),
    "new_values": ", ".join(_new[column.name] for column in _kept),
    "new_payload": _new["payload"],
    "new_spec": _new["spec"],
    "one_nulls": ", ".join(f"NULL AS {column.name}" for column in NEW),
    "one_values": ", ".join(f"new.{column.name}" for column in _kept),
    "one_parameters": ", ".join(f"?{number}" for number in range(1, len(NEW) + 3)),
    "plain_nulls": ", ".join(f"NULL AS {column.name}" for column in PLAIN),
    "plain_columns": names(_plainly),
    "plain_values": ", ".join(_plain[column.name] for column in _plainly),
    "plain_parameters": ", ".join(f"?{number}" for number in range(1, len(PLAIN) + 3)),
    "suspect": f"(coalesce(j.state ->> {State.__struct_fields__.index('suspect')}, 0) > 0)",
    "ids": "jobs",
    "job_id": _told_id("j.id"),
    "batch_id": _told_id("b.id"),
    "body_of_job": "b.seq = j.seq",
    "dedup_of_body": "(b.spec ->> 'dedup')",
    "dedup_for_of_body": "(b.spec ->> 'dedup_for')",
    "verb_of_event": "(e.data ->> 'verb')",
    "task_of_body": "(b.spec ->> 'task')",
    "attempt_of_job": f"coalesce(j.state ->> {verification.STATE['attempt']}, 0)",
    "attempt_on_row": "(j.number IS NOT NULL)",
    "past_of_completed": ", ".join(_PAST_OF_COMPLETED.get(name, f"j.{name}") for name in Past.__struct_fields__),
    "last_record_of_job": (
        f"coalesce(j.state -> {verification.STATE['streak']} ->> 'number', j.state ->> {verification.STATE['attempt']})"
    ),
    "binary": "",
    "batch": names(families.COLUMNS),
    "batch_values": ", ".join(_batch.values()),
    **workers.WORDS,
    **verification.WORDS,
    "lone_parts": verification.lone_parts(("ends.seq", "a result or an error of a job that is gone")),
    "worker_changed": sets(workers.CHANGED, parameters(workers.CHANGED, 2)),
    **entries.WORDS,
    "change_nulls": ", ".join(f"NULL AS {column.name}" for column in CHANGE),
    "change_values": ", ".join(_values(CHANGE).values()),
    **{f"report_{name}": _report[name] for name in ("seq", "rev_before")},
    "report_sets": sets(REPORT[2:], [_report[name] for name in REPORTED]),
}
"""The words in statements that are replaced by lists of columns."""

AS_TRIGGER = {
    "insert_rows": {
        "rows": "new.rows",
        "labels": "new.labels",
        "requests": "new.requests",
        "n": "new.n",
        "lists": "new.lists",
    },
    "apply_row": _words_of_change({column.name: f"new.{column.name}" for column in CHANGE}),
}
"""The values in the body of a trigger."""

AS_STATEMENT = {
    "insert_rows": {
        "rows": "($1 ->> 0)",
        "labels": "($1 ->> 1)",
        "requests": "($1 ->> 2)",
        "n": "($1 ->> 3)",
        "lists": "($1 ->> 4)",
    },
    "apply_row": _words_of_change(_values(CHANGE, "$1")),
}
"""The same in statements of their own, with a JSON array of the values as parameter."""
