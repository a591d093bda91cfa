"""The App of workers whose clocks are wrong: by ``WRONG_BY`` seconds, or by what the file ``CLOCK`` says.

What its tasks return is the true time, which all processes of this machine share.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from headrace import App, Every, Retry
from headrace.runtime.store_clock import StoreClock
from tests.support.until import until
from tests.support.wrong_clock import SharedClock, WrongClock

_file, _off = os.environ.get("CLOCK"), float(os.environ.get("WRONG_BY", "0"))
_clock = SharedClock(Path(_file)) if _file else WrongClock(_off)

app = App(clock=StoreClock(_clock))

ONCE = Retry(0)
"""Whoever is charged falsely has failed."""


@app.task(retry=ONCE)
async def begins() -> float:
    """When the handler was called."""
    return time.time()


@app.task(retry=ONCE, schedule=Every(seconds=1), timeout=20)
async def fires() -> float:
    """When the handler was called."""
    return time.time()


@app.task(retry=ONCE)
async def lasts(seconds: float) -> float:
    """Run for so long, and tell when that was over."""
    await asyncio.sleep(seconds)
    return time.time()


@app.task(retry=ONCE)
def blocks(seconds: float) -> float:
    """The same, in a thread."""
    time.sleep(seconds)
    return time.time()


@app.task(retry=ONCE)
async def waits(path: str) -> int:
    """Run until the file appears."""
    await until(Path(path).exists, within=300)
    return os.getpid()
