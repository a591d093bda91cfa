"""Catches what handlers say to ``logging``, without getting in the way of what else is done with it.

Records are seen where a logger hands them to its handlers, after its filters. One more handler on the root logger would
keep ``logging.basicConfig`` from doing anything, be removed by ``dictConfig``, and miss loggers that do not propagate.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.core.entry import log_data
from headrace.worker.context import Context

__all__ = ["caught_logs"]

_CallHandlers = Callable[[logging.Logger, logging.LogRecord], None]

MOST_CHARACTERS = 8192
"""The longest line; what is longer is cut."""


class _Catcher:
    """Stands between loggers and their handlers, for as long as any worker of this process runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._pass_on: _CallHandlers | None = None
        """What a logger does with a record, while this stands in front of it."""

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Catch while this lasts; after the last worker of this process everything is as it was."""
        with self._lock:
            self._workers += 1
            if self._pass_on is None:
                self._pass_on = logging.Logger.callHandlers
                logging.Logger.callHandlers = _seen  # type: ignore[method-assign]

        try:
            yield
        finally:
            with self._lock:
                self._workers -= 1
                # If somebody has put theirs in front meanwhile, it calls this one: stay, and pass everything on.
                if not self._workers and logging.Logger.callHandlers is _seen and self._pass_on is not None:
                    logging.Logger.callHandlers = self._pass_on  # type: ignore[method-assign, assignment]
                    self._pass_on = None

    def see(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        ctx = Context.current_or_none()
        if ctx is not None and self._workers and not _is_ours(record.name):
            with contextlib.suppress(Exception):  # a bug here must not disturb the user's logging
                ctx.caller.log(log_data(record.levelname, record.name, _text(record)))
        if (pass_on := self._pass_on) is not None:
            pass_on(logger, record)


def _seen(self: logging.Logger, record: logging.LogRecord) -> None:
    _catcher.see(self, record)


_catcher = _Catcher()
caught_logs = _catcher.catching


def _is_ours(name: str) -> bool:
    return name == "headrace" or name.startswith("headrace.")


def _text(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # the arguments do not fit; logging complains of that by itself
        message = str(record.msg)
    if record.exc_info and record.exc_info[0] is not None:
        message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    if len(message) > MOST_CHARACTERS:
        message = f"{message[:MOST_CHARACTERS]} … ({len(message)} characters)"
    return message.encode("utf-8", "replace").decode()
