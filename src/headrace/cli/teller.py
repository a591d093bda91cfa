"""How a worker process, or the supervisor of several, says what it does."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.cli.loglines import Logs, told
from headrace.cli.output import echo, line, say
from headrace.cli.state import State
from headrace.cli.times import time_of_day
from headrace.core.printable import printable

__all__ = ["Teller", "json_line"]


class Teller:
    """Lines on stderr, as text or as JSON (``--log-format json``); with ``--json`` events as JSON lines on stdout."""

    def __init__(self, state: State, style: Literal["text", "json"], name: str = "headrace.worker") -> None:
        """``name``: the logger that what is said belongs to."""
        self._state, self._style, self._name = state, style, name

    def __call__(self, event: str, message: str, **facts: Any) -> None:
        """Tell an event."""
        now = datetime.now(UTC)
        if self._state.json:
            line({"at": now, "event": event, "message": message, **facts})
        elif self._style == "json":
            json_line(self._name, message, event=event, **facts)
        else:
            say(f"{time_of_day(now)} {printable(message)}")

    def say(self, message: str) -> None:
        """Tell what is no event of its own."""
        if self._style == "json":
            json_line(self._name, message)
        else:
            say(f"{time_of_day(datetime.now(UTC))} {printable(message)}")

    def others(self) -> AbstractContextManager[None]:
        """Show what others log, where the App does not; with ``--json`` that goes where it would go anyway."""
        from headrace.worker.logs import shown_logs

        return shown_logs(None if self._state.json and self._style == "text" else self._style)

    def logs(self, verbose: bool) -> Logs:
        """Show what headrace logs while the worker runs."""
        if self._style == "json":
            return Logs(_write, verbose=verbose)
        return Logs(self._tell, verbose=verbose, stdout=self._state.json)

    def _tell(self, record: logging.LogRecord) -> None:
        self("log", told(record), level=record.levelname.lower())


def json_line(name: str, message: str, level: int = logging.INFO, **facts: Any) -> None:
    """Say something as if it had been logged."""
    record = logging.LogRecord(name, level, __file__, 0, message, None, None)
    record.__dict__.update(facts)
    _write(record)


def _write(record: logging.LogRecord) -> None:
    from headrace.logs import JsonFormatter

    # In one piece: other processes may write to the same pipe.
    echo(JsonFormatter().format(record), err=True)
    sys.stderr.flush()
