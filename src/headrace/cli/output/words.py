"""Small values as words: ids, counts, cut texts, moments and spans of time."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from uuid import UUID

from headrace.core import times

__all__ = ["ago", "clock", "compact", "counted", "cut", "fixed_zone", "moment", "short", "span", "time_of_day"]


def short(id: UUID | None) -> str:
    """Return the end of an id, which is enough to know it by: ids begin with the time, so beginnings are alike."""
    return "" if id is None else id.hex[-8:]


def compact(value: Any) -> str:
    """Return a JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def counted(count: int, what: str) -> str:
    """Return so many of something."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def cut(text: str, limit: int) -> str:
    """Return the text on one line of at most so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))


def span(seconds: float) -> str:
    """Return a duration in at most two units."""
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
    """Return how far away a moment is, in one unit."""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    size = abs(seconds)
    unit, name = next(((unit, name) for unit, name in ((86400, "d"), (3600, "h"), (60, "m")) if size >= unit), (1, "s"))
    text = f"{size / unit:.0f} {name}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def moment(when: datetime) -> str:
    """Return a moment in local time with its offset, to the millisecond."""
    return times.moment(when, None, exact=True)


def time_of_day(when: datetime) -> str:
    """Return the local time of day of a moment, with its offset."""
    return times.time_of_day(when, None)


def fixed_zone(when: datetime) -> timezone:
    """Return the local offset at a moment, as a zone."""
    return timezone(when.astimezone().utcoffset() or timedelta(0))


def clock(when: datetime, zone: tzinfo | None = None) -> str:
    """Return the time of day without its offset, for where that stands beside it, or where the moment is now."""
    return times.time_of_day(when, zone, offset=False)
