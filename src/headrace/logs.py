"""Log records as JSON lines, and what a record says about the job that it was made in."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.core.account import FIELDS
from headrace.core.moments import time_of_day
from headrace.core.printable import indented, printable, printable_json

__all__ = ["JobFields", "JsonFormatter"]

NONE = "-"
"""What a record says in place of a job that it was not made in, where its format asks for one."""
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
    """Spell out what would make a terminal do something, or look like another line, whoever writes the record down."""
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
    except (
        Exception
    ):  # a circle, half a character, a key that is no text: each value by itself, as far as it can be shown
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
