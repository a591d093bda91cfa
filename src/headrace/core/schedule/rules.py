"""The rules of schedules: when to fire, between which moments, and what happens to early and late fires."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Literal, get_args

import msgspec
from cronsim import CronSim, CronSimError
from msgspec.structs import force_setattr

from headrace.core.defaults import MAX_CATCH_UP_FIRES, MAX_KEY_CHARACTERS
from headrace.core.lifecycle.retry import Retry
from headrace.core.schedule.localtime import zone
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_moment, plain, whole
from headrace.errors import MAX_DURATION_SECONDS, ConfigError, shown

__all__ = ["CatchUp", "Continuous", "Cron", "Every", "Overlap", "Rule", "Timed", "same_rule"]

CatchUp = Literal["once", "skip", "all"]
Overlap = Literal["allow", "skip", "wait"]


_MAX_FIRES = 1000
_MIN_PERIOD = timedelta(seconds=0.1)
"""Minimum interval of a steady rule: each fire is a job and a write of its schedule."""
_MAX_PERIOD = timedelta(seconds=MAX_DURATION_SECONDS)
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time, to see whether the expression can be read
_SAMPLE_FIRES = 150
"""Fires in which the shortest interval is searched: more than the minutes of an hour, twice."""


def _choice(value: object, name: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ConfigError(f"{name} must be {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, not {shown(value)}")
    return next(one for one in choices if one == value)


def _count(value: object, name: str) -> int:
    return whole(value, name, 1, _MAX_FIRES)


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every rule that fires at moments."""

    catch_up: CatchUp = "once"
    """Which missed fires are made up for: ``once`` the newest, ``skip`` none, ``all`` all of them."""
    cap: int = MAX_CATCH_UP_FIRES
    """The maximum of missed fires that ``catch_up="all"`` makes up for: the newest."""
    overlap: Overlap = "allow"
    """What a fire does while a job of an earlier fire is live: ``allow`` submits, ``skip`` does not, ``wait`` waits."""
    jitter: Seconds = 0.0
    """Each job starts up to this much after its fire; the delay is computed from the fire, the same everywhere."""
    start: datetime | None = None
    """No fire before this moment; ``Every`` counts from it, and fires at it."""
    end: datetime | None = None
    """No fire after this moment."""

    def _check_times(self) -> None:
        # Frozen, but not complete yet: the one place that converts the arguments.
        force_setattr(self, "catch_up", _choice(self.catch_up, "catch_up", get_args(CatchUp)))
        force_setattr(self, "overlap", _choice(self.overlap, "overlap", get_args(Overlap)))
        force_setattr(self, "cap", _count(self.cap, "cap"))
        force_setattr(self, "jitter", seconds(self.jitter, "jitter"))
        force_setattr(self, "start", checked_moment(self.start, "start"))
        force_setattr(self, "end", checked_moment(self.end, "end"))
        if self.start is not None and self.end is not None and self.end < self.start:
            raise ConfigError(f"end ({self.end}) is before start ({self.start})")

    def _check_jitter(self, shortest: timedelta | None) -> None:
        if shortest is not None and self.spread > shortest:
            raise ConfigError(
                f"jitter ({self.spread.total_seconds():g} s) is longer than the time between two fires "
                f"({shortest.total_seconds():g} s): their jobs would change places"
            )

    @property
    def spread(self) -> timedelta:
        """The jitter as a timedelta."""
        return timedelta(seconds=seconds(self.jitter, "jitter"))


class Cron(Timed, frozen=True, tag="cron", tag_field="kind"):
    """Fires when the clocks in ``tz`` match the expression: five fields, or six with seconds first, or ``@daily`` …"""

    expr: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        zone(self.tz)
        force_setattr(self, "tz", plain(self.tz))
        if not isinstance(self.expr, str) or len(self.expr) > MAX_KEY_CHARACTERS:
            raise ConfigError(f"a cron expression is text such as '0 2 * * *', not {shown(self.expr)}")
        force_setattr(self, "expr", plain(self.expr))
        try:
            next(CronSim(self.fields, _SOME_DAY))
        except CronSimError as error:
            raise ConfigError(f"not a cron expression: {self.expr!r} ({error})") from None
        except StopIteration:
            raise ConfigError(f"cron expression {self.expr!r} never fires") from None
        self._check_times()
        if self.jitter:
            self._check_jitter(_shortest(islice(CronSim(self.fields, _SOME_DAY), _SAMPLE_FIRES)))

    @property
    def fields(self) -> str:
        """Return the expression with nicknames spelled out."""
        return _NICKNAMES.get(self.expr.strip().lower(), self.expr)

    def __str__(self) -> str:
        return f"{self.expr} {self.tz}"


def _shortest(walls: Iterable[datetime]) -> timedelta | None:
    return min((later - earlier for earlier, later in pairwise(walls)), default=None)


class Every(Timed, frozen=True, tag="every", tag_field="kind"):
    """Fires at a steady interval of at least 0.1 s, counted from ``start``, else from the creation of the schedule."""

    seconds: float = 0
    minutes: float = 0
    hours: float = 0
    days: float = 0

    def __post_init__(self) -> None:
        for name in ("seconds", "minutes", "hours", "days"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigError(f"{name} must be a number from 0, not {shown(value)}")
            force_setattr(self, name, int(value) if isinstance(value, int) else float(value))
        try:
            period = self.period
        except OverflowError:
            period = timedelta.max
        if period > _MAX_PERIOD:
            raise ConfigError("Every fires at least once in a century: give it a shorter period")
        if period <= timedelta(0):
            raise ConfigError("Every needs a period longer than 0, as in Every(minutes=5)")
        if period < _MIN_PERIOD:
            raise ConfigError(
                f"Every needs a period of at least {_MIN_PERIOD.total_seconds():g} s, not {period.total_seconds():g} s:"
                f" what should run all the time is a continuous task, as in @app.task(continuous=Continuous())"
            )
        self._check_times()
        self._check_jitter(period)

    @property
    def period(self) -> timedelta:
        """The time from one fire to the next."""
        return timedelta(seconds=self.seconds, minutes=self.minutes, hours=self.hours, days=self.days)

    def __str__(self) -> str:
        parts = ((self.days, "d"), (self.hours, "h"), (self.minutes, "min"), (self.seconds, "s"))
        return "every " + " ".join(f"{value:g} {unit}" for value, unit in parts if value)


class Continuous(msgspec.Struct, frozen=True, tag="continuous", tag_field="kind"):
    """Runs all the time: when a run ends, the next begins; after a failure, when the cool-down is over."""

    instances: int = 1
    """How many runs at once, in all workers together."""
    cool_down: Seconds = 5.0
    """Seconds between a failed run and the next."""

    def __post_init__(self) -> None:
        force_setattr(self, "instances", _count(self.instances, "instances"))
        force_setattr(self, "cool_down", seconds(self.cool_down, "cool_down"))

    @property
    def rest(self) -> timedelta:
        """The cool-down as a timedelta."""
        return timedelta(seconds=seconds(self.cool_down, "cool_down"))

    @property
    def retry(self) -> Retry:
        """The policy of its jobs: the cool-down before every further attempt.

        A job that has failed so often ends, and another replaces it, so that no record grows for ever.
        """
        return Retry(99, backoff="fixed", initial=self.cool_down, jitter=False)

    def __str__(self) -> str:
        return f"continuous × {self.instances}"


Rule = Cron | Every | Continuous


def same_rule(one: Rule, other: Rule) -> bool:
    """Return whether both fire at the same moments, whatever they do with late and overlapping fires."""
    if isinstance(one, Continuous) or isinstance(other, Continuous):
        return isinstance(one, Continuous) and isinstance(other, Continuous)
    if (one.start, one.end) != (other.start, other.end):
        return False
    if isinstance(one, Cron) and isinstance(other, Cron):
        return (one.fields.split(), one.tz) == (other.fields.split(), other.tz)
    return isinstance(one, Every) and isinstance(other, Every) and one.period == other.period
