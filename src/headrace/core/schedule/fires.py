"""When rules fire, which missed fires are made good, and what identifies a fire.

Cron rules speak of the clocks on the wall in their zone. Where those are turned:

* A rule that names its minutes and hours (``30 2 * * *``) fires once for each wall time. A time that comes twice fires
  the first time; a time the clocks leap over fires at the first moment after the leap. Times of a rule that fall on
  one moment are one fire: in New York's spring gap ``0 2,3 * * *`` fires once, at 03:00.
* A rule with a minute or hour that begins with ``*`` (``*/15 * * * *``) goes by the time that passes: it fires twice
  through a repeated hour, and has nothing to fire in an hour that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice, takewhile
from uuid import UUID

from cronsim import CronSim

from headrace.core.defaults import MAX_CATCH_UP_FIRES, SKIP_GRACE_SECONDS
from headrace.core.schedule.localtime import local, moment, next_turn, zone
from headrace.core.schedule.rules import Continuous, Cron, Every, Rule

__all__ = ["due_fires", "fire_id", "fires", "jittered", "latest_fires", "next_fire", "preview"]


_MICRO = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fires(rule: Rule, after: datetime, anchor: datetime) -> Iterator[datetime]:
    """Yield the moments after ``after`` at which the rule fires, in order, in UTC; may end, may be endless."""
    if isinstance(rule, Continuous):
        return iter(())
    after, start, end = after.astimezone(UTC), rule.start, rule.end
    if start is not None:
        after = max(after, start - _MICRO)
    found = _walk(rule, after, anchor.astimezone(UTC))
    return found if end is None else takewhile(lambda at: at <= end, found)


def _walk(rule: Cron | Every, after: datetime, anchor: datetime) -> Iterator[datetime]:
    if isinstance(rule, Every):
        # Its start is itself a fire; its creation is not.
        return _steady(rule.period, after, rule.start or anchor, first=0 if rule.start is not None else 1)
    minute, hour = rule.fields.split()[-5:-3]
    walk = _passing if minute.startswith("*") or hour.startswith("*") else _named
    return walk(rule, after)


def _steady(period: timedelta, after: datetime, anchor: datetime, first: int) -> Iterator[datetime]:
    n = max(first, (after - anchor) // period + 1)
    while True:
        try:
            yield anchor + n * period
        except OverflowError:
            return
        n += 1


def _named(rule: Cron, after: datetime) -> Iterator[datetime]:
    """Yield wall times, each at the first moment it is shown."""
    tz = zone(rule.tz)
    for wall in CronSim(rule.fields, local(after, tz)):
        at = moment(wall, tz)
        # Several times in one gap fall on one moment; and in a repeated hour the first occurrence has fired.
        if at > after:
            after = at
            yield at


def _passing(rule: Cron, after: datetime) -> Iterator[datetime]:
    """Yield wall times as they pass, stretch by stretch between the turns of the clocks."""
    tz = zone(rule.tz)
    while True:
        offset = after.astimezone(tz).utcoffset() or timedelta(0)
        for wall in CronSim(rule.fields, (after + offset).replace(tzinfo=None)):
            at = (wall - offset).replace(tzinfo=UTC)
            turn = next_turn(after, at, tz)
            if turn is not None:
                # The turn itself may fire: continue from just before it, with the offset that holds from there.
                offset = turn.astimezone(tz).utcoffset() or timedelta(0)
                if _shows(rule, (turn + offset).replace(tzinfo=None)):
                    yield turn
                after = turn
                break
            after = at
            yield at
        else:
            return


def _shows(rule: Cron, wall: datetime) -> bool:
    """Return whether the rule fires exactly when the clocks show this."""
    return next(CronSim(rule.fields, wall - timedelta(seconds=1)), None) == wall


def next_fire(rule: Rule, after: datetime, anchor: datetime) -> datetime | None:
    """Return the first fire after ``after``; None if there is none within fifty years."""
    return next(fires(rule, after, anchor), None)


def preview(rule: Rule, after: datetime, anchor: datetime, n: int = 5) -> list[datetime]:
    """Return the next ``n`` fires."""
    return list(islice(fires(rule, after, anchor), n))


def latest_fires(rule: Rule, after: datetime, until: datetime, anchor: datetime, cap: int) -> list[datetime]:
    """Return the newest ``cap`` fires in (after, until], oldest first."""
    if cap <= 0 or isinstance(rule, Continuous):
        return []
    if rule.end is not None:
        until = min(until, rule.end)
    # Backwards in growing windows, so that a long outage of a busy rule costs what is kept, not what was missed.
    window = timedelta(minutes=1)
    if isinstance(rule, Every) and (until - after) // rule.period > cap:
        window = cap * rule.period  # holds just so many
    while True:
        start = max(after, until - window)
        found: list[datetime] = []
        for at in fires(rule, start, anchor):
            if at > until:
                break
            found.append(at)
        if len(found) >= cap or start == after:
            return found[-cap:]
        window *= 4


def due_fires(
    rule: Rule,
    cursor: datetime,
    now: datetime,
    anchor: datetime,
    horizon: timedelta,
    cap: int = MAX_CATCH_UP_FIRES,
) -> list[datetime]:
    """Return the fires to make jobs of now: since the cursor, not older than the horizon, thinned by ``catch_up``.

    ``once`` makes the newest, ``skip`` the newest unless it was missed, ``all`` every one up to the cap, the newest
    kept.
    """
    oldest = max(cursor, now - horizon - _MICRO)
    if isinstance(rule, Continuous):
        return []
    if rule.catch_up == "all":
        return latest_fires(rule, oldest, now, anchor, min(cap, rule.cap))
    if rule.catch_up == "skip":
        oldest = max(oldest, now - timedelta(seconds=SKIP_GRACE_SECONDS))
    return latest_fires(rule, oldest, now, anchor, 1)


def _digest(schedule: str, generation: int, at: datetime, salt: str = "") -> bytes:
    since = at.astimezone(UTC) - _EPOCH
    return sha256(f"{salt}{generation}\0{since // _MICRO}\0{schedule}".encode()).digest()


def fire_id(schedule: str, generation: int, at: datetime) -> UUID:
    """Return the id of the one job of this fire: a UUIDv7 of the fire's time, the rest a hash of the fire."""
    since = at.astimezone(UTC) - _EPOCH
    chance = int.from_bytes(_digest(schedule, generation, at)[:10], "big")
    head = ((since // timedelta(milliseconds=1)) << 16) | 0x7000 | (chance & 0xFFF)
    tail = (0b10 << 62) | ((chance >> 12) & ((1 << 62) - 1))
    return UUID(int=(head << 64) | tail)


def jittered(schedule: str, generation: int, at: datetime, spread: timedelta) -> datetime:
    """Return when the job of this fire may start: up to ``spread`` after it, for one fire always the same."""
    if not spread:
        return at
    chance = int.from_bytes(_digest(schedule, generation, at, "jitter\0")[:6], "big") / (1 << 48)
    return at + spread * chance
