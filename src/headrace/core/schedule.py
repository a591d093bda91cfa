"""Schedules: when a rule fires, which missed fires are made good, and what is stored of a schedule.

Cron rules speak of the clocks on the wall in their zone. Where those are turned:

* A rule that names its minutes and hours (``30 2 * * *``) fires once for each wall time. A time that comes twice fires
  the first time; a time the clocks leap over fires at the first moment after the leap, together with whatever else
  falls on that moment.
* A rule whose minute or hour begins with ``*`` (``*/15 * * * *``) goes by the time that passes: it fires through a
  repeated hour twice, and has nothing to fire in an hour that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Literal, get_args
from uuid import UUID

import msgspec
from cronsim import CronSim, CronSimError

from headrace.core.job import Spec
from headrace.core.localtime import local, moment, next_turn, zone
from headrace.errors import ConfigError

__all__ = [
    "CATCH_UP_CAP",
    "SKIP_GRACE",
    "CatchUp",
    "Cron",
    "Every",
    "Rule",
    "ScheduleDoc",
    "due_fires",
    "fire_id",
    "fires",
    "latest_fires",
    "new_schedule",
    "next_fire",
    "preview",
    "same_rule",
]

CatchUp = Literal["once", "skip", "all"]

CATCH_UP_CAP = 100
"""How many missed fires ``catch_up="all"`` makes good; the newest are kept."""

SKIP_GRACE = 60.0
"""Seconds after which a fire counts as missed; a planner that dies on a fire is replaced within them."""

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MICRO = timedelta(microseconds=1)
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time, to see whether the expression can be read


def _check_catch_up(catch_up: object) -> None:
    if catch_up not in get_args(CatchUp):
        raise ConfigError(f"catch_up must be 'once', 'skip' or 'all', not {catch_up!r}")


class Cron(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """Fires when the clocks in ``tz`` match the expression: five fields, or six with seconds first, or ``@daily`` …"""

    expr: str
    tz: str = "UTC"
    catch_up: CatchUp = "once"

    def __post_init__(self) -> None:
        _check_catch_up(self.catch_up)
        zone(self.tz)
        if not isinstance(self.expr, str):
            raise ConfigError(f"a cron expression is text such as '0 2 * * *', not {self.expr!r}")
        try:
            next(CronSim(self.fields, _SOME_DAY))
        except CronSimError as error:
            raise ConfigError(f"not a cron expression: {self.expr!r} ({error})") from None
        except StopIteration:
            raise ConfigError(f"cron expression {self.expr!r} never fires") from None

    @property
    def fields(self) -> str:
        """The expression with nicknames spelled out."""
        return _NICKNAMES.get(self.expr.strip().lower(), self.expr)

    def __str__(self) -> str:
        return f"{self.expr} {self.tz}"


class Every(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """Fires at a steady interval, counted from the creation of the schedule."""

    seconds: float = 0
    minutes: float = 0
    hours: float = 0
    days: float = 0
    catch_up: CatchUp = "once"

    def __post_init__(self) -> None:
        _check_catch_up(self.catch_up)
        for name in ("seconds", "minutes", "hours", "days"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigError(f"{name} must be a number from 0, not {value!r}")
        try:
            period = self.period
        except OverflowError:
            raise ConfigError("Every is longer than time itself") from None
        if period <= timedelta(0):
            raise ConfigError("Every needs a period longer than 0, as in Every(minutes=5)")

    @property
    def period(self) -> timedelta:
        """The time from one fire to the next."""
        return timedelta(seconds=self.seconds, minutes=self.minutes, hours=self.hours, days=self.days)

    def __str__(self) -> str:
        parts = ((self.days, "d"), (self.hours, "h"), (self.minutes, "min"), (self.seconds, "s"))
        return "every " + " ".join(f"{value:g} {unit}" for value, unit in parts if value)


Rule = Cron | Every


def same_rule(one: Rule, other: Rule) -> bool:
    """Whether both fire at the same moments (what they do about missed ones aside)."""
    if isinstance(one, Cron) and isinstance(other, Cron):
        return (one.fields.split(), one.tz) == (other.fields.split(), other.tz)
    return isinstance(one, Every) and isinstance(other, Every) and one.period == other.period


def fires(rule: Rule, after: datetime, anchor: datetime) -> Iterator[datetime]:
    """The moments after ``after`` at which the rule fires, in order, in UTC; may end, may be endless."""
    if isinstance(rule, Every):
        return _steady(rule.period, after.astimezone(UTC), anchor.astimezone(UTC))
    minute, hour = rule.fields.split()[-5:-3]
    walk = _passing if minute.startswith("*") or hour.startswith("*") else _named
    return walk(rule, after.astimezone(UTC))


def _steady(period: timedelta, after: datetime, anchor: datetime) -> Iterator[datetime]:
    n = max(0, (after - anchor) // period)
    while True:
        n += 1
        try:
            yield anchor + n * period
        except OverflowError:
            return


def _named(rule: Cron, after: datetime) -> Iterator[datetime]:
    """Wall times, each at the first moment it is shown."""
    tz = zone(rule.tz)
    for wall in CronSim(rule.fields, local(after, tz)):
        at = moment(wall, tz)
        # Several times in one gap fall on one moment; and in a repeated hour the first showing has been.
        if at > after:
            after = at
            yield at


def _passing(rule: Cron, after: datetime) -> Iterator[datetime]:
    """Wall times as they pass, stretch by stretch between the turns of the clocks."""
    tz = zone(rule.tz)
    while True:
        offset = after.astimezone(tz).utcoffset() or timedelta(0)
        for wall in CronSim(rule.fields, (after + offset).replace(tzinfo=None)):
            at = (wall - offset).replace(tzinfo=UTC)
            turn = next_turn(after, at, tz)
            if turn is not None:
                # The turn itself may fire: go on from just before it, with the offset that holds from there.
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
    """Whether the rule fires exactly when the clocks show this."""
    return next(CronSim(rule.fields, wall - timedelta(seconds=1)), None) == wall


def next_fire(rule: Rule, after: datetime, anchor: datetime) -> datetime | None:
    """The first fire after ``after``; None if there is none in reach (fifty years)."""
    return next(fires(rule, after, anchor), None)


def preview(rule: Rule, after: datetime, anchor: datetime, n: int = 5) -> list[datetime]:
    """The next ``n`` fires."""
    return list(islice(fires(rule, after, anchor), n))


def latest_fires(rule: Rule, after: datetime, until: datetime, anchor: datetime, cap: int) -> list[datetime]:
    """The newest ``cap`` fires in (after, until], oldest first."""
    # Backwards in growing windows, so that a long outage of a busy rule costs what is kept, not what was missed.
    window = timedelta(minutes=1)
    while True:
        start = max(after, until - window)
        found: list[datetime] = []
        for at in fires(rule, start, anchor):
            if at > until:
                break
            found.append(at)
        if len(found) >= cap or start == after:
            return found[-cap:] if cap > 0 else []
        window *= 4


def due_fires(
    rule: Rule,
    cursor: datetime,
    now: datetime,
    anchor: datetime,
    horizon: timedelta,
    cap: int = CATCH_UP_CAP,
) -> list[datetime]:
    """The fires to make jobs of now: since the cursor, not older than the horizon, thinned as ``catch_up`` says.

    ``once`` makes the newest, ``skip`` the newest unless it was missed, ``all`` every one up to the cap, the newest
    kept.
    """
    oldest = max(cursor, now - horizon - _MICRO)
    if oldest >= now:
        return []
    if rule.catch_up == "all":
        return latest_fires(rule, oldest, now, anchor, cap)
    if rule.catch_up == "skip":
        oldest = max(oldest, now - timedelta(seconds=SKIP_GRACE))
    return latest_fires(rule, oldest, now, anchor, 1)


def fire_id(schedule: str, generation: int, at: datetime) -> UUID:
    """The id of the one job this fire makes: a UUIDv7 of the fire's time, the rest hashed from what the fire is."""
    stamp = at.astimezone(UTC)
    since = stamp - datetime(1970, 1, 1, tzinfo=UTC)
    name = f"{generation}\0{since // _MICRO}\0{schedule}".encode()
    chance = int.from_bytes(sha256(name).digest()[:10], "big")
    head = ((since // timedelta(milliseconds=1)) << 16) | 0x7000 | (chance & 0xFFF)
    tail = (0b10 << 62) | ((chance >> 12) & ((1 << 62) - 1))
    return UUID(int=(head << 64) | tail)


class ScheduleDoc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as stored, in the setting ``schedule:NAME``."""

    name: str
    rule: Rule
    spec: Spec
    """What each fire submits, but for its own times."""
    payload_text: str
    created_at: datetime
    anchor: datetime
    """Where ``Every`` counts from: the creation, or the last change of the rule."""
    cursor: datetime
    """Every fire up to here has been dealt with; moves only forward."""
    generation: int = 1
    """Grows when the rule changes: fires of another generation are other fires."""
    last_fire: datetime | None = None
    """The newest fire that made a job."""
    paused: bool = False
    retired: bool = False
    """Its task no longer asks for it; comes back to life when the code does."""
    source: Literal["code", "dynamic"] = "dynamic"

    @property
    def task(self) -> str:
        """The task each fire submits."""
        return self.spec.task

    @property
    def active(self) -> bool:
        """Whether it fires at all."""
        return not (self.paused or self.retired)

    @property
    def next_fire(self) -> datetime | None:
        """The first fire not yet dealt with (in the past when the planner is behind); None while it rests."""
        return next_fire(self.rule, self.cursor, self.anchor) if self.active else None

    def to_text(self) -> str:
        """As stored."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> ScheduleDoc:
        """From the store."""
        return msgspec.json.decode(text, type=cls)


def new_schedule(
    name: str,
    rule: Rule,
    spec: Spec,
    payload_text: str,
    now: datetime,
    source: Literal["code", "dynamic"] = "dynamic",
) -> ScheduleDoc:
    """A schedule that begins now: its first fire is the next one."""
    if not name or not name.isprintable():
        raise ConfigError(f"a schedule needs a printable name, not {name!r}")
    if not isinstance(rule, Cron | Every):
        raise ConfigError(f"schedule {name!r}: the rule must be a Cron or an Every, not {rule!r}")
    return ScheduleDoc(
        name=name,
        rule=rule,
        spec=spec,
        payload_text=payload_text,
        created_at=now,
        anchor=now,
        cursor=now,
        source=source,
    )
