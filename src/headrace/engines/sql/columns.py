"""Row formats: which column keeps which field of a job, and how its value is written and read.

The columns are listed once (``_JOB``), and each engine says what is different there (``jobs/columns.py``). Its
statements, and the functions that make rows of jobs and jobs of rows, are made from that list when the engine is
imported. What is written and read is a Python expression, and these are compiled into one function, as ``namedtuple``
and ``dataclass`` do: a loop over the columns would take twice as long, and this is done several times for every job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

import msgspec

from headrace.core.attempt import ErrorInfo, Progress
from headrace.core.job import Job, Spec, spec_of
from headrace.core.matching.customers import turn_of
from headrace.core.status import Status
from headrace.engines.sql.encoding import STAGES, Micros, State, encode, rank_of

__all__ = [
    "FOR_OTHERS",
    "PLAIN",
    "READ_STATE",
    "REPORTED",
    "Column",
    "Specs",
    "arguments",
    "at_once",
    "fields_in",
    "fields_of",
    "fields_to",
    "function",
    "is_new",
    "job_columns",
    "job_of",
    "names",
    "parameters",
    "row",
    "sets",
    "state_of",
    "tuple_type",
]


FOR_OTHERS = " "
"""In place of what is read: the column is read, but only for other columns."""


class Column(msgspec.Struct, frozen=True):
    """A column of a row. Expressions may use ``job``, ``change``, and ``at``, which turns moments into numbers on
    writes, and numbers into moments on reads."""

    name: str
    type: str
    """The type, as PostgreSQL names it."""
    new: str = ""
    """What is written for a new job; empty: nothing, the schema has a default."""
    changed: str = ""
    """What is written with a change; empty: it stays."""
    read: str = ""
    """The arguments for ``Job`` that are made of it, with commas between them; empty: it is not read."""
    table: str = "jobs"
    select: str = ""
    """The SQL that reads it, if not just its name."""
    set: str = ""
    """The SQL with which a change sets it, if not just the value, which is written ``{}`` here."""
    given: str | None = None
    """For an engine that does not read from a claimed row what the claim itself has just written: what is made of the
    ``given`` grant instead of ``read``. None: it is read from the row."""

    @property
    def selected(self) -> str:
        """The SQL that reads it: from ``jobs j``, ``bodies b`` or ``ends e``."""
        return self.select or f"{self.table[0]}.{self.name}"


def plain(name: str, type: str, *, new: bool = False, given: str | None = None) -> Column:
    """Return a column that keeps a field of the job as it is."""
    value = f"job.{name}"
    return Column(name, type, value if new else "", value, f"{name}={name}", given=given)


def moment(name: str, *, new: bool = False, given: str | None = None) -> Column:
    """Return a column that keeps a moment, in microseconds."""
    value = f"at[job.{name}]"
    return Column(name, "bigint", value if new else "", value, f"{name}=at[{name}]", given=given)


def document(name: str) -> Column:
    """Return a column that keeps a value as JSON."""
    value = f"None if job.{name} is None else encode(job.{name})"
    return Column(name, "text", "", value, f"{name}=None if {name} is None else read_{name}({name})")


class Specs(dict[str, Spec]):
    """Specs by their texts, each decoded once: jobs that were submitted together share theirs."""

    def __missing__(self, key: str) -> Spec:
        self[key] = spec = spec_of(key)
        return spec


CUT_OFF = "[1]"
"""The stored state of a job if its first attempt was lost when several workers died at once: all that were in flight
have it after a power cut, and what writes their rows reads it. It means more than its array says; a reader that takes
it as an array stores the start of the job before its call, as after any other loss."""
_CUT_OFF = State(attempt=1, blameless_losses=1)

_read = msgspec.json.Decoder(State).decode


def _read_state(text: str) -> State:
    return _CUT_OFF if text == CUT_OFF else _read(text)


_TYPES = {"uuid": UUID | None, "blob": UUID | None, "text": str | None, "boolean": bool | None}

NAMES: dict[str, Any] = {
    "Job": Job,
    "NEW": State(),
    "State": State,
    "turn_of": turn_of,
    "STATUS": {status.value: status for status in Status},
    "encode": encode,
    "rank_of": rank_of,
    "read_state": _read_state,
    "read_progress": msgspec.json.Decoder(Progress).decode,
    "read_error": msgspec.json.Decoder(ErrorInfo).decode,
}
"""What every expression may use."""


def function(name: str, parameters: str, lines: Sequence[str], **names: Any) -> Callable[..., Any]:
    """Return the function with these lines, the last of which is the expression that it returns."""
    *before, last = lines
    body = "".join(f"    {line}\n" for line in (*before, f"return {last}"))
    space = NAMES | names
    exec(compile(f"def {name}({parameters}):\n{body}", f"<{name}>", "exec"), space)
    made: Callable[..., Any] = space[name]
    return made


def names(columns: Iterable[Column]) -> str:
    """Return the names of these columns."""
    return ", ".join(column.name for column in columns)


def parameters(columns: Sequence[Column], first: int = 1) -> list[str]:
    """Return a parameter of a statement for each column, from number ``first`` on."""
    return [f"${number}" for number in range(first, first + len(columns))]


def sets(columns: Iterable[Column], values: Iterable[str]) -> str:
    """Return what an update sets these columns to, with this SQL for their values."""
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{column.name} = {(column.set or '{}').replace('{}', value)}" for column, value in pairs)


def arguments(columns: Iterable[Column]) -> str:
    """Return the arguments that are made of these columns."""
    return ", ".join(column.read for column in columns)


def row(values: Iterable[str]) -> str:
    """Return the expression for a row of these values."""
    return f"({', '.join(values)},)"


def job_of(arguments: Iterable[str]) -> str:
    """Return the expression for a job of these arguments, in the order of its fields, which is the fastest."""
    given = dict(one.split("=", 1) for each in arguments if each.strip() for one in each.split(", "))
    return f"Job({', '.join(f'{name}={given[name]}' for name in Job.__struct_fields__ if name in given)})"


def tuple_type(columns: Iterable[Column]) -> Any:
    """Return the type that a row of these columns has in a JSON document."""
    return tuple[tuple(_TYPES.get(column.type.lower(), int | None) for column in columns)]  # type: ignore[misc]


def _moments_in(type: Any) -> set[str]:
    return {name for name, hint in get_type_hints(type).items() if hint in (datetime, datetime | None)}


def fields_to(kept: type[msgspec.Struct], source: str, type: Any, but: int = 0) -> str:
    """Return the expression for the fields of ``kept``, which has moments as numbers, from a ``source`` of a type.

    ``but``: so many of the last are left out.
    """
    moments, fields = _moments_in(type), kept.__struct_fields__
    fields = fields[: len(fields) - but]
    return row(f"at[{source}.{name}]" if name in moments else f"{source}.{name}" for name in fields)


def fields_of(kept: type[msgspec.Struct], source: str, type: Any) -> str:
    """Return the arguments for a type that are made of the fields of a ``source``, which is a ``kept``."""
    moments = _moments_in(type)
    return ", ".join(
        f"{name}=at[{source}.{name}]" if name in moments else f"{name}={source}.{name}"
        for name in kept.__struct_fields__
    )


READ_STATE = fields_of(State, "state", Job)
"""The arguments for ``Job`` that are made of its state."""

_ENDS = ("reason", "moved_to")
"""The fields before which a state ends, if all from there on is as on a new job: the first for nearly all stored
states, the second for jobs that were lost."""


def _new_from(fields: Iterable[msgspec.structs.FieldInfo]) -> str:
    """Return the expression for whether a job has these fields of its state as a new one."""
    return " and ".join(f"job.{one.name} is None" if one.default is None else f"not job.{one.name}" for one in fields)


def _states() -> list[str]:
    """Return the lines of a function that makes the text of a state."""
    fields, texts = msgspec.structs.fields(State), list[str]()
    for end in _ENDS:
        rest = fields[State.__struct_fields__.index(end) :]
        texts.append(f"if {_new_from(rest)}: return encode({fields_to(State, 'job', Job, but=len(rest))})")
    cut = [one for one in fields if getattr(_CUT_OFF, one.name) == one.default]
    others = [f"job.{one.name} == {getattr(_CUT_OFF, one.name)}" for one in fields if one not in cut]
    texts.insert(1, f"if {' and '.join(others)} and {_new_from(cut)}: return CUT_OFF")
    return [*texts, f"encode({fields_to(State, 'job', Job)})"]


state_of: Callable[[Job, Micros], str] = function("state_of", "job, at", _states(), CUT_OFF=CUT_OFF)
"""What no statement reads, as it is stored: without the last fields, where these are as on a new job."""

NAMES["state_of"] = state_of

NEW_STATE = "None if job.waits == 0 and job.not_after is job.told is None else state_of(job, at)"
"""The expression for the state of a new job: most have none yet."""


_JOB = (
    Column("seq", "bigint", read="seq=seq"),
    Column("id", "uuid", "job.id", read="id=id"),
    Column("subqueue", "integer", "subqueue"),
    Column("status", "text", "job.status", "job.status", "status=STATUS[status]", given="status=given.status"),
    Column("stage", "smallint", "stage_of(job)", "stage_of(job)"),
    Column("rank", "smallint", "rank_of(job)"),
    moment("available_at", new=True),
    moment("arrived_at", new=True),
    moment("updated_at", new=True, given="updated_at=at[assigned_at]"),
    plain("rev", "integer"),
    plain("epoch", "bigint"),
    plain("unstarted_losses", "integer"),
    plain("worker", "uuid", given="worker=given.worker"),
    plain("claim", "bigint", given="claim=given.claim"),
    moment("act_by", new=True, given="act_by=given.act_by"),
    moment("assigned_at"),
    moment("accepted_at", given="accepted_at=None if given.accepted_at is None else at[assigned_at]"),
    moment("finished_at", given=""),
    moment("cancel_requested_at", given=""),
    document("progress"),
    Column("state", "text", NEW_STATE, "state_of(job, at)", READ_STATE),
    # With a change: null keeps it, an empty text frees it, any other takes it.
    Column(
        "held_key",
        "text",
        "None if job.spec.dedup is None or job.ended else held_key(job)",
        "None if change.key is KEEP or job.spec.dedup is None else '' if change.key is RELEASE else held_key(job)",
        set="CASE WHEN {} IS NULL THEN j.held_key ELSE nullif({}, '') END",
    ),
    Column("turn_key", "text", "None if job.spec.concurrency_key is None else turn_of(job.spec)"),
    Column("created_at", "bigint", "at[job.spec.created_at]"),
    Column("change", "bigint", changed="change.id"),
    Column("payload", "text", "job.payload_text", read="payload_text=payload", table="bodies"),
    Column("spec", "text", "encode(job.spec)", read="spec=specs[spec]", table="bodies"),
    Column("result", "text", changed="job.result_text", read="result_text=result"),
    document("error"),
)


REPORTED = ("updated_at", "act_by", "progress")
"""The columns that a report of progress writes; the deadline moves only if the job has a heartbeat."""


def job_columns(**own: dict[str, Any]) -> tuple[Column, ...]:
    """Return what is stored of a job, with PostgreSQL's types; ``own`` says by column what is different in one engine.
    A new field of ``Job`` is one line above."""
    return tuple(msgspec.structs.replace(column, **own.get(column.name, {})) for column in _JOB)


PLAIN = frozenset({"id", "subqueue", "rank", "created_at", "payload", "spec"})
"""The columns that differ in new jobs that are queued at once (``encoding.is_at_once``)."""


def at_once(plain: Mapping[str, str]) -> dict[str, str]:
    """Return by column the SQL for a job that is queued at once, given that for ``PLAIN``; all others are null."""
    moments = dict.fromkeys(("available_at", "arrived_at", "updated_at"), plain["created_at"])
    return {"status": f"'{Status.QUEUED.value}'", "stage": str(STAGES[Status.QUEUED]), **moments, **plain}


def fields_in(columns: Iterable[Column]) -> list[str]:
    """Return the fields of a new job that these columns are made of."""
    return list(dict.fromkeys(re.findall(r"\bjob\.(\w+)", " ".join(column.new for column in columns))))


def is_new(columns: Iterable[Column]) -> Callable[[Job], bool]:
    """Return a function that returns whether a job has no more than what is written of a new one."""
    written = {"seq", *fields_in(columns)}
    rest = [one for one in msgspec.structs.fields(Job) if not one.required and one.name not in written]
    tests = [f"job.{one.name} {'is' if one.default is None else '=='} {one.default!r}" for one in rest]
    return function("is_new", "job", [" and ".join(tests)])
