"""The store as a whole: ``stats``, ``tasks``, ``workers``, ``audit``, ``prune``, ``migrate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import noted
from headrace.cli.ids import resolve_worker
from headrace.cli.options import common
from headrace.cli.output import console, document, echo, say, tell
from headrace.cli.run import StoreUnusable, choose, me, with_app
from headrace.cli.state import State
from headrace.core.explain.explanation import many
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.engine import WorkerRow

__all__ = ["audit", "migrate", "prune", "stats", "tasks", "workers"]


@click.command()
@common
def stats(state: State) -> None:
    """Count jobs by status, and check the ledger: submitted = live + ended + pruned."""

    async def work(app: App) -> None:
        found = await app.stats()
        if state.json:
            document(found)
            return
        from headrace.cli.overview import stats_view

        console().print(stats_view(found, app.host.clock.now()))

    with_app(state, work)


@click.command()
@common
def tasks(state: State) -> None:
    """List the tasks that workers have registered, and those of the App itself."""

    async def work(app: App) -> None:
        found = await app.tasks()
        if state.json:
            document(found)
        elif not found:
            say("no tasks: a worker registers its tasks when it starts (headrace worker MODULE:APP)")
        else:
            from headrace.cli.overview import tasks_view

            console().print(tasks_view(found))

    with_app(state, work)


@click.group(invoke_without_command=True)
@click.option("--explain", is_flag=True, help="Say of each why it gets jobs, or none: what waiting jobs need of it.")
@common
def workers(state: State, explain: bool) -> None:
    """List the workers the store knows, and how they are; or have one leave."""

    async def work(app: App) -> None:
        found = await app.workers()
        if explain and found:
            await _explain(app, found, state)
        elif state.json:
            document(found)
        elif not found:
            say("no workers: start one with headrace worker MODULE:APP")
        else:
            from headrace.cli.overview import workers_view

            console().print(workers_view(found, app.host.clock.now()))

    if click.get_current_context().invoked_subcommand is None:
        with_app(state, work)


async def _explain(app: App, found: Sequence[WorkerRow], state: State) -> None:
    answers = list[dict[str, Any]]()
    for row in found:
        told = await app.explain_worker(row.info.id)
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
        row = await app.drain_worker(await resolve_worker(app, id), by=me())
        if state.json:
            document(row)
        else:
            say(f"{row.info.described} was asked to leave; it holds {many(row.holds, 'job')}")

    with_app(state, work)


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, the newest.")
@common
def audit(state: State, limit: int) -> None:
    """Show who changed queues, limits, rates, schedules and keys, and when; of a job, `headrace show` says it."""

    async def work(app: App) -> None:
        found = await app.audit(limit)
        if state.json:
            document(found)
        elif not found:
            say("nothing was changed: queues, limits, rates and schedules are as the code says")
        else:
            from headrace.cli.overview import audit_view

            console().print(audit_view(found, app.host.clock.now()))

    with_app(state, work)


@click.command()
@common
def prune(state: State) -> None:
    """Delete ended jobs that are past their retention; workers do this by themselves."""

    async def work(app: App) -> None:
        gone = await app.prune()
        document({"pruned": gone}) if state.json else echo(f"{gone} pruned")

    with_app(state, work)


@click.command()
@click.option("--plan", is_flag=True, help="Only say what would be done.")
@common
def migrate(state: State, plan: bool) -> None:
    """Bring the store's schema up to date."""
    import asyncio
    from contextlib import nullcontext

    # An App whose store needs a migration cannot be opened, so this one command works on a closed one.
    app, url = choose(state)
    with app.override(url=url) if url else nullcontext():
        app.new_engine()
        try:
            names = asyncio.run(app.migrate(plan=plan))
        except ConfigError as error:
            raise StoreUnusable(f"{error}{noted(error)}") from error
    if state.json:
        document({"pending" if plan else "applied": names})
        return
    for name in names:
        echo(name)
    if not names:
        say("up to date")
