"""Following one job to its end, for people and for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from headrace.cli.exit_codes import DONE, FAILED, INTERRUPTED
from headrace.cli.options import State
from headrace.cli.output.console import console, echo, is_terminal, line, say
from headrace.cli.output.statuses import record_of, word_of
from headrace.cli.output.words import compact, time_of_day
from headrace.core.codec.stand_in import is_stand_in
from headrace.core.job import Job, json_or_text
from headrace.core.status import Status
from headrace.errors import ResultTimeout

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["ending", "follow", "sentence", "until_left"]


class Viewer(Protocol):
    """Shows a job each time it changed."""

    def __call__(self, job: Job) -> None:
        """Show the job as it is now."""
        ...


def until_left(state: State, following: Callable[[], int], seen: Callable[[], str]) -> int:
    """Follow something until it ends, or until an interrupt; then print what was seen.

    A person who has seen enough has failed at nothing: 0. A program asked for an end that did not come: 130, because 0
    would mean that all went well.
    """
    try:
        return following()
    except KeyboardInterrupt:
        say(seen())
        return DONE if is_terminal() and not state.json else INTERRUPTED


async def follow(app: App, id: UUID, state: State, seen: list[Job], timeout: float | None = None) -> int:
    """Show every change of the job until it has ended, ``seen`` is the last; return the exit code of its end."""
    job = await app.jobs.get(id)
    with viewer(state) as see:
        try:
            async with asyncio.timeout(timeout):
                async for job in app.jobs.watch(id):
                    seen[:] = [job]
                    see(job)
        except TimeoutError:
            raise ResultTimeout(id, timeout or 0.0) from None
    return ending(job)


def ending(job: Job) -> int:
    """Return the exit code of a job's end."""
    return DONE if job.status is Status.COMPLETED else FAILED


def sentence(job: Job) -> str:
    """Return the state of the job, on one line."""
    words = word_of(job)
    if job.reason:
        words += f" ({job.reason.value.replace('_', ' ')})"
    if job.status in (Status.RUNNING, Status.RETRYING):
        words += f" · attempt {job.attempt}"
    if job.held and job.progress:
        words += f" · {job.progress.percent:.0f} %"
        words += f" {job.progress.message}" if job.progress.message else ""
    if job.status is Status.COMPLETED and job.result_text not in (None, "null"):
        words += f" · {compact(json_or_text(job.result_text or ''))}"
    elif job.error and (job.status in (Status.RETRYING, Status.FAILED) or is_stand_in(job)):
        words += f" · {job.error.type}: {job.error.message}"
    return words


@contextmanager
def viewer(state: State) -> Iterator[Viewer]:
    """Return the viewer that fits the reader: JSON lines, plain lines, or a bar that moves."""
    if state.json:
        yield lambda job: line(record_of(job))
    elif not is_terminal():
        yield lambda job: echo(f"{time_of_day(job.updated_at)} {job.task} {sentence(job)}")
    else:
        with _bar() as see:
            yield see


@contextmanager
def _bar() -> Iterator[Viewer]:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[name]}", style="bold", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}", style="dim", markup=False),
    )
    out = console()
    last: list[Job] = []
    with Progress(*columns, console=out, transient=True) as progress:
        row = progress.add_task("", total=100, name="", words="")

        def see(job: Job) -> None:
            last[:] = [job]
            done = job.progress.percent if job.progress else 100.0 if job.ended else 0.0
            progress.update(row, completed=done, name=job.task, words=sentence(job))

        yield see
    for job in last:
        from headrace.cli.output.jobs import STYLES
        from headrace.cli.output.text import Text

        out.print(Text.assemble((job.task, "bold"), "  ", (sentence(job), STYLES[job.status])))
