"""The columns of a SQLite store: what each contains of a job, and how statements name them."""

from __future__ import annotations

from headrace.engines.record import State
from headrace.engines.sql import batches
from headrace.engines.sql.columns import Column, job_columns

__all__ = ["AS_STATEMENT", "AS_TRIGGER", "CHANGE", "JOB", "NEW", "RECORD", "WORDS"]

JOB = job_columns(
    id={"select": "hex(j.id)"},
    worker={"select": "iif(j.worker IS NULL, NULL, hex(j.worker))"},
    held_key={"set": "CASE WHEN {} IS NULL THEN held_key ELSE nullif({}, '') END"},
    result={"table": "ends"},
    error={"table": "ends"},
)
"""All columns of a job."""

NEW = tuple(column for column in JOB if column.new)
"""The rows that ``insert_rows.sql`` takes."""

RECORD = tuple(column for column in JOB if column.read)
"""The rows of the view ``record``."""

CHANGE = (
    Column("seq", "integer", changed="job.seq"),
    Column("rev_before", "integer", changed="change.rev"),
    *(column for column in JOB if column.changed),
    Column("number", "integer", changed="None if attempt is None else attempt.number"),
    Column("attempt", "text", changed="None if attempt is None else past_of(attempt, at)"),
    Column("event", "text", changed="None if change.event is None else encode(change.event)"),
    Column("ended", "integer", changed="ENDED in change.notes"),
)
"""The rows that ``apply_row.sql`` takes."""

_SET = tuple(column for column in JOB if column.changed and column.table == "jobs")


def _value(column: Column, place: int, row: str) -> str:
    """What a row, which is a JSON array, has in this column."""
    return f"unhex({row} ->> {place}, '-')" if column.type == "uuid" else f"({row} ->> {place})"


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
    "suspect": f"(coalesce(j.state ->> {State.__struct_fields__.index('suspect')}, 0) > 0)",
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
"""The words that statements have in place of lists of columns."""

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
