"""Tasks that run in child processes; importable by name, as child processes need them."""

from __future__ import annotations

import contextvars
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.client.task_registry import Tasks
from headrace.core.lifecycle.retry import Retry
from headrace.errors import GiveUp, Snooze
from headrace.worker.execution.context import Context

tasks = Tasks()


@tasks.task(run_in="process")
def square(ctx: Context, n: int) -> dict[str, int]:
    """The square, and who computed it."""
    ctx.progress(50, "half", estimated_completion=datetime(2030, 1, 2, tzinfo=UTC), details={"pid": os.getpid()})
    return {"square": n * n, "pid": os.getpid()}


@tasks.task(run_in="process", retry=Retry(0))
def odd(kind: str) -> Any:
    """What is no plain JSON, or too much of it."""
    return {"set": {1, 2}, "nan": float("nan"), "half": "\ud83d", "long": "x" * (1024 * 1024)}[kind]


@tasks.task(run_in="process")
def says(ctx: Context, text: str) -> None:
    """Log a line, and try to keep a step."""
    logging.getLogger("child").warning("%s in attempt %d", text, ctx.attempt)
    ctx.step_sync("never", int)


@tasks.task(run_in="process")
def dies(how: str) -> None:
    """End the process in the middle of the job."""
    if how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)


@tasks.task(run_in="process", retry=Retry(0))
def exits(kind: str) -> None:
    """Raise what is meant to end a process."""
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[kind](3)


@tasks.task(run_in="process")
def spins(note: str) -> None:
    """Compute for ever, noting its process."""
    Path(note).write_text(str(os.getpid()))
    while True:
        sum(range(1000))


@tasks.task(run_in="process")
def checks(ctx: Context, note: str) -> None:
    """Work until asked to stop."""
    Path(note).write_text(str(os.getpid()))
    while True:
        ctx.check()
        time.sleep(0.01)


@tasks.task(run_in="process")
def steers(how: str) -> None:
    """Raise what a handler may raise."""
    raise {"snooze": Snooze(0.01), "give up": GiveUp("enough"), "error": KeyError("x")}[how]


@tasks.task(run_in="process")
def waits(note: str, gate: str) -> str:
    """Note its process, and work until a file is there."""
    Path(note).write_text(str(os.getpid()))
    while not Path(gate).exists():
        time.sleep(0.01)
    return "done"


@tasks.task(run_in="process")
def lingers(ctx: Context, begin: str, done: str) -> int:
    """Leave a thread behind that speaks when another job is there."""

    def late() -> None:
        while not Path(begin).exists():
            time.sleep(0.01)
        logging.getLogger("child").warning("too late")
        ctx.progress(77, "too late")
        Path(done).touch()

    threading.Thread(target=contextvars.copy_context().run, args=(late,), daemon=True).start()
    return os.getpid()


@tasks.resource
def numbers() -> Iterator[list[int]]:
    """What a worker has open, and its children have not."""
    yield [1, 2, 3]


@tasks.task(run_in="process", retry=Retry(0))
def borrows(ctx: Context) -> list[int]:
    """Ask for what is open in another process."""
    return ctx.resource(numbers)


@tasks.task(run_in="process")
def breathes(ctx: Context, seconds: float, signs: bool) -> None:
    """Run for so long, and say so."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if signs:
            ctx.heartbeat()
        time.sleep(0.05)
