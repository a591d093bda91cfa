"""Log records as JSON lines, what a record says about its job, and the line about an attempt that did not succeed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.control_characters import indented, printable, printable_json
from headrace.core.explain.explanation import span, told
from headrace.core.job import Job
from headrace.core.status import Outcome, Reason, Status
from headrace.core.times import time_of_day

__all__ = ["FIELDS", "JobFields", "JsonFormatter", "attempt_summary", "labels", "name_of", "short"]


FIELDS = ("job_id", "task", "attempt", "queue", "worker")
"""What a log record says about its job, beside its message."""

_SAYS_NOTHING = frozenset({"Lost", "Timeout"})
"""Types of errors that only repeat the outcome."""
_PRIVATE = frozenset({Reason.INVALID_PAYLOAD, Reason.INVALID_RESULT})
"""What is found wrong with a payload or a result may quote it."""


def short(id: UUID) -> str:
    """The end of an id, which is enough to recognise it; ids begin with the time, so their beginnings are alike."""
    return id.hex[-8:]


def name_of(job: Job) -> str:
    """The job as a log names it."""
    return f"{job.spec.task} {short(job.id)}"


def labels(job: Job, attempt: int | None = None) -> dict[str, Any]:
    """The job as fields of a log record: plain values, as the ``extra`` of a call."""
    number = job.attempt if attempt is None else attempt
    found = {"job_id": str(job.id), "task": job.spec.task, "attempt": number, "queue": job.queue}
    return found if job.worker is None else found | {"worker": str(job.worker)}


def attempt_summary(job: Job, outcome: Outcome, now: datetime, *, charged: bool = True, began: bool = True) -> str:
    """What became of an attempt, and of its job with it; ``job`` is as stored after that; ``began``: its start is on
    record. Payload and result are left out, and what was found wrong with them: logs go where they may not."""
    which = f"attempt {job.charged} of {job.max_attempts}"
    if not charged:
        which = f"attempt {job.attempt}" if began else "an attempt that may not have begun"
    what = {Outcome.TIMED_OUT: "timed out", Outcome.LOST: "was lost"}.get(outcome, "failed")
    return f"{name_of(job)}: {which} {what}{_why(job, began=began)}; {_then(job, now)}"


def _why(job: Job, *, began: bool) -> str:
    error = job.error
    if error is None or not began:
        return ""
    if job.reason in _PRIVATE:
        return f": {error.type} (the job says more)"
    return f": {error.message}" if error.type in _SAYS_NOTHING else f": {told(error)}"


def _then(job: Job, now: datetime) -> str:
    match job.status:
        case Status.FAILED:
            return f"dead letter ({str(job.reason).replace('_', ' ')})"
        case Status.CANCELLED:
            return "cancelled, as asked"
        case Status.RETRYING:
            seconds = max(0.0, (job.available_at - now).total_seconds())
            return f"next try {f'in {seconds:.1f} s' if seconds < 10 else span(job.available_at, now)}"
        case _:
            return f"{job.status} again, not charged"


NONE = "-"
"""What a record says in place of a job that it was not made in, where its format needs one."""
ABOUT = "_headrace"
"""Where a record keeps what it says about its job, if it has other things under some of the names."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", ABOUT}


class JobFields(logging.Filter):
    """Lets a format name the job of a record, as in ``%(task)s %(job_id)s``: outside a handler each of them is ``-``.

    Add it to a handler. While a worker runs, records that are made inside its handlers have ``job_id``, ``task``,
    ``attempt``, ``queue`` and ``worker`` anyway; but a format that names them would fail for all other records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with all of the fields."""
        for name in FIELDS:
            record.__dict__.setdefault(name, NONE)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, on one line, whatever the record holds; control characters are written \\uXXXX.

    Its keys: ``time``, ``level``, ``logger``, ``message``, ``pid``; of a record made inside a handler also ``job_id``,
    ``task``, ``attempt``, ``queue`` and ``worker``; ``exception`` and ``stack`` if there are any; and what was passed
    as ``extra``, under its own name, or under ``extra_NAME`` if that name is one of the above.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, without its end."""
        said = vars(record)
        job = said.get(ABOUT) or {name: said[name] for name in FIELDS if not _is_none(said.get(name, NONE))}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            "pid": record.process,
            **job,
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)  # which is not set in, as that of others may be
        elif record.exc_text:  # of a record that was sent here by another process
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        for name, value in said.items():
            known = name in _STANDARD or (name in FIELDS and _is_none(value)) or (name in job and job[name] is value)
            if not known:
                line[name if name not in line else f"extra_{name}"] = value
        return _encode(line)


class TextFormatter(logging.Formatter):
    """Records of others as ``headrace worker`` shows its own: time of day, level, job, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, with its traceback beneath; of its lines only the first is not set in."""
        at, level = datetime.fromtimestamp(record.created, UTC), record.levelname.lower()
        prefix = "" if record.levelno <= logging.INFO else f"{level}: "
        said = vars(record)
        job = said.get(ABOUT) or said
        task, id = (str(job.get(name, NONE)) for name in ("task", "job_id"))
        name = f"{task} {id[-8:]}: " if id != NONE else f"{task}: " if task != NONE and "worker" in job else ""
        text = f"{time_of_day(at, None)} {prefix}{printable(name)}{message_of(record)}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self.formatException(record.exc_info)
        return indented(printable(text, lines=True))


def make_printable(record: logging.LogRecord) -> None:
    """Spell out what would make a terminal do something, or look like another line, in any handler's output."""
    said = message_of(record)
    if (plain := printable(said)) != said:
        record.msg, record.args = plain, ()
    if record.exc_info and record.exc_info[1] is not None and record.exc_text is None:
        # All of it, and set in: any error of the chain may have lines that look like others, notes and groups as well.
        trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = indented("\n" + printable(trace, lines=True))[1:]
    if record.stack_info:
        record.stack_info = printable(record.stack_info, lines=True)


def message_of(record: logging.LogRecord) -> str:
    """What the record says; if its arguments do not fit, as it was written, with them behind it."""
    try:
        return record.getMessage()
    except Exception:
        said = record.msg if isinstance(record.msg, str) else _shown(record.msg)
        return f"{said} {_shown(record.args)}" if record.args else said


def _is_none(value: Any) -> bool:
    """Whether a record has nothing to say here; what others put there may not like to be compared."""
    return isinstance(value, str) and value == NONE


def _encode(line: dict[str, Any]) -> str:
    try:
        return printable_json(msgspec.json.encode(line, enc_hook=_shown).decode())
    except Exception:
        # A circle, half a character, a key that is no text: each value by itself, as far as it can be shown.
        shown = {_text(name): _plain(value) for name, value in line.items()}
        return printable_json(msgspec.json.encode(shown).decode())


def _plain(value: Any) -> Any:
    try:
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=_shown))
    except Exception:
        return _text(value if isinstance(value, str) else _shown(value))


def _shown(value: Any) -> str:
    try:
        return _text(repr(value))
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()
