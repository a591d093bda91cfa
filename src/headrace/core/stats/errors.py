"""Errors of attempts, also of those whose jobs succeeded later: counted by fingerprint, and kept with the rollups."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from headrace.core.attempt import ErrorInfo
from headrace.core.codec.record import Record
from headrace.core.stats.failures import place_of

if TYPE_CHECKING:
    from headrace.core.stats.rollup import Rollup

__all__ = ["MAX_ERRORS", "MAX_GATHERED_ERRORS", "ErrorSum", "RecentError", "add_error", "commonest", "errors_of"]

MAX_ERRORS = 20
"""How many kinds of errors a row of rollups keeps: the commonest."""
MAX_GATHERED_ERRORS = 200
"""How many a worker distinguishes within a minute, before it keeps the commonest."""
_MAX_NAME_CHARACTERS = 128
"""A row keeps so much of the type of an error, and of its place."""


class ErrorSum(msgspec.Struct, array_like=True, frozen=True):
    """How often attempts failed alike. The message is left out: rollups outlive jobs, and messages name customers."""

    attempts: int
    job: UUID
    """One of their jobs."""
    type: str
    place: str | None
    """Where in the user's code, as ``file.py:function``."""


def add_error(errors: dict[str, ErrorSum], fingerprint: str, error: ErrorInfo, job: UUID) -> None:
    """Count the error of an attempt of this job."""
    known = errors.get(fingerprint)
    if known is not None:
        errors[fingerprint] = ErrorSum(known.attempts + 1, job, known.type, known.place)
    elif len(errors) < MAX_GATHERED_ERRORS:
        place = place_of(error)
        errors[fingerprint] = ErrorSum(
            1, job, error.type[:_MAX_NAME_CHARACTERS], None if place is None else place[:_MAX_NAME_CHARACTERS]
        )


def commonest(errors: dict[str, ErrorSum], others: dict[str, ErrorSum]) -> dict[str, ErrorSum]:
    """Return both added up, and of them the ``MAX_ERRORS`` commonest; the job of each is that of the latter."""
    added = errors | {
        name: ErrorSum(one.attempts + errors[name].attempts, one.job, one.type, one.place) if name in errors else one
        for name, one in others.items()
    }
    if len(added) <= MAX_ERRORS:
        return added
    return dict(sorted(added.items(), key=lambda one: (-one[1].attempts, one[0]))[:MAX_ERRORS])


class RecentError(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Attempts of a task that failed alike, whatever became of their jobs."""

    fingerprint: str
    task: str
    type: str
    place: str | None
    """Where in the user's code, as ``file.py:function``."""
    attempts: int
    """How many; of each minute and queue, only the 20 commonest errors are counted."""
    last_seen: datetime
    """The beginning of the last minute, hour or day in which it happened."""
    example: UUID
    """A job with such an attempt; it may be gone by now."""


def errors_of(rows: Iterable[Rollup], limit: int) -> list[RecentError]:
    """Return the errors of these rows, the commonest first, then the latest."""
    found: dict[tuple[str, str], RecentError] = {}
    for row in rows:
        for fingerprint, one in row.totals.errors.items():
            known = found.get((row.task, fingerprint))
            latest = known is None or row.at >= known.last_seen
            found[row.task, fingerprint] = RecentError(
                fingerprint=fingerprint,
                task=row.task,
                type=one.type,
                place=one.place,
                attempts=one.attempts + (0 if known is None else known.attempts),
                last_seen=row.at if known is None or latest else known.last_seen,
                example=one.job if known is None or latest else known.example,
            )
    ordered = sorted(found.values(), key=lambda one: (one.last_seen, one.task, one.fingerprint), reverse=True)
    return sorted(ordered, key=lambda one: -one.attempts)[:limit]
