"""Call a handler on this thread or loop, and return how that ended."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable
from typing import Any

from headrace.core.defaults import Rules
from headrace.core.job import ErrorInfo, Job
from headrace.core.outcome import Completed, Ending, Failed, Released, Snoozed, TimedOut
from headrace.core.retry import error_names
from headrace.core.status import Reason
from headrace.errors import GiveUp, HandlerFailed, InvalidPayload, InvalidResult, RetryLater, Snooze, Stopped
from headrace.handler import Handler
from headrace.worker.context import Context
from headrace.worker.raising import is_passing, message_of

__all__ = ["ending_of", "is_late", "perform", "raised"]


def is_late(ctx: Context) -> bool:
    """Whether a rate counts the job, and its handler may not be called any more."""
    left = ctx.caller.begins_within()
    return left is not None and left < 0


def perform(handler: Handler, ctx: Context, job: Job) -> Ending:
    """Run a plain handler on this very thread."""
    if is_late(ctx):
        return Released()
    entered = ctx.entered()
    try:
        kwargs = handler.decode(job.payload_text)
        value: Any = handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs)
        return Completed(handler.encode_result(value))
    except BaseException as error:  # a handler's SystemExit must not end the worker
        return raised(error)
    finally:
        ctx.left(entered)


async def ending_of(handler: Handler, ctx: Context, calling: Awaitable[Any]) -> Ending:
    """Call the handler on this loop; how that ended. A cancellation passes through."""
    entered = ctx.entered()
    try:
        return Completed(handler.encode_result(await calling))
    except HandlerFailed as error:
        return error.ending  # as the child said it: its own traceback, its own names
    except BaseException as error:  # a handler's SystemExit must not end the worker
        if is_passing(error):
            raise
        return raised(error)
    finally:
        ctx.left(entered)


def raised(error: BaseException) -> Ending:
    """What an error that came out of a handler means for its job."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Stopped(why=why):
            return TimedOut() if why == "timed_out" else Released()
        case RetryLater():
            return Failed(error=_info(error, trace=False), delay=error.delay)
        case GiveUp():
            return Failed(error=_info(error, trace=False, details=error.details), reason=Reason.NON_RETRYABLE)
        case InvalidPayload():
            return Failed(
                error=_info(error, trace=False, details={"field": error.field}), reason=Reason.INVALID_PAYLOAD
            )
        case InvalidResult():
            return Failed(error=_info(error, trace=False), reason=Reason.INVALID_RESULT)
        case _:
            return Failed(error=_info(error), names=error_names(type(error)))


def _info(error: BaseException, *, trace: bool = True, details: dict[str, Any] | None = None) -> ErrorInfo:
    text = None
    if trace and error.__traceback__ is not None:
        # The first frame is this module's own call of the handler.
        frames = error.__traceback__.tb_next or error.__traceback__
        try:
            text = "".join(traceback.format_exception(type(error), error, frames))
        except BaseException as unprintable:
            text = f"<the traceback cannot be shown: {type(unprintable).__name__}>"
    return ErrorInfo(type(error).__qualname__, message_of(error), text, details or None).cut(Rules().error_limit)
