"""The App whose handlers end their own worker processes, each at a moment of its own; its store is HEADRACE_URL's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from headrace import App, Context, Snooze

app = App()


def _note(note: str) -> int:
    """Count a call; how many there were before it."""
    with Path(note).open("a") as file:
        file.write("called\n")
    return Path(note).read_text().count("called\n") - 1


def _die() -> None:
    os._exit(9)


@app.task
async def at_once(note: str) -> None:
    """Die before anything can be written."""
    _note(note)
    _die()


@app.task
async def after_progress(ctx: Context, note: str) -> None:
    """Die when the start is on record, because something was said."""
    _note(note)
    ctx.progress(10)
    await ctx.flush()
    _die()


@app.task
async def while_written(note: str) -> None:
    """Die around the moment at which a start that was left out is written."""
    calls = _note(note)
    await asyncio.sleep(0.45 + 0.1 * (calls % 4))
    _die()


@app.task
async def after_a_second(note: str) -> None:
    """Die when a start that was left out must be on record."""
    _note(note)
    await asyncio.sleep(1.2)
    _die()


@app.task
async def after_a_snooze(note: str) -> None:
    """Snooze first, which costs nothing, and die from then on."""
    if _note(note) == 0:
        raise Snooze(0.1)
    _die()
