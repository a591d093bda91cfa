"""``headrace tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.options import State, common
from headrace.cli.output.console import console, document, say
from headrace.cli.session import with_app

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["tasks"]


@click.command()
@common
def tasks(state: State) -> None:
    """List the tasks that workers have registered, and those of the App itself."""

    async def work(app: App) -> None:
        found = await app.tasks.list()
        if state.json:
            document(found)
        elif not found:
            say("no tasks: a worker registers its tasks when it starts (headrace worker MODULE:APP)")
        else:
            from headrace.cli.output.store import tasks_view

            console().print(tasks_view(found))

    with_app(state, work)
