"""``headrace workers``, ``headrace workers gone`` and ``headrace workers drain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import known
from headrace.cli.ids import resolve_gone_worker, resolve_worker
from headrace.cli.options import State
from headrace.cli.output.console import console, document, listing, say, tell
from headrace.cli.session import me, on_app
from headrace.core.explain.explanation import many

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.engine import WorkerRow

__all__ = ["workers"]


@click.group(invoke_without_command=True)
@click.option("--explain", is_flag=True, help="Say of each why it gets jobs, or none: what waiting jobs need of it.")
@on_app()
async def workers(app: App, state: State, explain: bool) -> None:
    """List the workers the store knows, and how they are; or those that are gone; or have one leave."""
    found = await app.workers.list()
    if explain and found:
        await _explain(app, found, state)
        return
    empty = "no workers: start one with headrace worker MODULE:APP"
    listing(state.json, found, empty, lambda views: views.workers_view(found, app.host.clock.now()))


async def _explain(app: App, found: Sequence[WorkerRow], state: State) -> None:
    answers = list[dict[str, Any]]()
    for row in found:
        reason = await app.workers.explain(row.info.id)
        answers.append({"id": row.info.id, "name": row.info.name, "explanation": str(reason), "facts": reason.facts})
        if not state.json:
            tell(f"{row.info.described}: {reason}")
    if state.json:
        document(answers)


@workers.command()
@click.argument("id", shell_complete=known("worker"))
@on_app()
async def drain(app: App, state: State, id: str) -> None:
    """Have a worker claim no more, finish what it runs, however long that takes, and leave."""
    row = await app.workers.drain(await resolve_worker(app, id), by=me())
    if state.json:
        document(row)
    else:
        say(f"{row.info.described} was asked to leave; it holds {many(row.holds, 'job')}")


@workers.command()
@click.argument("id", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Workers per page.")
@click.option("--cursor", metavar="CURSOR", help="Where to go on; the page before names it.")
@on_app()
async def gone(app: App, state: State, id: str | None, limit: int, cursor: str | None) -> None:
    """List workers that are gone, the last to go first; of one say which jobs it held, and what became of them.

    ID may be cut to its first or last digits, among the last 1000 that went. Records are kept as long as failed jobs.
    """
    if id is not None:
        found = await app.workers.get_gone(await resolve_gone_worker(app, id))
        jobs = await app.jobs.get_many(found.lost)
        if state.json:
            document({"worker": found, "jobs": jobs})
            return
        from headrace.cli.output.workers import gone_worker_view

        console().print(gone_worker_view(found, jobs, app.host.clock.now()))
        return
    page = await app.workers.gone(limit=limit, cursor=cursor)
    if state.json:
        document(page)
        return
    if not page.items:
        say("no worker is on record as gone")
        return
    from headrace.cli.output.workers import gone_workers_view

    console().print(gone_workers_view(page.items, app.host.clock.now()))
    if page.cursor:
        say(f"more: --cursor {page.cursor}")
