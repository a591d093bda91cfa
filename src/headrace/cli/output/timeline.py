"""The timeline of a job: which worker had it when, drawn to scale. Pure: record and history in, rows out."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from headrace.cli.output.statuses import word_of
from headrace.cli.output.words import counted, short, span
from headrace.core import times as moments
from headrace.core.attempt import Attempt, Event, History
from headrace.core.job import Job
from headrace.core.status import Outcome, Reason, Status, Verb

__all__ = ["Bar", "Row", "draw", "rows"]


class Bar(NamedTuple):
    """A stretch of time, and how it looks; a stretch without length is a point."""

    start: datetime
    end: datetime
    sign: str
    style: str


class Row(NamedTuple):
    """One line of the picture."""

    at: datetime
    """When it began; rows are in this order."""
    label: str
    style: str
    bars: tuple[Bar, ...]
    took: str
    note: str


OUTCOMES = {
    Outcome.COMPLETED: "green",
    Outcome.FAILED: "red",
    Outcome.TIMED_OUT: "red",
    Outcome.LOST: "magenta",
    Outcome.RELEASED: "cyan",
    Outcome.SNOOZED: "blue",
    Outcome.CANCELLED: "yellow",
}

ENDS = {Status.COMPLETED: "green", Status.FAILED: "red", Status.CANCELLED: "yellow"}

WAITING, HELD, RUNNING, POINT = "·", "░", "█", "◆"


def rows(job: Job, history: History, now: datetime) -> list[Row]:
    """Return what happened to the job, oldest first: its submission, its attempts, actions of people, its state."""
    made = job.created_at
    found = [Row(made, "submitted", "cyan", (_point(made, "cyan"),), "", f"queue {job.asked_queue}")]
    since = made
    for attempt in history.attempts:
        found.append(_attempt_row(attempt, since))
        since = attempt.finished_at
    for verb, group in groupby(history.events, key=lambda event: event.verb):
        events = list(group)
        # A job may be replaced thousands of times: the last one says what it is to do.
        for several in [events] if verb == Verb.REPLACE else [[event] for event in events]:
            event, times = several[-1], f"×{len(several)}" if len(several) > 1 else ""
            by = f"by {event.by}" if event.by else ""
            note = " · ".join(part for part in (times, by, event.note or "", _said(event)) if part)
            points = tuple(_point(one.at, "yellow") for one in several)
            found.append(Row(event.at, verb.replace("_", " "), "yellow", points, "", note))
    found.sort(key=lambda row: row.at)
    if job.ended:
        end = _end(job, history)
        # What was done to it afterwards, such as a rerun, does not move its end.
        later = [row for row in found if row.at > end.at]
        return [*found[: len(found) - len(later)], end, *later]
    last = _standing(job, since, now)
    return [*found, last._replace(at=max(last.at, found[-1].at))]


def _end(job: Job, history: History) -> Row:
    """Return the row of its end."""
    at = job.finished_at or job.updated_at
    if job.reason is Reason.DISCARDED:  # it had ended before, in another way
        at = max([at, *(event.at for event in history.events if event.verb == Verb.DISCARD)])
    note = job.reason.value.replace("_", " ") if job.reason else ""
    style = ENDS[job.status]
    return Row(at, word_of(job), style, (_point(at, style),), "", note)


def _said(event: Event) -> str:
    """Return the details of an action: its new time, its queue before and after."""
    shown = dict(event.details or {})
    if isinstance(until := shown.get("until"), str):
        shown["until"] = moments.moment(datetime.fromisoformat(until), None)
    if isinstance(delay := shown.get("delay"), float | int):
        shown["delay"] = span(delay)
    return " ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def _begun(attempt: Attempt) -> datetime:
    return attempt.assigned_at or attempt.started_at or attempt.finished_at


def _point(at: datetime, style: str) -> Bar:
    return Bar(at, at, POINT, style)


def _attempt_row(attempt: Attempt, since: datetime) -> Row:
    style = OUTCOMES[attempt.outcome]
    begun = _begun(attempt)
    started = attempt.started_at or attempt.finished_at
    bars = [Bar(since, begun, WAITING, "dim")] if since < begun else []
    if begun < started:
        bars.append(Bar(begun, started, HELD, style))
    bars.append(Bar(started, attempt.finished_at, RUNNING, style))
    took = span((attempt.finished_at - started).total_seconds()) if attempt.started_at else "not started"
    note = attempt.outcome.value.replace("_", " ")
    if attempt.count > 1:
        note += f" ×{attempt.count}"
    if attempt.cause and not attempt.error:
        note += f" ({attempt.cause.replace('_', ' ')})"
    if attempt.worker:
        note += f" · worker {short(attempt.worker)}"
    if attempt.error:
        note += f" · {attempt.error.type}: {attempt.error.message}"
    return Row(begun, f"attempt {attempt.number}", style, tuple(bars), took, note)


def _standing(job: Job, since: datetime, now: datetime) -> Row:
    """Return the row of what is still going on."""
    if job.held:
        begun = job.assigned_at or job.started_at or since
        started = job.started_at or now
        bars = [Bar(since, begun, WAITING, "dim")] if since < begun else []
        if begun < started:
            bars.append(Bar(begun, started, HELD, "yellow"))
        if job.started_at:
            bars.append(Bar(job.started_at, max(now, job.started_at), RUNNING, "yellow"))
        number = job.attempt if job.started_at else job.attempt + 1
        took = span(max((now - started).total_seconds(), 0.0)) if job.started_at else ""
        note = f"{word_of(job)} · worker {short(job.worker)}"
        return Row(begun, f"attempt {number}", "yellow", tuple(bars), took, note)
    until = max(job.available_at, now)
    if job.status is Status.WAITING:
        note = f"for {counted(len(job.after), 'job')}"
    elif job.available_at > now:
        note = f"due in {span((job.available_at - now).total_seconds())}"
    else:
        note = "claimable"
    begun = min(since, now)
    return Row(begun, word_of(job), "cyan", (Bar(begun, until, WAITING, "cyan"),), "", note)


def draw(row: Row, start: datetime, end: datetime, width: int) -> list[tuple[str, str]]:
    """Return the row's bars as cells on a scale from start to end: (sign, style) each; each bar gets a cell."""
    cells = [(" ", "")] * width
    whole = max((end - start).total_seconds(), 1e-9)

    def column(at: datetime) -> int:
        return min(int((at - start).total_seconds() / whole * width), width - 1)

    # Longer claims on a cell come first, so that a short run is not hidden by the wait that ends in the same cell.
    for bar in row.bars:
        for index in range(max(column(bar.start), 0), max(column(bar.end), 0) + 1):
            cells[index] = (bar.sign, bar.style)
    return cells


def extent(picture: list[Row]) -> tuple[datetime, datetime]:
    """Return the first and the last moment that a picture shows."""
    starts = [bar.start for row in picture for bar in row.bars]
    ends = [bar.end for row in picture for bar in row.bars]
    return min(starts), max(ends)
