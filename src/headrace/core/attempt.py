"""The ending of one run of a handler, from which the lifecycle decides, and the attempt that is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.codec.record import Record
from headrace.core.status import Outcome, Reason

__all__ = [
    "Attempt",
    "Completed",
    "Ending",
    "ErrorInfo",
    "Event",
    "Failed",
    "History",
    "Progress",
    "Released",
    "Snoozed",
    "Streak",
    "TimedOut",
    "storable",
]


_MAX_DETAIL_CHARACTERS = 200
"""Maximum characters of a detail and its name that a shortened error keeps."""


class ErrorInfo(msgspec.Struct, Record, frozen=True, omit_defaults=True):
    """What went wrong, as kept with the job and the attempt."""

    type: str
    message: str
    traceback: str | None = None
    details: dict[str, Any] | None = None

    def cut(self, limit: int) -> ErrorInfo:
        """The same error as plain JSON of at most ``limit`` bytes.

        It drops details first, except numbers and short texts, then the middle of traceback, message and type.
        """
        trace = None if self.traceback is None else storable(self.traceback)
        kept = ErrorInfo(storable(self.type), storable(self.message), trace, _plain_details(self.details))
        if _size(kept) <= limit:
            return kept
        texts = {"traceback": trace or "", "message": kept.message, "type": kept.type}
        # No text may have more characters than the whole may have bytes, so that a huge one is measured once.
        keep = {name: min(len(text), limit) for name, text in texts.items()}
        kept = replace(
            kept,
            details=_words(kept.details, limit // 4),
            **{name: _shorten(text, keep[name]) for name, text in texts.items()},
        )
        for name, text in texts.items():
            while keep[name] and _size(kept) > limit:
                keep[name] = keep[name] * 3 // 4
                kept = replace(kept, **{name: _shorten(text, keep[name])})
        return replace(kept, traceback=kept.traceback or None)


def _words(details: dict[str, Any] | None, limit: int) -> dict[str, Any] | None:
    """Return the short details, such as the HTTP status of an error, if together they have at most ``limit`` bytes."""
    words = {name: one for name, one in (details or {}).items() if not isinstance(one, dict | list)}
    few = {name: one for name, one in words.items() if len(name) + len(str(one)) <= _MAX_DETAIL_CHARACTERS}
    return few if few and len(msgspec.json.encode(few)) <= limit else None


def _size(error: ErrorInfo) -> int:
    return len(msgspec.json.encode(error))


def _plain_details(details: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the details as JSON values: other values as their ``repr``, and none that cannot be written at all."""
    if details is None:
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(details, enc_hook=_shown), type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException as error:  # a user's own code: it may raise anything, and the error is stored all the same
        return f"<it cannot be shown: {type(error).__name__}>"


def storable(text: str) -> str:
    """Return the text in characters that every store accepts: NULs and lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _shorten(text: str, keep: int) -> str:
    if len(text) <= keep:
        return text
    if keep == 0:
        return ""
    head = keep // 3
    return f"{text[:head]} … {text[len(text) - (keep - head) :]}"


class Progress(msgspec.Struct, Record, frozen=True, omit_defaults=True):
    """How far a running job has come, by its own report."""

    percent: float
    message: str | None = None
    step: str | None = None
    estimated_completion: datetime | None = None
    details: dict[str, Any] | None = None
    """Whatever the handler adds to the report, as JSON."""

    def cut(self, limit: int = 500) -> Progress:
        """Return the same report with storable, short texts: it is stored in the hot row."""
        message, step = (
            None if text is None else _shorten(storable(str(text)), limit) for text in (self.message, self.step)
        )
        return replace(self, message=message, step=step)


class Attempt(msgspec.Struct, Record, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One execution of a job; ``count`` > 1 is a run of uncharged ones folded together."""

    number: int
    epoch: int
    outcome: Outcome
    finished_at: datetime
    worker: UUID | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    error: ErrorInfo | None = None
    cause: str | None = None
    count: int = 1
    processing_time: float | None = None
    """Seconds that the handler itself took, as measured; None: not measured, see ``timed``."""
    retry_at: datetime | None = None
    """When the attempt after this one was due; None: none follows, or this one was not charged."""

    def timed(self) -> Attempt:
        """Return the same attempt with its processing time: as measured, or else from its start to its end."""
        if self.processing_time is not None or self.started_at is None:
            return self
        if self.count > 1 or self.outcome is Outcome.LOST:  # when the handler stopped is not known
            return self
        return replace(self, processing_time=(self.finished_at - self.started_at).total_seconds())

    def fold(self, again: Attempt) -> Attempt:
        """Return this record with another attempt folded in: counted, and with the other's end."""
        return replace(self, count=self.count + again.count, finished_at=again.finished_at)


class Event(msgspec.Struct, Record, frozen=True, omit_defaults=True):
    """An action of a person or program on a job, kept for the audit."""

    verb: str
    at: datetime
    by: str | None = None
    note: str | None = None
    details: dict[str, Any] | None = None
    """What the action set: the new time, queue or priority, and the one before."""


class History(msgspec.Struct, Record, frozen=True):
    """What is kept of a job beside its record, oldest first."""

    attempts: tuple[Attempt, ...] = ()
    events: tuple[Event, ...] = ()

    def timed(self) -> History:
        """Return the same history, each attempt with its processing time if that is known."""
        return replace(self, attempts=tuple(attempt.timed() for attempt in self.attempts))

    def attempt_of(self, worker: UUID, epoch: int) -> Attempt | None:
        """Return the attempt that this worker made when it owned the job at this epoch; None: it has not ended.

        So a worker that reports its ending a second time gets the reply of the first time, whatever became of the job
        since. Of attempts that share one record, this finds only the first.
        """
        return next((one for one in self.attempts if (one.worker, one.epoch) == (worker, epoch)), None)


class Streak(msgspec.Struct, frozen=True):
    """The run of equal uncharged attempts the job is in; the next one folds into attempt ``number``."""

    number: int
    outcome: Outcome


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The handler returned."""

    result_text: str = "null"


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The handler raised, or could not be called."""

    error: ErrorInfo
    names: tuple[str, ...] = ()
    """Every name of the error's class and its bases, for ``retry_on`` and ``give_up_on``."""
    reason: Reason | None = None
    """Why no further attempt is worth making; None: one may be."""
    delay: float | None = None
    """The delay of ``RetryLater`` or of the backoff function; overrides the policy."""


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler requested another run later."""

    delay: float


class Released(msgspec.Struct, frozen=True, tag=True):
    """The worker handed the job back, or the handler obeyed a request to stop."""


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    """The attempt ran out of time."""

    error: ErrorInfo | None = None
    delay: float | None = None
    """The delay of the backoff function; overrides the policy."""


Ending = Completed | Failed | Snoozed | Released | TimedOut
