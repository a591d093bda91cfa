"""What a person sees of the demo: a live table, or plain lines where there is no terminal."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from headrace.cli.follow import sentence
from headrace.cli.output import console, is_terminal, line, say
from headrace.cli.render import STYLES, job_table
from headrace.cli.state import State
from headrace.cli.words import clock
from headrace.core.job import Job
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["show"]

EVERY = 0.2
ROWS, EVENTS = 14, 6
QUIET = frozenset({"add"})
"""Tasks of which there are so many that their changes are only counted."""


async def show(app: App, state: State, hint: str) -> None:
    """Show the jobs as they change, until cancelled."""
    seen = _Changes()
    if state.json:
        await _poll(app, lambda jobs, stats, now: _each(seen.of(jobs), lambda job: line(job.to_dict())))
    elif not is_terminal():
        await _poll(app, lambda jobs, stats, now: _each(seen.of(jobs), lambda job: say(_words(job))))
    else:
        recent: deque[Job] = deque(maxlen=EVENTS)
        out = console()
        with Live(console=out, refresh_per_second=8, transient=True) as live:

            def draw(jobs: list[Job], stats: Any, now: datetime) -> None:
                recent.extend(seen.of(jobs))
                live.update(_picture(jobs, stats.statuses, recent, now, out, hint))

            await _poll(app, draw)


def _each(jobs: list[Job], tell: Callable[[Job], None]) -> None:
    for job in jobs:
        tell(job)


async def _poll(app: App, see: Callable[[list[Job], Any, datetime], None]) -> None:
    while True:
        page, stats = await app.jobs(limit=200), await app.stats()
        see(list(page.items), stats, app.host.clock.now())
        await asyncio.sleep(EVERY)


class _Changes:
    """Which jobs are not as they were at the last look."""

    def __init__(self) -> None:
        self._known: dict[UUID, tuple[Status, int]] = {}

    def of(self, jobs: list[Job]) -> list[Job]:
        changed = []
        for job in reversed(jobs):
            now = (job.status, job.attempt)
            if job.task not in QUIET and self._known.get(job.id) != now:
                changed.append(job)
            self._known[job.id] = now
        return changed


def _words(job: Job) -> str:
    return f"{clock(job.updated_at)} {job.task:<10} {sentence(job)}"


def _picture(
    jobs: list[Job], statuses: dict[Status, int], recent: deque[Job], now: datetime, out: Any, hint: str
) -> RenderableType:
    counts = Text("headrace demo  ", "bold")
    for status in Status:
        if count := statuses.get(status, 0):
            counts.append(f" {count} ").append(status.value, STYLES[status])
    # What moves is worth more than what is over; of the many, the newest.
    shown = sorted((job for job in jobs if job.task not in QUIET), key=lambda job: job.ended)[:ROWS]
    events = Text("\n").join(Text(_words(job), STYLES[job.status]) for job in recent)
    return Group(counts, Text(), job_table(shown, now, out), Text(), events, Text(), Text(hint, "dim"))
