"""Batches as a whole: ``batch``, ``batches``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import click

from headrace.cli.commands.actions import confirm
from headrace.cli.completion import known
from headrace.cli.exit_codes import DONE, FAILED
from headrace.cli.ids import resolve_batch
from headrace.cli.options import State, common, duration, in_words
from headrace.cli.output.console import console, document, echo, is_terminal, line, say
from headrace.cli.output.words import counted, time_of_day
from headrace.cli.session import me, on_app, with_app
from headrace.core.batch import Batch, cancelled, may_miss_some
from headrace.core.status import Verb
from headrace.errors import Unavailable

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.batch import BatchHandle

__all__ = ["batch", "batches"]

POLL_SECONDS = 0.5
"""Seconds between two polls of its progress."""

Viewer: TypeAlias = "Callable[[Batch], None]"


@click.command()
@click.argument("id", shell_complete=known("batch"))
@click.option("--wait", is_flag=True, help="Follow it until it has ended; exit code 0 if all of its jobs completed.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Wait no longer than this; the batch goes on.")
@click.option("--cancel", is_flag=True, help="Cancel its jobs that have not ended; it takes no more jobs.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before the cancel.")
@in_words
@common
def batch(state: State, id: str, wait: bool, timeout: float | None, cancel: bool, yes: bool) -> int:
    """Show a batch, wait for it, or cancel it.

    ID is that of the batch, or of one of its jobs, which may be cut to its first or last digits.

    With --wait the exit code is 0 if all of its jobs completed, and 1 if not, if it did not end in time, if it was
    cancelled, or if its submitter fell silent before all of its jobs were there. Ctrl-C ends the waiting, not the
    batch: 0 on a terminal, 130 in a script.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait")
    seen: list[Batch] = []

    async def work(app: App) -> int:
        handle = app.batches.handle(await resolve_batch(app, id))
        record = await handle.refresh()
        if cancel and cancelled(record, app.host.clock.now(), me()) is not None:
            await confirm(Verb.CANCEL, record.tally.live, yes)
            say(f"{counted(await handle.cancel(by=me()), 'job')} cancelled, or asked to stop")
            record = await handle.refresh()
        elif cancel:
            say("nothing to cancel: all of its jobs have ended")
        if wait:
            return await _follow(app, handle, state, seen, timeout)
        if state.json:
            document(record)
        else:
            from headrace.cli.output.batches import batch_view

            calls = [call.id for call in (record.on_complete, record.on_failure) if call is not None]
            follow = {job.id: job for job in await app.jobs.get_many(calls) if job is not None}
            console().print(batch_view(record, follow, app.host.clock.now()))
        return DONE

    if not wait:
        return with_app(state, work)
    from headrace.cli.output.follow import until_left

    def last() -> str:
        from headrace.cli.output.batches import sentence

        return "\n".join(f"{sentence(record)}; it goes on unwatched" for record in seen) or "nothing seen yet"

    return until_left(state, lambda: with_app(state, work), last)


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Batches per page.")
@click.option("--cursor", metavar="CURSOR", help="Where to go on; the page before names it.")
@on_app()
async def batches(app: App, state: State, limit: int, cursor: str | None) -> None:
    """List batches, newest first."""
    page = await app.batches.list(limit=limit, cursor=cursor)
    if state.json:
        document(page)
        return
    if not page.items:
        say("no batches" + ("" if cursor else " yet: app.batch() makes one"))
        return
    from headrace.cli.output.batches import batches_view

    console().print(batches_view(page.items, app.host.clock.now()))
    if page.cursor:
        say(f"more: --cursor {page.cursor}")


async def _follow(app: App, handle: BatchHandle, state: State, seen: list[Batch], timeout: float | None) -> int:
    """Show every change of the batch until it has ended, and keep the last in ``seen``; return the exit code."""
    waiting = asyncio.create_task(handle.wait(timeout=timeout))
    try:
        with _viewer(app, state) as see:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=POLL_SECONDS)
                if not done:
                    with suppress(Unavailable):  # the store comes back, or the time is up
                        await handle.refresh()
                record = waiting.result() if done else handle.last
                if record is not None and [record] != seen:
                    see(record)
                    seen[:] = [record]
                if done:
                    break
    finally:
        waiting.cancel()
    record = await waiting
    return DONE if record.tally.completed == record.tally.total and not may_miss_some(record) else FAILED


@contextmanager
def _viewer(app: App, state: State) -> Iterator[Viewer]:
    """Return the viewer that fits the reader: JSON lines, plain lines, or a bar that moves."""
    if state.json:
        yield line
        return
    from headrace.cli.output.batches import moving_bar, sentence

    if is_terminal():
        with moving_bar(console()) as see:
            yield see
    else:
        yield lambda record: echo(f"{time_of_day(app.host.clock.now())} {sentence(record)}")
