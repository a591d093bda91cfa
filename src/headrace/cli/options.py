"""Flags and kinds of values that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

import click

from headrace.cli.state import State
from headrace.core import durations
from headrace.core.status import Status

__all__ = ["common", "duration", "filters", "moment", "target"]

F = TypeVar("F", bound=Callable[..., Any])


def duration(value: str | float) -> float:
    """A length of time, wherever one is given: seconds, or numbers with units (90, 250ms, 60s, 1h30m)."""
    try:
        return durations.duration(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def moment(value: str) -> datetime:
    """An ISO date and time; without an offset it is local time."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a moment: say 2026-01-31T08:00 or 2026-01-31T08:00+01:00") from None
    try:
        return found if found.tzinfo else found.astimezone()
    except (OverflowError, ValueError, OSError):  # at the ends of the calendar there is no local time
        raise click.BadParameter(f"{value!r} is not a moment that has a local time: say it with an offset") from None


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a shared flag; one not given says nothing, so that `headrace --json jobs` equals `headrace jobs --json`."""
    if value not in (None, False):
        setattr(ctx.ensure_object(State), str(param.name), value)


def _shared(*names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, callback=_note, expose_value=False, **attributes)


def target(fn: F) -> F:
    """Add the shared flags; what they say is found in the State."""
    # click lists options in the reverse order of their application.
    fn = _shared("--debug", is_flag=True, help="Show tracebacks (also HEADRACE_DEBUG=1).")(fn)
    fn = _shared("--json", is_flag=True, help="Print JSON: one document, or one per line when following.")(fn)
    fn = _shared("--app", metavar="MODULE[:APP]", help="The App to use (else HEADRACE_APP or headrace.toml).")(fn)
    return _shared("--url", metavar="URL", help="The store to use (else the App's, HEADRACE_URL, headrace.toml).")(fn)


def common(fn: Callable[..., int | None]) -> Callable[..., int | None]:
    """Make a function a command's body: it is given the State first and returns the exit code."""

    @wraps(fn)
    def body(*args: Any, **kwargs: Any) -> int | None:
        return fn(click.get_current_context().ensure_object(State), *args, **kwargs)

    return target(body)


def filters(fn: F) -> F:
    """Add the flags that choose jobs."""
    for option in (
        click.option("--suspect", is_flag=True, help="Jobs that may have killed their worker."),
        click.option("--text", metavar="TEXT", help="Found in the id, the task, the payload or the error."),
        click.option("--batch", metavar="ID", help="Jobs of this batch; the id of one of them will do."),
        click.option("--root", metavar="ID", help="All descendants of this job."),
        click.option("--parent", metavar="ID", help="Jobs that the handler of this job submitted."),
        click.option("--schedule", metavar="NAME", help="Jobs that this schedule submitted."),
        click.option("--tag", metavar="TAG", help="Jobs with this tag."),
        click.option("--queue", metavar="QUEUE", help="Jobs of this queue."),
        click.option("--task", metavar="TASK", help="Jobs of this task."),
        click.option(
            "--status",
            multiple=True,
            type=click.Choice([status.value for status in Status]),
            metavar="STATUS",
            help=f"Jobs in this status ({', '.join(Status)}); may be given several times.",
        ),
    ):
        fn = option(fn)
    return fn
