"""``headrace workers`` and ``headrace workers drain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.ids import resolve_worker
from headrace.cli.options import State, common
from headrace.cli.output.console import console, document, say, tell
from headrace.cli.session import me, with_app
from headrace.core.explain.explanation import many

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.engine import WorkerRow

__all__ = ["workers"]


@click.group(invoke_without_command=True)
@click.option("--explain", is_flag=True, help="Say of each why it gets jobs, or none: what waiting jobs need of it.")
@common
def workers(state: State, explain: bool) -> None:
    """List the workers the store knows, and how they are; or have one leave."""

    async def work(app: App) -> None:
        found = await app.workers.list()
        if explain and found:
            await _explain(app, found, state)
        elif state.json:
            document(found)
        elif not found:
            say("no workers: start one with headrace worker MODULE:APP")
        else:
            from headrace.cli.output.store import workers_view

            console().print(workers_view(found, app.host.clock.now()))

    if click.get_current_context().invoked_subcommand is None:
        with_app(state, work)


async def _explain(app: App, found: Sequence[WorkerRow], state: State) -> None:
    answers = list[dict[str, Any]]()
    for row in found:
        told = await app.workers.explain(row.info.id)
        answers.append({"id": row.info.id, "name": row.info.name, "explanation": str(told), "facts": told.facts})
        if not state.json:
            tell(f"{row.info.described}: {told}")
    if state.json:
        document(answers)


@workers.command()
@click.argument("id")
@common
def drain(state: State, id: str) -> None:
    """Have a worker claim no more, finish what it runs, however long that takes, and leave."""

    async def work(app: App) -> None:
        row = await app.workers.drain(await resolve_worker(app, id), by=me())
        if state.json:
            document(row)
        else:
            say(f"{row.info.described} was asked to leave; it holds {many(row.holds, 'job')}")

    with_app(state, work)
