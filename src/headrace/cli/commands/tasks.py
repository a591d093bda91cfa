"""``headrace tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.options import State
from headrace.cli.output.console import listing
from headrace.cli.session import on_app

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["tasks"]


@click.command()
@on_app()
async def tasks(app: App, state: State) -> None:
    """List the tasks that workers have registered, and those of the App itself."""
    found = await app.tasks.list()
    empty = "no tasks: a worker registers its tasks when it starts (headrace worker MODULE:APP)"
    listing(state.json, found, empty, lambda views: views.tasks_view(found))
