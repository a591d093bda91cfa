"""Output of the demo: a live screen, or plain lines where there is no terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rich.console import Group, RenderableType
from rich.live import Live

from headrace.cli.demo.app import ROWS
from headrace.cli.options import State
from headrace.cli.output.console import console, echo, is_terminal, line, say
from headrace.cli.output.jobs import STYLES, progress_bar, status_text, table
from headrace.cli.output.text import Text
from headrace.cli.output.words import clock, compact, span
from headrace.core.job import Job
from headrace.core.status import ENDED, Status

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.cli.demo.scenario import Scenario

__all__ = ["caption", "show"]

REFRESH_SECONDS = 0.2
QUIET = frozenset({"add"})
"""Tasks of which there are so many that their changes are only counted."""

PASSING = frozenset({Status.PENDING, Status.QUEUED, Status.ASSIGNED, Status.ACCEPTED})
"""Statuses that a job here is in for a blink, and that no line is spent on."""

ENDS = [status for status in Status if status in ENDED]

MAX_EVENT_LINES = 16
"""Maximum of lines about what happened."""


class Happening(NamedTuple):
    """A job as it was when it had changed."""

    at: datetime
    job: Job


class Moment(NamedTuple):
    """The state of the store at one poll."""

    jobs: Sequence[Job]
    statuses: Mapping[Status, int]
    now: datetime


async def show(
    app: App, state: State, rounds: Sequence[Scenario], hints: Sequence[str], first: Sequence[str] = ()
) -> None:
    """Show the jobs as they change, until cancelled; ``first``: lines above the hints."""
    changes = Changes()
    if state.json:
        await _look(app, lambda seen: _each(changes.of(seen.jobs), lambda one: line(one.job.to_dict())))
    elif not is_terminal():
        await _look(app, lambda seen: _each(changes.of(seen.jobs), lambda one: say(_words(one))))
    else:
        out = console()
        if too_long := max(map(len, hints)) > out.width - 2:
            # The terminal wraps it so that it can still be copied; a line broken by us could not.
            echo("\n".join(hints), lines=True)
        below = [*first, *([] if too_long else [hints[0], *(f"  {one}" for one in hints[1:])])]
        below.append("Ctrl-C ends the demo.")
        with Live(console=out, refresh_per_second=8, transient=True) as live:
            happened: list[Happening] = []

            def draw(seen: Moment) -> None:
                happened.extend(changes.of(seen.jobs))
                del happened[:-MAX_EVENT_LINES]
                live.update(picture(seen, rounds, happened, below, out.height - 1))

            await _look(app, draw)


def _each(happened: Sequence[Happening], tell: Callable[[Happening], None]) -> None:
    for one in happened:
        tell(one)


async def _look(app: App, see: Callable[[Moment], None]) -> None:
    while True:
        page, stats = await app.jobs.list(limit=200), await app.stats.counts()
        see(Moment(page.items, stats.statuses, app.host.clock.now()))
        await asyncio.sleep(REFRESH_SECONDS)


class Changes:
    """Finds the jobs that have changed since the last poll, in order of time."""

    def __init__(self) -> None:
        self._known: dict[UUID, tuple[Status, int]] = {}
        self._last: datetime | None = None

    def of(self, jobs: Sequence[Job]) -> list[Happening]:
        """Return what has happened since the last call."""
        changed = []
        for job in sorted(jobs, key=lambda job: job.updated_at):
            now = (job.status, job.attempt)
            if self._known.get(job.id) != now and job.task not in QUIET and job.status not in PASSING:
                # What was written between two polls may be dated before what the first of them read.
                self._last = max(self._last or job.updated_at, job.updated_at)
                changed.append(Happening(self._last, job))
            self._known[job.id] = now
        return changed


def _words(one: Happening) -> str:
    return f"{clock(one.at)}  {one.job.task:<9}  {_event(one.job)}"


def _event(job: Job) -> str:
    if job.status is Status.RETRYING and job.error:
        return f"attempt {job.attempt} failed: {job.error.type}: {job.error.message}"
    if job.status is Status.SCHEDULED:
        return "snoozed" if job.attempt else f"scheduled for {clock(job.available_at)}"
    if job.status is Status.RUNNING:
        return f"attempt {job.attempt} runs"
    words = status_text(job).plain
    if job.status is Status.COMPLETED and job.result_text not in (None, "null"):
        words += f": {compact(job.result)}"
    return words + (f" after {job.attempt} attempts" if job.attempt > 1 and job.status is Status.FAILED else "")


# The screen


def caption(task: Any) -> str:
    """Return what a task of the demo is there to show."""
    return str(task.fn.__doc__).rstrip(".")


def picture(
    seen: Moment, rounds: Sequence[Scenario], happened: Sequence[Happening], below: Sequence[str], height: int
) -> RenderableType:
    """Return counts, a line for each task, the newest of what happened, and hints; at most as high as the terminal."""
    ends = "".join(f", {seen.statuses.get(status, 0)} {status}" for status in ENDS)
    live = sum(count for status, count in seen.statuses.items() if status not in ENDED)
    head = Text.assemble(("headrace demo", "bold"), (f"   round {max(len(rounds), 1)}: {live} live{ends}", ""))
    made = table("task", "what it shows", "how it stands")
    for column, cells in zip(made.columns, ([task.name for task in ROWS], map(caption, ROWS)), strict=False):
        column.min_width = max(map(len, cells))  # on a narrow terminal it is how it stands that gives way
    for task in ROWS:
        mine = [job for job in seen.jobs if job.task == task.name and rounds and job.created_at >= rounds[-1].began]
        made.add_row(Text(task.name, "bold"), Text(caption(task), "dim"), _standing(mine, seen.now))
    room = max(height - len(ROWS) - len(below) - 5, 0)
    events = (
        [Text(_words(one), STYLES[one.job.status]) for one in happened[-min(room, MAX_EVENT_LINES) :]] if room else []
    )
    parts: list[RenderableType] = [head, Text(), made, Text(), *events, Text()]
    return Group(*parts, *(Text(one, "dim") for one in below))


def _standing(jobs: Sequence[Job], now: datetime) -> Text:
    """Return the counts of the jobs of one task."""
    if not jobs:
        return Text("–", "dim")
    if len(jobs) == 1:
        return _one(jobs[0], now)
    done = sum(job.ended for job in jobs)
    percent = sum(100.0 if job.ended else job.progress.percent if job.progress else 0.0 for job in jobs) / len(jobs)
    text = progress_bar(percent, 10, "green" if done == len(jobs) else "yellow")
    return text.append(f"  {done} of {len(jobs)} ended", "")


def _one(job: Job, now: datetime) -> Text:
    due = span(max((job.available_at - now).total_seconds(), 0.0))
    if job.status is Status.RETRYING:
        return Text(f"attempt {job.attempt} failed, next in {due}", STYLES[job.status])
    if job.status is Status.SCHEDULED:
        return Text(f"{'snoozed' if job.attempt else 'scheduled'}, due in {due}", STYLES[job.status])
    if job.held and job.progress:
        return progress_bar(job.progress.percent, 10).append("  running", "")
    text = status_text(job)
    if job.status is Status.COMPLETED and job.result_text is not None:
        text.append(f": {compact(job.result)}", "dim")
    elif job.status is Status.RUNNING:
        text.append(f", attempt {job.attempt}")
    return text
