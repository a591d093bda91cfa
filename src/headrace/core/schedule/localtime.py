"""Wall-clock time in a zone against UTC, where the clocks turn: gaps, repeats, and the moment of the next turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from headrace.errors import ConfigError, shown

__all__ = ["local", "moment", "next_turn", "zone"]

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


def zone(name: str) -> tzinfo:
    """Return the time zone of this IANA name; refuse what is none."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        # A folder of the database ("America") is an OSError, a path out of it a ValueError, an unknown name a KeyError.
        raise ConfigError(f"tz must be the name of a time zone such as 'Europe/Berlin', not {shown(name)}") from None


def local(at: datetime, tz: tzinfo) -> datetime:
    """Return what the clocks on the wall show at this moment, as a naive datetime."""
    return at.astimezone(tz).replace(tzinfo=None, fold=0)


def moment(wall: datetime, tz: tzinfo) -> datetime:
    """Return when the clocks first show this time; for a time they skip, the first moment after the gap."""
    early = wall.replace(tzinfo=tz, fold=1).astimezone(UTC)
    late = wall.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if early <= late and local(late, tz) != wall:
        # In a gap, fold 1 reads the offset after the turn and fold 0 the one before, so the turn lies between.
        return _bisect(early, late, tz)
    return late


def next_turn(after: datetime, until: datetime, tz: tzinfo) -> datetime | None:
    """Return the first moment in (after, until] at which the offset from UTC changes, if any."""
    if tz is UTC:
        return None
    offset, start = after.astimezone(tz).utcoffset(), after
    while start < until:
        # Day by day: no zone turns its clocks twice within one.
        end = min(start + _DAY, until)
        if end.astimezone(tz).utcoffset() != offset:
            return _bisect(start, end, tz)
        start = end
    return None


def _bisect(low: datetime, high: datetime, tz: tzinfo) -> datetime:
    """Return the first whole second in (low, high] with the offset of ``high``."""
    low, high = low.replace(microsecond=0), high.replace(microsecond=0) + _SECOND * bool(high.microsecond)
    offset = high.astimezone(tz).utcoffset()
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if middle.astimezone(tz).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high
