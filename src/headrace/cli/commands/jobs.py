"""Looking at jobs: ``jobs``, ``show``, ``watch``, ``explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import known
from headrace.cli.ids import every, given, resolve, resolve_worker, wanted
from headrace.cli.options import State, common, duration, filters, in_words
from headrace.cli.output.console import console, document, echo, say, tell
from headrace.cli.output.statuses import record_of
from headrace.cli.session import on_app, with_app

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.job import Job
    from headrace.core.query import Page

__all__ = ["explain", "jobs", "show", "watch"]


@click.command()
@filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Jobs per page.")
@click.option("--cursor", metavar="CURSOR", help="Where to go on; the page before names it.")
@click.option("--all", "whole", is_flag=True, help="All pages at once.")
@click.option("--count", "only_count", is_flag=True, help="Only say how many there are.")
@common
def jobs(state: State, limit: int, cursor: str | None, whole: bool, only_count: bool, **chosen: Any) -> None:
    """List jobs, newest first.

    Every filter that is given must match. Status, reason, task, queue, customer, worker and fingerprint may be given
    several times: then one of them must match. WHEN is a moment, or how long ago: 2026-01-31T08:00, 90m, 2h, 3d.
    """
    filters = given(**chosen)

    async def work(app: App) -> None:
        from headrace.core.query import Page

        chosen = await wanted(app, filters)
        if only_count:
            count = await app.jobs.count(**chosen)
            document({"count": count}) if state.json else echo(f"{count:,}")
            return
        if whole:
            page = Page(tuple([job async for job in every(app, **chosen)]))
        else:
            page = await _page(app, chosen, limit, cursor)
        if state.json:
            document({"items": [record_of(job) for job in page.items], "cursor": page.cursor})
            return
        if not page.items:
            say("no jobs" + (" match" if chosen else " yet: submit one with headrace submit TASK key=value"))
            return
        from headrace.cli.output.jobs import job_table

        out = console()
        out.print(job_table(page.items, app.host.clock.now(), out))
        if page.cursor:
            say(f"more: --cursor {page.cursor}")

    with_app(state, work)


async def _page(app: App, chosen: dict[str, Any], limit: int, cursor: str | None) -> Page[Job]:
    """Return a full page, if there are as many jobs: by text, one that App.jobs gives may be short."""
    from headrace.core.query import Page

    items: tuple[Job, ...] = ()
    while True:
        page = await app.jobs.list(**chosen, limit=limit - len(items), cursor=cursor)
        items, cursor = items + page.items, page.cursor
        if len(items) == limit or cursor is None:
            return Page(items, cursor)


@click.command()
@click.argument("id", shell_complete=known("job"))
@in_words
@on_app()
async def show(app: App, state: State, id: str) -> None:
    """Show one job whole: its record, the timeline of its attempts, whom it waits for, and its family as a tree.

    ID may be the first or the last digits of an id if they fit one job only.
    """
    found = await resolve(app, id)
    job, history = await app.jobs.get(found), await app.jobs.history(found)
    if state.json:
        document(record_of(job, history))
        return
    from headrace.cli.output.family import family_view, relatives
    from headrace.cli.output.jobs import job_view

    out = console()
    crew = await app.workers.list() if job.worker else []
    silent = next((row.silent_since for row in crew if row.info.id == job.worker), None)
    out.print(job_view(job, history, app.host.clock.now(), out, silent))
    for view in family_view(job, await relatives(app, job), app.host.clock.now(), out):
        out.print(view)


@click.command()
@click.argument("id", shell_complete=known("job"))
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up watching after this long; the job goes on.")
@in_words
@common
def watch(state: State, id: str, timeout: float | None) -> int:
    """Follow a job until it ends.

    Exit code 0 if it completed, 1 if it failed, was cancelled, or did not end in time. Ctrl-C ends the watching, not
    the job: 0 on a terminal, 130 in a script.
    """
    from headrace.cli.output.follow import follow, sentence, until_left

    seen: list[Job] = []

    async def work(app: App) -> int:
        return await follow(app, await resolve(app, id), state, seen, timeout)

    def last() -> str:
        return "\n".join(f"{job.task} {sentence(job)}; it goes on unwatched" for job in seen) or "nothing seen yet"

    return until_left(state, lambda: with_app(state, work), last)


@click.command()
@click.argument("id", required=False, shell_complete=known("job"))
@click.option(
    "--worker",
    metavar="ID",
    shell_complete=known("worker"),
    help="Say why this worker gets nothing; the last digits of its id will do.",
)
@in_words
@common
def explain(state: State, id: str | None, worker: str | None) -> None:
    """Say in words why a job is where it is, and what would move it; or why a worker gets nothing."""
    if (id is None) == (worker is None):
        raise click.UsageError("name a job by its id, or a worker by --worker, one of the two")

    async def work(app: App) -> None:
        if worker is not None:
            found = await resolve_worker(app, worker)
            reason = await app.workers.explain(found)
        else:
            found = await resolve(app, id or "")
            reason = await app.jobs.explain(found)
        answer: dict[str, Any] = {"id": str(found), "explanation": str(reason), "facts": reason.facts}
        document(answer) if state.json else tell(str(reason))

    with_app(state, work)
