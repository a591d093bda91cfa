"""``tasks``: list, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.completion import known
from headrace.cli.options import State
from headrace.cli.output.console import document, listing, say
from headrace.cli.session import me, on_app
from headrace.cli.unknown_names import note_strange

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["tasks"]


@click.group(invoke_without_command=True)
@on_app()
async def tasks(app: App, state: State) -> None:
    """List the tasks that workers have registered, and those of the App itself; or pause and resume one."""
    found = await app.tasks.list()
    empty = "no tasks: a worker registers its tasks when it starts (headrace worker MODULE:APP)"
    listing(state.json, found, empty, lambda views: views.tasks_view(found))


async def _one(app: App, name: str, state: State, what: str, *, paused: bool) -> None:
    document({"task": name, "paused": paused}) if state.json else say(f"task {name} {what}")
    await note_strange(app, "task", name, undo=False)


@tasks.command()
@click.argument("name", shell_complete=known("task"))
@click.option("--by", help="Who pauses it, for explain to tell; you on this machine, if left out.")
@on_app(creates=True)
async def pause(app: App, state: State, name: str, by: str | None) -> None:
    """Pause the task in all queues: none of its jobs are started, running ones go on."""
    await app.tasks.pause(name, by=by or me())
    await _one(app, name, state, "is paused: headrace tasks resume opens it again", paused=True)


@tasks.command()
@click.argument("name", shell_complete=known("task"))
@on_app(creates=True)
async def resume(app: App, state: State, name: str) -> None:
    """Resume a paused task."""
    await app.tasks.resume(name, by=me())
    await _one(app, name, state, "is open", paused=False)
