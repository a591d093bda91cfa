"""Endings: what one run of a handler came to, as values the lifecycle decides from."""

from __future__ import annotations

import msgspec

from headrace.core.job import ErrorInfo
from headrace.core.status import Reason

__all__ = ["Completed", "Ending", "Failed", "Released", "Snoozed", "TimedOut"]


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The handler returned."""

    result_text: str = "null"


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The handler raised, or could not be called."""

    error: ErrorInfo
    names: tuple[str, ...] = ()
    """Every name the error's class answers to, for ``retry_on`` and ``give_up_on``."""
    reason: Reason | None = None
    """Set when no further attempt is worth making, and why."""
    delay: float | None = None
    """Asked for by ``RetryLater``, or by the function that is the backoff; overrides what the policy says."""


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be run again later."""

    delay: float


class Released(msgspec.Struct, frozen=True, tag=True):
    """The worker handed the job back, or the handler obeyed a request to stop."""


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    """The attempt ran out of time."""

    error: ErrorInfo | None = None
    delay: float | None = None
    """What the function that is the backoff asked for; overrides what the policy says."""


Ending = Completed | Failed | Snoozed | Released | TimedOut
