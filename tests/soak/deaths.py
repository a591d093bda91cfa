"""The App whose workers are halted, cut off and killed; its store comes from HEADRACE_URL, its clock from a file.

The file is ``CLOCK``; without it the clock is the machine's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from headrace import App, Every, Retry
from headrace.runtime.store_clock import StoreClock
from tests.support.wrong_clock import SharedClock

_file = os.environ.get("CLOCK")

app = App(clock=StoreClock(SharedClock(Path(_file))) if _file else None)


@app.task(retry=Retry(100, backoff="fixed", initial=0.05), timeout=None)
async def blocks(path: str, note: str) -> None:
    """Block the loop until a file appears."""
    _wait(path, note)


def _wait(path: str, note: str) -> None:
    with Path(note).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(path).exists():
        time.sleep(0.02)


@app.task(retry=Retry(100, backoff="fixed", initial=0.05))
def forks() -> None:
    """Start what ends: a copy of this process, and a program."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    subprocess.run([sys.executable, "-c", ""], check=True)


@app.task(schedule=Every(seconds=1), retry=Retry(100, backoff="fixed", initial=0.05))
async def ticks() -> None:
    """Done once a second."""
