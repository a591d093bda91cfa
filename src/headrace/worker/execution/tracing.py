"""What is around the runs of an App that is instrumented, and how a run passes its span on to what follows it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec.structs import replace

from headrace.core import defaults
from headrace.core.attempt import Ending, ErrorInfo, TimedOut
from headrace.core.lifecycle.loss import timeout_error
from headrace.worker.execution.context import Context

__all__ = ["SPAN", "Tracing", "noted", "timed_out_in"]

SPAN = "traceparent"
"""The detail of an error that names the span of the attempt that failed; the next attempt links to it."""


_MAX_SPAN_BYTES = 128
"""Maximum number of bytes that the name of a span takes, as JSON."""


class Tracing(Protocol):
    """The spans of runs; ``contrib.otel`` makes them."""

    def run(self, ctx: Context, call: Callable[[], Coroutine[Any, Any, Ending]]) -> Coroutine[Any, Any, Ending]:
        """Make the call within a span; how it ended, with the name of the span if it failed."""
        ...

    def within(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Go on within the span of a run that was begun in another process."""
        ...


def noted(error: ErrorInfo, headers: Mapping[str, str]) -> ErrorInfo:
    """The error with the name of the span of its attempt, and no larger than an error may be."""
    if SPAN not in headers:
        return error
    word = {SPAN: headers[SPAN]}
    whole = replace(error, details={**(error.details or {}), **word}).cut(defaults.MAX_ERROR_BYTES)
    if SPAN in (whole.details or {}):
        return whole
    return replace(replace(error, details=None).cut(defaults.MAX_ERROR_BYTES - _MAX_SPAN_BYTES), details=word)


def timed_out_in(ctx: Context | None, ending: TimedOut) -> TimedOut:
    """The ending of an attempt that ran out of time, with the name of its span if it had one."""
    headers = None if ctx is None else getattr(ctx, "_trace", None)
    if ctx is None or headers is None:
        return ending
    return replace(ending, error=noted(ending.error or timeout_error(ctx.job), headers))
