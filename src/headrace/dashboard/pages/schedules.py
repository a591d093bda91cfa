"""Schedules: their next fires, on a time axis, and a form to make one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import available_timezones

from headrace.client.api.schedules import ScheduleInfo
from headrace.core.schedule.localtime import zone
from headrace.core.schedule.rules import Continuous, Cron, Every
from headrace.core.stats.own_tasks import is_own
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of
from headrace.errors import ConfigError, UnknownSchedule

__all__ = ["VIEWS", "Fire", "fires_of"]

SPANS = {"1h": ("1 hour", 3600.0), "24h": ("24 hours", 86400.0), "7d": ("7 days", 604800.0)}
MAX_DRAWN_FIRES = 120
"""Maximum fires of one schedule on the time axis."""
MAX_LISTED_FIRES = 20
TIMELINE_WIDTH = 480.0


@dataclass(frozen=True)
class Fire:
    """A moment at which a schedule fires, as the clocks of its zone show it."""

    at: datetime
    local: str
    offset: str
    shifted: bool
    """Whether the clocks were put forward or back since the previous fire."""


@dataclass(frozen=True)
class Line:
    """A schedule, and the positions of its next fires on the time axis."""

    info: ScheduleInfo
    marks: tuple[tuple[float, datetime], ...]
    dense: bool
    """Whether there are too many to draw them all."""


async def schedules(ask: PageRequest) -> Shown:
    """Show all schedules."""
    app, now = ask.app, ask.now
    span = ask.given("span") if ask.given("span") in SPANS else "24h"
    found = await ask.shared("schedules", app.schedules.list)
    seconds = SPANS[span or "24h"][1]
    lines = await ask.shared(("lines", span), lambda: _lines(ask, found, now, seconds))
    data = {
        "lines": lines,
        "span": span,
        "spans": SPANS,
        "wide": TIMELINE_WIDTH,
        "until": now + timedelta(seconds=seconds),
        "tasks": [one for one in await ask.shared("tasks", app.tasks.list, 5.0) if not is_own(one.name)],
        "zones": _zones(),
        "audit": await audit_of(ask, *(f"schedule:{one.name}" for one in found)),
    }
    return Shown("schedules.html", "Schedules", data)


async def _lines(ask: PageRequest, found: Sequence[ScheduleInfo], now: datetime, seconds: float) -> list[Line]:
    lines = list[Line]()
    for info in found:
        marks = list[tuple[float, datetime]]()
        if info.state in ("active", "unserved") and not isinstance(info.rule, Continuous):
            for at in await _next(ask, info.name, MAX_DRAWN_FIRES):
                share = (at - now).total_seconds() / seconds
                if share <= 1:
                    marks.append((round(max(0.0, share) * TIMELINE_WIDTH, 1), at))
        lines.append(Line(info, tuple(marks), len(marks) >= MAX_DRAWN_FIRES))
    return sorted(lines, key=lambda one: (one.info.next_fire is None, one.info.next_fire or now, one.info.name))


async def _next(ask: PageRequest, name: str, number: int) -> list[datetime]:
    try:
        return await ask.app.schedules.preview(name, number)
    except (ConfigError, UnknownSchedule):
        return []


async def schedule(ask: PageRequest) -> Shown:
    """Show one schedule."""
    app, name = ask.app, ask.request.path_params["name"]
    try:
        info = await app.schedules.get(name)
    except UnknownSchedule:
        raise Missing(f"schedule {name}") from None
    moments = await ask.shared(("fires", name), lambda: _next(ask, name, MAX_LISTED_FIRES))
    made = await ask.shared(("made", name), lambda: app.jobs.list(schedule=name, limit=15))
    data = {
        "info": info,
        "kind": type(info.rule).__name__.lower(),
        "fires": fires_of(info.rule, moments) if isinstance(info.rule, Cron | Every) else [],
        "jobs": made.items,
        "editable": info.source == "dynamic" and isinstance(info.rule, Cron | Every),
        "expr": info.rule.expr if isinstance(info.rule, Cron) else "0 2 * * *",
        "tz": info.rule.tz if isinstance(info.rule, Cron) else "UTC",
        "seconds": f"{info.rule.period.total_seconds():g}" if isinstance(info.rule, Every) else "300",
        "zones": _zones(),
        "audit": await audit_of(ask, f"schedule:{name}"),
    }
    return Shown("schedule.html", f"Schedule {name}", data)


def fires_of(rule: Cron | Every, moments: Sequence[datetime]) -> list[Fire]:
    """Return the fires of a rule as the clocks of its zone show them, marked where these were changed."""
    clocks = zone(rule.tz if isinstance(rule, Cron) else "UTC")
    found, before = list[Fire](), None
    for at in moments:
        local = at.astimezone(clocks)
        offset = local.strftime("%z")
        text = local.strftime("%a %Y-%m-%d %H:%M:%S")
        found.append(Fire(at, text, f"UTC{offset[:3]}:{offset[3:]}", before not in (None, offset)))
        before = offset
    return found


def _zones() -> list[str]:
    return sorted(one for one in available_timezones() if "/" in one and not one.startswith(("Etc/", "posix", "right")))


VIEWS = (
    PageView("/schedules", "schedules", schedules, "schedules"),
    PageView("/schedules/{name:path}", "schedule", schedule, "schedules"),
)
