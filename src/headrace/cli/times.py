"""Moments and spans of time as the command line shows them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

from headrace.core import moments

__all__ = ["ago", "clock", "fixed_zone", "moment", "span", "time_of_day"]

_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def span(seconds: float) -> str:
    """A duration in at most two units."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, name, small, rest in _STEPS:
        if whole >= big:
            more = whole % big // small
            return f"{whole // big} {name} {more} {rest}" if more else f"{whole // big} {name}"
    return f"{whole} s"


def ago(when: datetime, now: datetime) -> str:
    """How far away a moment is, in one unit."""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    size = abs(seconds)
    unit, name = next(((unit, name) for unit, name in ((86400, "d"), (3600, "h"), (60, "m")) if size >= unit), (1, "s"))
    text = f"{size / unit:.0f} {name}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def moment(when: datetime) -> str:
    """A moment in local time with its offset, to the millisecond."""
    return moments.moment(when, None, exact=True)


def time_of_day(when: datetime) -> str:
    """The local time of day of a moment, with its offset."""
    return moments.time_of_day(when, None)


def fixed_zone(when: datetime) -> timezone:
    """The local offset at a moment, as a zone."""
    return timezone(when.astimezone().utcoffset() or timedelta(0))


def clock(when: datetime, zone: tzinfo | None = None) -> str:
    """The time of day without its offset, for where that stands beside it, or where the moment is now."""
    return moments.time_of_day(when, zone, offset=False)
