"""``headrace workers`` and ``headrace workers drain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import known
from headrace.cli.ids import resolve_worker
from headrace.cli.options import State
from headrace.cli.output.console import document, listing, say, tell
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
    """List the workers the store knows, and how they are; or have one leave."""
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
