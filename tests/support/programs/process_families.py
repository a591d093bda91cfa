"""Tasks in child processes that wait for other jobs; the App finds its store by the environment, there as here."""

from __future__ import annotations

import time
from pathlib import Path

from headrace import App

app = App()


@app.task
async def plus_one(n: int) -> int:
    """What others wait for."""
    return n + 1


@app.task(run_in="process")
def parent(n: int) -> int:
    """Wait for two jobs, one after the other."""
    return app.wait(plus_one.run(n)) + app.wait(plus_one.submit_sync(n + 1).result())


@app.task(run_in="process")
def submits(gate: str) -> None:
    """Submit a job, and go on until a file is there."""
    plus_one.submit_sync(1)
    while not Path(gate).exists():
        time.sleep(0.01)


@app.task
def holds(note: str) -> None:
    """Keep a slot, and a file as long, until another file is there."""
    file = Path(note)
    file.touch()
    while not file.with_suffix(".open").exists():
        time.sleep(0.01)
    file.unlink()


@app.task(run_in="process")
def waits(id: str, note: str) -> str:
    """Wait for a job; whether ``holds`` has the slot when this goes on."""
    app.wait(app.jobs.handle(id).result())
    return "somebody holds it" if Path(note).exists() else "nobody holds it"
