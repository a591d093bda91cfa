"""Catches what handlers log, without disturbing what else is done with it, and marks each record with the job that it
was made in.

Records are seen where a logger hands them to its handlers, after its filters. One more handler on the root logger would
keep ``logging.basicConfig`` from doing anything, be removed by ``dictConfig``, and miss loggers that do not propagate.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from headrace.core.defaults import MAX_LOG_LINE_CHARACTERS
from headrace.core.entry import log_data
from headrace.logs import ABOUT, JsonFormatter, TextFormatter, labels, make_printable, message_of
from headrace.worker.execution.context import Context

__all__ = ["Style", "caught_logs", "cut_line", "handlers_of", "shown_logs", "style_here"]

Style = Literal["text", "json"]
"""How a process that is a worker, and nothing else, shows what is logged."""

_CallHandlers = Callable[[logging.Logger, logging.LogRecord], None]


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
                # If another hook was put in front meanwhile, it calls this one: stay, and pass everything on.
                if not self._workers and logging.Logger.callHandlers is _seen and self._pass_on is not None:
                    logging.Logger.callHandlers = self._pass_on  # type: ignore[method-assign, assignment]
                    self._pass_on = None

    def see(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        ctx, ours = Context._current_or_none(), _is_ours(record.name)
        if ours:
            with contextlib.suppress(Exception):
                make_printable(record)
        if ctx is not None and self._workers:
            with contextlib.suppress(Exception):  # a bug here must not disturb the user's logging
                _mark(record, ctx, ours=ours)
                if not ours:
                    ctx._caller.log(log_data(record.levelname, record.name, _text(record)))
        if _shown.style == "json":
            _shown.dress(logger)
        if (pass_on := self._pass_on) is not None:
            pass_on(logger, record)


def _seen(self: logging.Logger, record: logging.LogRecord) -> None:
    _catcher.see(self, record)


_catcher = _Catcher()
caught_logs = _catcher.catching


more_labels: Callable[[], Mapping[str, Any]] | None = None
"""What else there is to say about the run that a record is made in, such as its trace."""


def _mark(record: logging.LogRecord, ctx: Context, *, ours: bool) -> None:
    """Put on a record which job it was made in; what the caller passed as ``extra`` stays as it is."""
    said = record.__dict__
    if ours and "job_id" in said:
        return  # it says itself which job it is about
    about = labels(ctx.job, ctx.attempt)
    if not ctx._caller.of_one:  # a call for many jobs
        del about["job_id"], about["attempt"]
    if more_labels is not None:
        about |= more_labels()
    if not about.keys().isdisjoint(said):
        said[ABOUT] = about
    for name, value in about.items():
        said.setdefault(name, value)


def _is_ours(name: str) -> bool:
    return name == "headrace" or name.startswith("headrace.")


def _text(record: logging.LogRecord) -> str:
    message = message_of(record)
    if record.exc_info and record.exc_info[0] is not None:
        message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return cut_line(message)


def cut_line(message: str) -> str:
    """A line as it is kept: not too long, and in characters that can be written."""
    if len(message) > MAX_LOG_LINE_CHARACTERS:
        message = f"{message[:MAX_LOG_LINE_CHARACTERS]} … ({len(message)} characters)"
    return message.encode("utf-8", "replace").decode()


# -- in a process that is a worker and nothing else


class _Shown:
    """How this process shows what is logged: as the App has set it up, or else like headrace's own lines."""

    def __init__(self) -> None:
        self.style: Style | None = None
        self._dressed: list[tuple[logging.Handler, logging.Formatter | None]] = []

    @contextmanager
    def showing(self, style: Style | None) -> Iterator[None]:
        """Show records that no handler takes in this style, and with ``json`` also those that handlers of the App would
        write to the terminal as text; None: leave everything to the App."""
        if style is None:
            yield
            return
        before, self.style, last = self.style, style, logging.lastResort
        hooks = [(module, name, getattr(module, name), ours) for module, name, ours in _HOOKS if style == "json"]
        # What logging itself does with records that no handler takes: nothing that an App could stumble over.
        logging.lastResort = _Terminal(style)
        for module, name, _, ours in hooks:
            setattr(module, name, ours)
        try:
            with caught_logs():
                yield
        finally:
            self.style, logging.lastResort = before, last
            for module, name, theirs, ours in hooks:
                if getattr(module, name) is ours:
                    setattr(module, name, theirs)
            while self._dressed:
                handler, formatter = self._dressed.pop()
                handler.setFormatter(formatter)

    def dress(self, logger: logging.Logger) -> None:
        """Have the handlers of a logger that write text to the terminal write JSON; an App may set up its logging
        whenever it likes. A formatter of its own making stays."""
        for one in handlers_of(logger):
            plain = one.formatter is None or type(one.formatter) is logging.Formatter
            if plain and isinstance(one, logging.StreamHandler) and is_terminal(one.stream):
                self._dressed.append((one, one.formatter))
                one.setFormatter(JsonFormatter())


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Log a warning, as ``logging.captureWarnings`` does; which would hide those that no handler takes."""
    logging.getLogger("py.warnings").warning("%s:%s: %s: %s", filename, lineno, category.__name__, message)


def _log_thread(args: threading.ExceptHookArgs) -> None:
    """Log what a thread raised, which would be written to stderr."""
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        error = args.exc_type, args.exc_value, args.exc_traceback
        name = "" if args.thread is None else f" {args.thread.name}"
        logging.getLogger("threading").error("exception in thread%s", name, exc_info=error)


def _log_unraisable(args: Any) -> None:
    """Log an error that can be raised nowhere, likewise."""
    error = args.exc_type, args.exc_value, args.exc_traceback
    logging.getLogger("python").error("%s: %r", args.err_msg or "exception ignored in", args.object, exc_info=error)


_HOOKS: tuple[tuple[Any, str, Callable[..., None]], ...] = (
    (warnings, "showwarning", _log_warning),
    (threading, "excepthook", _log_thread),
    (sys, "unraisablehook", _log_unraisable),
)
"""Where Python itself writes text to stderr."""


class _Terminal(logging.StreamHandler[Any]):
    """Writes to whatever stderr is at that moment, as ``logging.lastResort`` does."""

    def __init__(self, style: Style) -> None:
        logging.Handler.__init__(self, logging.WARNING if style == "text" else logging.NOTSET)
        self.setFormatter(TextFormatter() if style == "text" else JsonFormatter())

    @property
    def stream(self) -> Any:
        """Where it writes."""
        return sys.stderr


_shown = _Shown()
shown_logs = _shown.showing


def style_here() -> Style | None:
    """How this process shows what is logged; None: as the App has set it up."""
    return _shown.style


def is_terminal(stream: object) -> bool:
    """Whether this is where the process itself writes what people read."""
    return any(stream is one for one in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__) if one is not None)


def handlers_of(logger: logging.Logger | None) -> Iterator[logging.Handler]:
    """The handlers that get the records of this logger."""
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None
