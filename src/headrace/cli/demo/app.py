"""The tasks of ``headrace demo``, one for each thing a job can go through; their docstrings are its captions."""

from __future__ import annotations

import asyncio
import logging

from headrace import App, Context, Every, Retry, Snooze

__all__ = ["ROWS", "add", "app", "doomed", "endless", "later", "patient", "thumbnail", "tick", "unsteady"]

app = App()

# What fails here is meant to, and is on the screen already.
logging.getLogger("headrace").addHandler(logging.NullHandler())


@app.task(queue="images")
async def thumbnail(ctx: Context, image: str, width: int = 320) -> dict[str, str | int]:
    """Reports its progress."""
    for step in range(1, 11):
        await asyncio.sleep(0.08)
        ctx.progress(step * 10, f"row {step * 48} of 480")
    return {"image": image, "width": width}


@app.task
def add(a: int, b: int) -> int:
    """Plain functions, run in threads."""
    return a + b


@app.task
async def later() -> str:
    """Delayed: starts 2 s from now."""
    await asyncio.sleep(0.3)
    return "in its own time"


@app.task(retry=Retry(3, backoff=[0.4, 0.8], jitter=False))
async def unsteady(ctx: Context) -> str:
    """Fails twice, then succeeds."""
    await asyncio.sleep(0.2)
    if ctx.attempt < 3:
        raise ConnectionError("the line dropped")
    return "third time lucky"


@app.task(retry=Retry(2, backoff=[0.3, 0.6], jitter=False))
async def doomed() -> None:
    """Fails each time: a dead letter."""
    await asyncio.sleep(0.1)
    raise ValueError("no 30th of February")


@app.task
async def patient(ctx: Context) -> str:
    """Too early: snoozes, uncharged."""
    if ctx.attempt == 1:
        raise Snooze(1.0)
    await asyncio.sleep(0.2)
    return "worth the wait"


@app.task
async def endless(ctx: Context) -> None:
    """Runs until it is cancelled."""
    for step in range(10_000):
        ctx.progress(min(step, 99), "digging")
        await asyncio.sleep(0.05)


@app.task(schedule=Every(seconds=2))
async def tick() -> str:
    """Comes by its schedule, every 2 s."""
    return "tock"


ROWS = (thumbnail, add, later, unsteady, doomed, patient, endless, tick)
"""In the order of the screen."""
