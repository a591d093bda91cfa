"""Names of queues, tasks and rates that mean nothing to anybody: said, for a slip would pass unnoticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.cli.output import warn

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.ruling import Named

__all__ = ["REWRITTEN", "note_strange", "note_undefined", "note_unreadable"]

REWRITTEN = "a worker whose code still has it stores it again when it starts"
"""What a person should know who has forgotten something."""


async def note_strange(app: App, of: Named, name: str, *, undo: bool = True) -> None:
    """Say so if nobody knows the name. ``undo``: something was set by it, and can be taken back."""
    if name in await app.known_names(of):
        return
    if of == "rate":
        message = f"no task, no queue and no code names the rate {name!r}"
    else:
        message = f"no job, no live worker and no code knows a {of} named {name!r}"
    group = "limits" if of == "task" else f"{of}s"
    warn(f"{message}; if that is a slip, headrace {group} forget {name} takes it back" if undo else message)


async def note_undefined(app: App, names: Iterable[str]) -> None:
    """Say which of these rates nobody has defined although somebody names them."""
    from headrace.ruling import undefined_rates

    undefined = await undefined_rates(app.engine) if names else {}
    for name in names:
        if name in undefined:
            warn(f"{undefined[name]}: it limits nothing until headrace rates set {name}, or app.rate in code")


async def note_unreadable(app: App, prefix: str) -> None:
    """Say which settings of these only another version can read."""
    from headrace.core.rule import limits_of, told_unreadable

    limits = limits_of((one.key, one.value) for one in await app.engine.settings(prefix))
    for key, why in limits.unreadable.items():
        warn(": ".join(told_unreadable(key, why)))
