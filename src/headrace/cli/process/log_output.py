"""Output of a worker process, or of the supervisor of several, while it runs: its own lines, and headrace's log.

Records are printed here unless the App has a handler that writes to the same place already.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal, Self

from headrace.cli.options import State
from headrace.cli.output.console import echo, line, say
from headrace.cli.output.words import time_of_day
from headrace.core.control_characters import printable
from headrace.worker.execution.errors import message_of
from headrace.worker.log_capture import handlers_of

__all__ = ["Logs", "Teller", "json_line", "record_text"]


_ALL, _WORKER = logging.getLogger("headrace"), logging.getLogger("headrace.worker")


class Logs(logging.Handler):
    """Prints headrace's log records like all other lines, each of them once."""

    def __init__(
        self, tell: Callable[[logging.LogRecord], None], *, verbose: bool = False, stdout: bool = False
    ) -> None:
        """``tell`` prints a record, on stderr unless ``stdout``. ``verbose``: also when jobs start and end."""
        super().__init__()
        self._tell, self._verbose, self._stdout = tell, verbose, stdout
        self._errors: list[object] = []

    def has_logged(self, error: BaseException) -> bool:
        """Return whether this very error was logged as one, with its words; it need not be printed again."""
        return any(one is error for one in self._errors)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, unless a handler of the App shows it here, in the App's own way."""
        if record.levelno >= logging.ERROR and isinstance(record.args, tuple):
            self._errors += [one for one in record.args if isinstance(one, BaseException)]
        # Checked for every record, not once: an App may set up its logging at any time.
        if not any(one is not self and self._shows(one, record) for one in handlers_of(logging.getLogger(record.name))):
            self._tell(record)

    def _shows(self, handler: logging.Handler, record: logging.LogRecord) -> bool:
        """Return whether the handler writes such a record to the same stream."""
        if record.levelno < handler.level:
            return False
        # Those of logging have a stream, those of rich a console.
        stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
        here = (
            [sys.stdout, sys.__stdout__] if self._stdout else [sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__]
        )
        return stream is not None and any(stream is one for one in here)

    def __enter__(self) -> Self:
        self._before = [(logger, logger.level) for logger in (_ALL, _WORKER)]
        _ALL.addHandler(self)
        if _ALL.level == logging.NOTSET:
            _ALL.setLevel(logging.INFO)
        if self._verbose:
            _WORKER.setLevel(logging.DEBUG)
        return self

    def __exit__(self, *exc: object) -> None:
        _ALL.removeHandler(self)
        for logger, level in self._before:
            logger.setLevel(level)


def record_text(record: logging.LogRecord) -> str:
    """Return one record as a line for people, without a level where it is only information."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text += f": {type(record.exc_info[1]).__name__}: {message_of(record.exc_info[1])}"
    return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"


class Teller:
    """Lines on stderr, as text or as JSON (``--log-format json``); with ``--json`` events as JSON lines on stdout."""

    def __init__(self, state: State, style: Literal["text", "json"], name: str = "headrace.worker") -> None:
        """``name``: the logger of the lines."""
        self._state, self._style, self._name = state, style, name

    def __call__(self, event: str, message: str, **facts: Any) -> None:
        """Print an event."""
        now = datetime.now(UTC)
        if self._state.json:
            line({"at": now, "event": event, "message": message, **facts})
        elif self._style == "json":
            json_line(self._name, message, event=event, **facts)
        else:
            say(f"{time_of_day(now)} {printable(message)}")

    def say(self, message: str) -> None:
        """Print a line that is no event."""
        if self._style == "json":
            json_line(self._name, message)
        else:
            say(f"{time_of_day(datetime.now(UTC))} {printable(message)}")

    def others(self) -> AbstractContextManager[None]:
        """Show what others log, where the App does not; with ``--json`` the default handlers stay."""
        from headrace.worker.log_capture import shown_logs

        return shown_logs(None if self._state.json and self._style == "text" else self._style)

    def logs(self, verbose: bool) -> Logs:
        """Show what headrace logs while the worker runs."""
        if self._style == "json":
            return Logs(_write, verbose=verbose)
        return Logs(self._tell, verbose=verbose, stdout=self._state.json)

    def _tell(self, record: logging.LogRecord) -> None:
        self("log", record_text(record), level=record.levelname.lower())


def json_line(name: str, message: str, level: int = logging.INFO, **facts: Any) -> None:
    """Print a line as if it had been logged."""
    record = logging.LogRecord(name, level, __file__, 0, message, None, None)
    record.__dict__.update(facts)
    _write(record)


def _write(record: logging.LogRecord) -> None:
    from headrace.logs import JsonFormatter

    # In one piece: other processes may write to the same pipe.
    echo(JsonFormatter().format(record), err=True)
    sys.stderr.flush()
