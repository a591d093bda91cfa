"""Moments and lengths of time in words: one rule for the command line, explanations and errors.

People are told moments in their own zone, always with its offset; programs in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

__all__ = ["CLOCK_APART", "length", "moment", "time_of_day", "told_apart", "utc"]

CLOCK_APART = 2.0
"""Seconds that the clock of a machine may be wrong before somebody is told."""


def moment(at: datetime, zone: tzinfo | None, *, exact: bool = False) -> str:
    """A moment for people: ``2026-01-31 08:00:00+01:00``; ``exact``: to the millisecond.

    ``zone``: theirs; None is that of this machine.
    """
    return at.astimezone(zone).isoformat(" ", "milliseconds" if exact else "seconds")


def time_of_day(at: datetime, zone: tzinfo | None, *, offset: bool = True) -> str:
    """A moment whose day is known, to the millisecond; without the offset only where that stands beside it."""
    local = at.astimezone(zone)
    return (local if offset else local.replace(tzinfo=None)).timetz().isoformat("milliseconds")


def utc(at: datetime) -> str:
    """A moment for programs, as all JSON has it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def length(seconds: float) -> str:
    """A length of time in one unit, in the next one from two of it on."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def told_apart(seconds: float) -> str:
    """How wrong a clock is that is so far ahead of the store's."""
    return f"{length(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} the store's"
