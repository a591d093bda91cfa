"""Durations as people write them, and moments and lengths of time in words.

Command line, explanations and errors share these words. People read moments in their own zone, always with its offset;
programs in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from headrace.errors import MAX_DURATION_SECONDS, ConfigError, shown

__all__ = [
    "EXAMPLES",
    "MAX_CLOCK_ERROR_SECONDS",
    "UNITS",
    "Seconds",
    "duration",
    "length",
    "moment",
    "seconds",
    "time_of_day",
    "told_apart",
    "utc",
]


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

EXAMPLES = "90, 250ms, 60s, 15m, 1h30m or 1.5d"

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"\s*({_NUMBER})\s*")
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)\s*")


def duration(text: str) -> float:
    """Return the seconds of a number, or of numbers with units, greater ones first: ``90``, ``60s``, ``1h30m``.

    :raises ValueError: it is none
    """
    if plain := _PLAIN.fullmatch(text):
        return _checked(text, float(plain[1]))
    total, rest, last = 0.0, text.lower(), float("inf")
    while rest:
        part = _PART.match(rest)
        size = UNITS.get(part[2]) if part else None
        # The same unit twice, or a smaller one first, is a typing error rather than a sum.
        if part is None or size is None or size >= last:
            raise ValueError(f"{text!r} is not a duration: say {EXAMPLES}")
        total, rest, last = total + float(part[1]) * size, rest[part.end() :], size
    if last == float("inf"):
        raise ValueError(f"{text!r} is not a duration: say {EXAMPLES}")
    return _checked(text, total)


def _checked(text: str, seconds: float) -> float:
    if seconds > MAX_DURATION_SECONDS:
        raise ValueError(f"{text!r} is longer than a century, which is the longest duration there is")
    return seconds


MAX_CLOCK_ERROR_SECONDS = 2.0
"""Seconds that the clock of a machine may be wrong before a warning is shown."""


def moment(at: datetime, zone: tzinfo | None, *, exact: bool = False) -> str:
    """Return a moment for people: ``2026-01-31 08:00:00+01:00``; ``exact``: to the millisecond.

    ``zone``: theirs; None is that of this machine.
    """
    return at.astimezone(zone).isoformat(" ", "milliseconds" if exact else "seconds")


def time_of_day(at: datetime, zone: tzinfo | None, *, offset: bool = True) -> str:
    """Return a moment of a known day, to the millisecond; without the offset only where that is shown beside it."""
    local = at.astimezone(zone)
    return (local if offset else local.replace(tzinfo=None)).timetz().isoformat("milliseconds")


def utc(at: datetime) -> str:
    """Return a moment for programs, as in all JSON."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def length(seconds: float) -> str:
    """Return a duration in one unit; from two of a unit on, that unit is used."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def told_apart(seconds: float) -> str:
    """Return how wrong a clock is that is so far ahead of the store's."""
    return f"{length(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} the store's"


Seconds = float | timedelta


def seconds(value: Seconds, what: str) -> float:
    """Return a duration in seconds; refuse negatives, NaN and more than a century by name."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise ConfigError(f"{what} must be seconds or a timedelta, not {shown(value)}")
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= number <= MAX_DURATION_SECONDS:  # before the conversion: a whole number may be too great for a float
        raise ConfigError(f"{what} must be finite, at most a century, and not negative, not {shown(value)}")
    return float(number)
