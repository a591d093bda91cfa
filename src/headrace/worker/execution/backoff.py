"""A backoff that is a function of the task: called in the process that saw the attempt fail."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from headrace.core.attempt import Failed, TimedOut
from headrace.core.job import Job
from headrace.core.lifecycle.loss import timeout_error
from headrace.core.times import seconds
from headrace.errors import HandlerFailed
from headrace.logs import labels, name_of
from headrace.worker.handler import Handler

__all__ = ["timed", "timed_out"]

_log = logging.getLogger("headrace.worker")


def timed(ending: Failed, handler: Handler, job: Job, error: BaseException | None = None) -> Failed:
    """The ending with what the task's function says about the next attempt, if there is a function and an attempt."""
    if not job.spec.retry.by_function or ending.reason is not None or ending.delay is not None:
        return ending
    # The function takes an Exception; what is none, or was raised out of its reach, is described by its name.
    given = error if isinstance(error, Exception) else HandlerFailed(ending, ending.error)
    delay = _asked(handler, job, given) if job.spec.retry.allows(ending.names) else None
    return ending if delay is None else replace(ending, delay=delay)


def timed_out(ending: TimedOut, handler: Handler, job: Job) -> TimedOut:
    """The same for an attempt that ran out of time."""
    if not job.spec.retry.by_function:
        return ending
    error = TimeoutError((ending.error or timeout_error(job)).message)
    delay = _asked(handler, job, error) if job.spec.retry.timeout_objection() is None else None
    return ending if delay is None else replace(ending, delay=delay)


def _asked(handler: Handler, job: Job, error: Exception) -> float | None:
    """Seconds until the next attempt; None if there will be none, or the function does not say."""
    fn, policy = handler.policy.retry.function, job.spec.retry
    if fn is None or job.charged + 1 >= policy.max_attempts:
        return None
    try:
        delay = fn(job.charged + 1, error)
    except BaseException:  # whatever it raises, its job must come to an end
        _log.exception(
            "%s: its backoff function failed, so the exponential backoff holds", name_of(job), extra=labels(job)
        )
        return None
    try:
        return seconds(delay, "what it returns")
    except BaseException as wrong:  # no traceback: it would lead nowhere near the function
        what = "%s: its backoff function failed, so the exponential backoff holds: %s"
        _log.error(what, name_of(job), wrong, extra=labels(job))
        return None
