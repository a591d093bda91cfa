"""The App with one handler that kills its worker and others that run beside it; its store comes from HEADRACE_URL."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from headrace import App

app = App()


def _die(note: str) -> None:
    with Path(note).open("a") as file:
        file.write("called\n")
    os._exit(9)


@app.task
async def poison(note: str) -> None:
    """Note the call, and take the whole process along."""
    _die(note)


@app.task
async def late_poison(note: str) -> None:
    """Take the whole process along when the start must be on record."""
    await asyncio.sleep(0.8)
    _die(note)


@app.task
async def instant(n: int) -> int:
    """End at once."""
    return n


@app.task
async def long(n: int, seconds: float) -> int:
    """Take a while."""
    await asyncio.sleep(seconds)
    return n


@app.bulk(size=20, wait=0.02)
async def together(numbers: list[int]) -> list[int | Exception]:
    """Take a while for all of them."""
    await asyncio.sleep(0.3)
    return list(numbers)


@app.bulk(size=20, wait=0.02)
async def poisoned_together(notes: list[str]) -> list[int | Exception]:
    """Die if one of the notes has a name; else end at once."""
    for note in notes:
        if note:
            _die(note)
    await asyncio.sleep(0.3)
    return [0 for _ in notes]
