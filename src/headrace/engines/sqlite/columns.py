"""The columns of a SQLite store: what each keeps of a job, and what statements say of them."""

from __future__ import annotations

from headrace.engines.sql import batches
from headrace.engines.sql.columns import NEW_STATE, READ_STATE, Column, document, moment, plain

__all__ = ["AS_STATEMENT", "AS_TRIGGER", "CHANGE", "JOB", "NEW", "RECORD", "WORDS"]

JOB = (
    Column("seq", "INTEGER", read="seq=seq"),
    Column("id", "BLOB", "job.id", read="id=id", select="hex(j.id)"),
    Column("line", "INTEGER", "line"),
    Column("status", "TEXT", "job.status", "job.status", "status=STATUS[status]"),
    Column("stage", "INTEGER", "stage_of(job)", "stage_of(job)"),
    Column("rank", "INTEGER", "-job.spec.priority"),
    moment("available_at", "INTEGER", new=True),
    moment("arrived_at", "INTEGER", new=True),
    moment("updated_at", "INTEGER", new=True),
    plain("rev", "INTEGER"),
    plain("epoch", "INTEGER"),
    plain("unstarted_losses", "INTEGER"),
    Column("worker", "BLOB", "", "job.worker", "worker=worker", select="iif(j.worker IS NULL, NULL, hex(j.worker))"),
    plain("claim", "INTEGER"),
    moment("act_by", "INTEGER", new=True),
    moment("assigned_at", "INTEGER"),
    moment("accepted_at", "INTEGER"),
    moment("finished_at", "INTEGER"),
    moment("cancel_requested_at", "INTEGER"),
    document("progress", "TEXT"),
    Column("state", "TEXT", NEW_STATE, "state_of(job, at)", READ_STATE),
    # With a change: 0 keeps it, 1 releases it, a text takes it.
    Column(
        "held_key",
        "TEXT",
        "None if job.spec.dedup is None or job.ended else key_of(job)",
        "0 if change.key is KEEP or job.spec.dedup is None else 1 if change.key is RELEASE else key_of(job)",
        set="CASE {} WHEN 0 THEN held_key WHEN 1 THEN NULL ELSE {} END",
    ),
    Column("turn_key", "TEXT", "job.spec.concurrency_key"),
    Column("change", "INTEGER", changed="change.id"),
    Column("payload", "TEXT", "job.payload_text", read="payload_text=payload", table="bodies"),
    Column("spec", "TEXT", "encode(job.spec)", read="spec=specs[spec]", table="bodies"),
    Column("result", "TEXT", changed="job.result_text", read="result_text=result", table="ends"),
    document("error", "TEXT", table="ends"),
)
"""What is kept of a job. A new field of ``Job`` is one line here."""

NEW = tuple(column for column in JOB if column.new)
"""The rows that ``insert_rows.sql`` takes."""

RECORD = tuple(column for column in JOB if column.read)
"""The rows of the view ``record``."""

CHANGE = (
    Column("seq", "INTEGER", changed="job.seq"),
    Column("rev_before", "INTEGER", changed="change.rev"),
    *(column for column in JOB if column.changed),
    Column("number", "INTEGER", changed="None if attempt is None else attempt.number"),
    Column("attempt", "TEXT", changed="None if attempt is None else past_of(attempt, at)"),
    Column("event", "TEXT", changed="None if change.event is None else encode(change.event)"),
    Column("ended", "INTEGER", changed="ENDED in change.notes"),
)
"""The rows that ``apply_row.sql`` takes."""

_SET = tuple(column for column in JOB if column.changed and column.table == "jobs")


def _value(column: Column, place: int, row: str) -> str:
    """What a row, which is a JSON array, has in this column."""
    return f"unhex({row} ->> {place}, '-')" if column.type == "BLOB" else f"({row} ->> {place})"


def _words_of_change(values: dict[str, str]) -> dict[str, str]:
    """What ``apply_row.sql`` says, where these are the values of its columns."""
    sets = (f"{one.name} = {(one.set or '{}').replace('{}', values[one.name])}" for one in _SET)
    return {**{f"new.{name}": value for name, value in values.items()}, "set": ", ".join(sets)}


_new = {column.name: _value(column, place, "value") for place, column in enumerate(NEW)}
_kept = [column.name for column in NEW if column.table == "jobs"]

WORDS = {
    "record": ", ".join(column.selected for column in RECORD),
    "new_columns": ", ".join(_kept),
    "new_values": ", ".join(_new[name] for name in _kept),
    "new_payload": _new["payload"],
    "new_spec": _new["spec"],
    "ids": "jobs",
    "binary": "",
    "batch": ", ".join(batches.COLUMNS),
    "batch_values": ", ".join(
        {"id": "unhex($1 ->> 0, '-')", "calls": f"coalesce($1 ->> {place}, '[null,null]')"}.get(name, f"$1 ->> {place}")
        for place, name in enumerate(batches.COLUMNS)
    ),
    "change_nulls": ", ".join(f"NULL AS {column.name}" for column in CHANGE),
    "change_values": ", ".join(_value(column, place, "value") for place, column in enumerate(CHANGE)),
}
"""What stands in the statements for lists of columns."""

AS_TRIGGER = {
    "insert_rows": {"rows": "new.rows", "labels": "new.labels", "n": "new.n"},
    "apply_row": _words_of_change({column.name: f"new.{column.name}" for column in CHANGE}),
}
"""What stands for the values in the body of a trigger."""

AS_STATEMENT = {
    "insert_rows": {"rows": "($1 ->> 0)", "labels": "($1 ->> 1)", "n": "($1 ->> 2)"},
    "apply_row": _words_of_change({column.name: _value(column, place, "$1") for place, column in enumerate(CHANGE)}),
}
"""The same in statements of their own, whose parameter is a JSON array of the values."""
