"""The App whose workers the crash tests kill; its store comes from HEADRACE_URL."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

from headrace import App, Context, Retry
from tests.support.until import until

app = App()

QUICK = Retry(20, backoff="fixed", initial=0.05)

PATIENCE = 10.0
"""Seconds that ``hurried`` workers wait for an answer of PostgreSQL."""


@app.task(retry=QUICK)
async def work(seconds: float = 0.05) -> int:
    """Take a moment."""
    await asyncio.sleep(seconds)
    return os.getpid()


@app.task(retry=QUICK)
async def nothing() -> None:
    """Do nothing at all."""


@app.task(retry=QUICK)
async def report() -> None:
    """What follows the end of a batch."""


def _add(note: str, line: str) -> None:
    with Path(note).open("a") as file:
        file.write(line)


@app.task(retry=Retry(2, backoff="fixed", initial=0.1))
async def poison(note: str) -> None:
    """Note the start, then take the whole process along."""
    _add(note, "started\n")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=QUICK)
async def waits_for(ctx: Context, path: str, note: str) -> int:
    """Note the attempt and its process, then wait for a file to appear."""
    _add(note, f"{ctx.attempt} {os.getpid()}\n")
    await until(Path(path).exists, within=120)
    return ctx.attempt


@app.task(retry=QUICK, concurrency_key="{key}", max_per_key=2, max_concurrency=6)
async def limited(key: str, seconds: float) -> None:
    """Take a moment, with few of its kind."""
    await asyncio.sleep(seconds)


@app.task(retry=QUICK)
async def counts(ctx: Context, n: int, gates: dict[int, str]) -> AsyncIterator[int]:
    """Yield numbers, at the pace of the store, but these not before a file appears; go on behind what is kept."""
    for number in range(ctx.stream_position + 1, n + 1):
        if number in gates:
            await until(Path(gates[number]).exists, within=120)
        yield number
        if number % 50 == 0:
            await asyncio.sleep(0.01)


async def _paid(note: str) -> int:
    _add(note, "paid\n")
    return os.getpid()


@app.task(retry=QUICK)
async def pays_once(ctx: Context, path: str, note: str) -> int:
    """A step, and then a wait for a file to appear."""
    pid = await ctx.step("pay", _paid, note)
    _add(note, "stepped\n")
    await until(Path(path).exists, within=120)
    return pid


@app.task(retry=QUICK, run_in="process")
def deaf(ctx: Context, path: str, note: str) -> int:
    """Note the attempt and its process, then wait for a pipe to open, where nothing else of the process gets to run."""
    _add(note, f"{ctx.attempt} {os.getpid()}\n")
    ctypes.PyDLL(None).open(path.encode(), os.O_RDONLY)  # which keeps the interpreter for itself
    return ctx.attempt


@app.task(retry=QUICK)
async def blocks(path: str, note: str) -> None:
    """Note the process, then block its loop until a file appears."""
    _add(note, f"1 {os.getpid()}\n")
    while not _is_there(path):
        time.sleep(0.02)  # noqa: ASYNC251 - this is what a handler should not do


def _is_there(path: str) -> bool:
    return Path(path).exists()
