"""What an open App tells of what was finished, and of how long things take."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, get_args

from headrace.core.bounds import EARLIEST, LATEST
from headrace.core.charts import By, Charts, charts_of, step_for
from headrace.core.histogram import Histogram
from headrace.core.retry import Seconds
from headrace.core.rollup import Rollup, Step
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["Moment", "charts", "estimated_processing_time", "rollups", "running_times"]

Moment = datetime | timedelta | float
"""A moment, or how long ago it was."""

_HOUR = 3600.0
_LOOKED_AT = timedelta(days=7)
"""How far back it is looked for how long a task takes."""


async def charts(
    session: Session,
    since: Moment | None,
    until: Moment | None,
    step: Step | str | None,
    by: By = "series",
    **of: str | None,
) -> Charts:
    """The charts of this time."""
    now = session.host.clock.now()
    end, begin = _moment(until, now, "until", 0.0), _moment(since, now, "since", _HOUR)
    if by not in get_args(By):
        raise ConfigError(f"by must be one of {', '.join(get_args(By))}, not {shown(by)}")
    if begin >= end:
        raise ConfigError(f"since must be before until, not {begin} and {end}")
    wide = step_for(begin, end, now) if step is None else _step(step)
    rows = await session.engine.rollups.read(begin, end, **of)
    return charts_of(rows, begin, end, wide, by)


async def rollups(session: Session, since: Moment, until: Moment) -> list[Rollup]:
    """The rows of this time."""
    now = session.host.clock.now()
    return await session.engine.rollups.read(_moment(since, now, "since", 0.0), _moment(until, now, "until", 0.0))


async def running_times(session: Session, task: str | None = None, queue: str | None = None) -> Histogram:
    """How long attempts of this task, or in this queue, ran in the last days."""
    now, ran = session.host.clock.now(), Histogram({})
    for row in await session.engine.rollups.read(now - _LOOKED_AT, now + timedelta(minutes=1), task, queue):
        ran.merge(row.totals.ran)
    return ran


async def estimated_processing_time(session: Session, task: str, quantile: float) -> float | None:
    """The seconds that this share of the runs of a task take at most; None if nothing is known of it."""
    if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 < quantile <= 1:
        raise ConfigError(f"quantile must be more than 0 and at most 1, not {shown(quantile)}")
    return (await running_times(session, task)).quantile(quantile)


def _step(step: Step | str) -> Step:
    try:
        return Step(step)
    except ValueError:
        raise ConfigError(f"step must be minute, hour or day, not {shown(step)}") from None


def _moment(value: Moment | Seconds | None, now: datetime, name: str, default: float) -> datetime:
    if value is None:
        return now - timedelta(seconds=default)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"{name} must have a time zone: {shown(value)} has none")
        return _within(value, value, name)
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        try:
            return _within(now - (value if isinstance(value, timedelta) else timedelta(seconds=value)), value, name)
        except (OverflowError, ValueError):  # more than a timedelta holds, or no number
            return _within(None, value, name)
    raise ConfigError(f"{name} must be a datetime, or how long ago it was, not {shown(value)}")


def _within(moment: datetime | None, value: object, name: str) -> datetime:
    if moment is None or not EARLIEST <= moment <= LATEST:
        raise ConfigError(f"{name} must be a moment from {EARLIEST:%Y} to {LATEST:%Y}, not {shown(value)}")
    return moment
