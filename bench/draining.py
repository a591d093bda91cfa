"""How fast workers get through the jobs that wait in a store."""

from __future__ import annotations

import time

from bench.children import BrokenDown, Crew, ask, crew
from bench.plan import LABELS, EngineName, SideName

__all__ = ["SETTLE", "drain", "finish"]

SETTLE = 1.0
"""Seconds a worker is given before a light load begins."""


def drain(
    engine: EngineName, side: SideName, store: str, jobs: int, threads: int = 1, processes: int = 1, left: int = 0
) -> tuple[float, float]:
    """Have workers do all jobs that wait in a store; jobs a second, and the memory of one of them afterwards in MB.

    ``left``: how many jobs must remain, because they are not the workers' to take.
    """
    with crew(engine, side, store, threads, processes) as workers:
        workers.start()
        rate = finish(workers, jobs)
        rss = workers.children[0].rss()
        workers.stop()
    remaining = int(ask(engine, side, store, "remaining"))
    if remaining != left:
        raise BrokenDown(f"{LABELS[side]}: {remaining} jobs are left after the drain, not {left}")
    return rate, rss


def finish(workers: Crew, jobs: int, done: int = 0) -> float:
    """Jobs a second of workers who have ``done`` some before and are to do so many more.

    The clock runs from the first of these jobs that are reported to be over: how long workers take to start, or to
    notice that there is something to do, is not the question here. If all of them are in the first report, it runs
    from now.
    """
    began = time.time()
    first, first_at = done, began
    while True:
        count, at = workers.progress()
        if first == done:
            first, first_at = count, at
        if count >= done + jobs:
            return (count - first) / (at - first_at) if count > first else jobs / max(at - began, 1e-6)
