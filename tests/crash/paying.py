"""The App whose handlers write beside their jobs and die at the worst of moments; its store is HEADRACE_URL."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from pathlib import Path
from typing import Any, Literal

from headrace import App, Context, Retry
from tests.support.until import until

app = App()

Moment = Literal["before the write", "before the completion", "before the commit", "after the commit", "never"]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _add(note: str, line: str) -> None:
    with Path(note).open("a") as file:
        file.write(line)


async def _done(found: Any) -> None:
    if inspect.isawaitable(found):
        await found


@app.task(retry=Retry(30, backoff="fixed", initial=0.05))
async def pay(ctx: Context, table: str, moment: Moment = "never", pause: float = 0.0) -> int:
    """Write a row and complete the job with it; die in the first attempt."""
    dies = ctx.attempt == 1
    async with ctx.transaction() as tx:
        if dies and moment == "before the write":
            _die()
        await _done(tx.connection.execute(f"INSERT INTO {table} VALUES ('{ctx.job_id}')"))
        await asyncio.sleep(pause)
        if dies and moment == "before the completion":
            _die()
        if dies and moment == "before the commit":
            await ctx.complete(ctx.attempt, connection=tx.connection)
            _die()
        tx.complete(ctx.attempt)
    if dies and moment == "after the commit":
        _die()
    return -1


@app.task(retry=Retry(30, backoff="fixed", initial=0.05))
async def pay_at(ctx: Context, table: str, gate: str, note: str) -> int:
    """Write a row, note that, and complete the job when the gate of this process is open; note that this is over."""
    me = os.getpid()
    try:
        async with ctx.transaction() as tx:
            await _done(tx.connection.execute(f"INSERT INTO {table} VALUES ('{ctx.job_id}')"))
            _add(note, f"{me} wrote\n")
            await until(Path(f"{gate}-{me}").exists, within=120)
            tx.complete(ctx.attempt)
    finally:
        _add(note, f"{me} is through\n")
    return -1
