"""Notes about names of queues, tasks and rates that are unknown: otherwise a typing error would pass unnoticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.cli.output.console import warn
from headrace.client.api.known_names import strange_name
from headrace.client.api.limit_settings import unreadable_settings

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.api.limit_settings import Named

__all__ = ["REWRITTEN", "check_task", "note_strange", "note_undefined", "note_unreadable"]

REWRITTEN = "a worker whose code still has it stores it again when it starts"
"""The note after something was forgotten."""


async def note_strange(app: App, of: Named, name: str, *, undo: bool = True) -> None:
    """Print a note if the name is unknown. ``undo``: something was set by it, and can be taken back."""
    message = await strange_name(app, of, name)
    if message is None:
        return
    group = "limits" if of == "task" else f"{of}s"
    warn(f"{message}; if that is a slip, headrace {group} forget {name} takes it back" if undo else message)


async def check_task(app: App, name: str) -> None:
    """Refuse a task that neither an App with tasks nor any worker of its store knows: its job would wait for ever.

    Without such an App a typing error cannot be distinguished from the task of a service that is yet to start.

    :raises UnknownTask: with what may have been meant
    """
    from headrace.client.api.tasks import resembling
    from headrace.errors import UnknownTask

    app._load()
    if not app.tasks or await app.tasks.knows(name):
        return
    known = {*app.tasks, *(task.name for task in await app.tasks.list())}
    hint = resembling(name, known) or f"there are {', '.join(sorted(known))}"
    where = "this App has no task of that name, nor has any worker of its store"
    raise UnknownTask(name, f"{name!r}: {where}; {hint} (for a service yet to start, use --url URL without --app)")


async def note_undefined(app: App, names: Iterable[str]) -> None:
    """Print a note about those of these rates that are named but not defined."""
    undefined = await app.rates.undefined() if names else {}
    for name in names:
        if name in undefined:
            warn(f"{undefined[name]}: it limits nothing until headrace rates set {name}, or app.rate in code")


async def note_unreadable(app: App, prefix: str) -> None:
    """Print a note about settings that only another version can read."""
    for sentence in await unreadable_settings(app, prefix):
        warn(sentence)
