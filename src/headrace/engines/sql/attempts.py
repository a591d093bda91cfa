"""Attempts as they are kept: an array for each, beside its number."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from headrace.core.job import Attempt, ErrorInfo, Event, History
from headrace.core.status import Outcome
from headrace.engines.sql.columns import fields_of, fields_to, function
from headrace.engines.sql.record import Micros, Moments

__all__ = ["Past", "history_of", "past_of"]


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


past_of: Callable[[Attempt, Micros], str] = function(
    "past_of", "attempt, at", [f"encode({fields_to(Past, 'attempt', Attempt)})"]
)
"""An attempt as it is kept."""

_attempt: Callable[[int, Past, Moments], Attempt] = function(
    "attempt_of", "number, past, at", [f"Attempt(number=number, {fields_of(Past, 'past', Attempt)})"], Attempt=Attempt
)
_pasts = msgspec.json.Decoder(list[tuple[int, int, int | None, Past]]).decode
_events = msgspec.json.Decoder(tuple[Event, ...]).decode


def history_of(attempts: str, events: str) -> History:
    """The history in two JSON arrays.

    Of each attempt there is the number, how many more were folded into its record, when the last of those ended (null:
    there are none), and the record.
    """
    found, at = list[Attempt](), Moments()
    for number, folded, until, past in _pasts(attempts):
        past.count += folded
        past.finished_at = past.finished_at if until is None else until
        found.append(_attempt(number, past, at))
    return History(tuple(found), _events(events))
