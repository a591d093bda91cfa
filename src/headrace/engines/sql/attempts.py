"""Attempts as they are kept: an array for each, beside its number."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from headrace.core.job import Attempt, ErrorInfo, Event, History
from headrace.core.status import Outcome
from headrace.engines.sql.columns import fields_of, fields_to, function
from headrace.engines.sql.record import Micros, Moments

__all__ = ["Past", "PastRow", "attempt_of", "history_of", "past_of"]


class Past(msgspec.Struct, array_like=True):
    """An attempt as it is kept; the count and the end come first, because folding looks for them."""

    count: int
    finished_at: int
    epoch: int
    outcome: Outcome
    worker: UUID | None
    assigned_at: int | None
    started_at: int | None
    cause: str | None
    error: ErrorInfo | None
    processing_time: float | None = None
    retry_at: int | None = None


_SHORT = fields_to(Past, "attempt", Attempt, but=2)
"""Without the last two fields, which most attempts do not have."""

past_of: Callable[[Attempt, Micros], str] = function(
    "past_of",
    "attempt, at",
    [
        f"if attempt.processing_time is attempt.retry_at is None: return encode({_SHORT})",
        f"encode({fields_to(Past, 'attempt', Attempt)})",
    ],
)
"""An attempt as it is kept."""

PastRow = tuple[int, int, int | None, Past]
"""The number of an attempt, how many more were folded into its record, when the last of those ended, and the record."""

_attempt: Callable[[int, Past, Moments], Attempt] = function(
    "attempt_of", "number, past, at", [f"Attempt(number=number, {fields_of(Past, 'past', Attempt)})"], Attempt=Attempt
)
_pasts = msgspec.json.Decoder(list[PastRow]).decode
_events = msgspec.json.Decoder(tuple[Event, ...]).decode


def history_of(attempts: str, events: str) -> History:
    """The history in two JSON arrays."""
    at = Moments()
    return History(tuple(attempt_of(row, at) for row in _pasts(attempts)), _events(events))


def attempt_of(row: PastRow, at: Moments) -> Attempt:
    """The attempt in one row of a history."""
    number, folded, until, past = row
    past.count += folded
    past.finished_at = past.finished_at if until is None else until
    return _attempt(number, past, at)
