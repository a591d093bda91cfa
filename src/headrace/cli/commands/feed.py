"""Following many jobs: ``feed``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.ids import given, wanted
from headrace.cli.options import State, common, filters
from headrace.cli.output.console import console, echo, is_terminal, line, say
from headrace.cli.output.statuses import record_of
from headrace.cli.output.words import clock, counted, short, time_of_day
from headrace.cli.session import with_app
from headrace.core.codec.stand_in import guarded
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.job import Job
    from headrace.core.updates import Changed

__all__ = ["feed"]


@click.command()
@filters
@common
def feed(state: State, **chosen: Any) -> int:
    """Follow the changes of all jobs that match, as they happen, one line each.

    A job is shown as it is now: where it changed several times within a moment, once. If there are too many changes
    at once some are left out, and a line says how many; with --json it is {"dropped": N}.

    It goes on until Ctrl-C: exit code 0 on a terminal, 130 in a script.
    """
    from headrace.cli.output.follow import until_left

    filters, jobs = given(**chosen), 0

    async def work(app: App) -> int:
        nonlocal jobs
        see = _viewer(state)
        async with app.jobs.feed(**await wanted(app, filters)) as changes:
            say("waiting for changes; Ctrl-C ends it")
            async for changed in changes:
                jobs += len(changed.jobs)
                see(changed)
        return 0

    return until_left(state, lambda: with_app(state, work), lambda: f"{counted(jobs, 'change')} shown")


def _viewer(state: State) -> Callable[[Changed], None]:
    """Return the viewer that fits the reader: JSON lines, plain lines, or colours within the width."""
    if state.json:
        return _print_json
    return _shown() if is_terminal() else _print


def _print_json(changed: Changed) -> None:
    for job in changed.jobs:
        line(record_of(job))
    if changed.dropped:
        line({"dropped": changed.dropped})


def _print(changed: Changed) -> None:
    from headrace.cli.output.follow import sentence

    def row(job: Job) -> str:
        return f"{time_of_day(_when(job))} {job.id} {job.task} {sentence(job)}"

    for job in changed.jobs:
        echo(guarded(row, job))
    if changed.dropped:
        echo(_left_out(changed.dropped))


def _shown() -> Callable[[Changed], None]:
    from headrace.cli.output.follow import sentence
    from headrace.cli.output.jobs import STYLES
    from headrace.cli.output.text import Text

    out = console()

    def row(job: Job) -> Text:
        words = Text.assemble(
            (clock(_when(job)), "dim"),
            " ",
            (short(job.id), "cyan"),
            " ",
            (job.task, "bold"),
            " ",
            (" ".join(sentence(job).split()), STYLES[job.status]),
        )
        words.truncate(out.width, overflow="ellipsis")
        return words

    def see(changed: Changed) -> None:
        for job in changed.jobs:
            out.print(guarded(row, job))
        if changed.dropped:
            out.print(Text(_left_out(changed.dropped), "yellow"))

    return see


def _when(job: Job) -> datetime:
    """Return since when it is so; a job that fell due is queued since then, whenever that was written."""
    return max(job.updated_at, job.arrived_at) if job.status is Status.QUEUED else job.updated_at


def _left_out(count: int) -> str:
    return f"… {counted(count, 'change')} left out: too many at once"
