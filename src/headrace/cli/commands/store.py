"""The store as a whole: ``stats``, ``tasks``, ``workers``, ``audit``, ``prune``, ``migrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.exit_codes import noted
from headrace.cli.options import State, common
from headrace.cli.output.console import document, echo, listing, say
from headrace.cli.session import StoreUnusable, choose, on_app
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["audit", "migrate", "prune"]


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, the newest.")
@on_app()
async def audit(app: App, state: State, limit: int) -> None:
    """Show who changed queues, limits, rates, schedules and keys, and when; of a job, `headrace show` says it."""
    found = await app.store.audit(limit)
    empty = "nothing was changed: queues, limits, rates and schedules are as the code says"
    listing(state.json, found, empty, lambda views: views.audit_view(found, app.host.clock.now()))


@click.command()
@on_app()
async def prune(app: App, state: State) -> None:
    """Delete ended jobs that are past their retention; workers do this by themselves."""
    gone = await app.store.prune()
    document({"pruned": gone}) if state.json else echo(f"{gone} pruned")


@click.command()
@click.option("--plan", is_flag=True, help="Only say what would be done.")
@common
def migrate(state: State, plan: bool) -> None:
    """Bring the store's schema up to date."""
    import asyncio
    from contextlib import nullcontext

    # An App with a store that needs a migration cannot be opened, so this one command works on a closed one.
    app, url = choose(state)
    with app.override(url=url) if url else nullcontext():
        app._new_engine()
        try:
            names = asyncio.run(app.store.migrate(plan=plan))
        except ConfigError as error:
            raise StoreUnusable(f"{error}{noted(error)}") from error
    if state.json:
        document({"pending" if plan else "applied": names})
        return
    for name in names:
        echo(name)
    if not names:
        say("up to date")
