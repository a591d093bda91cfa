"""Drains by what PostgreSQL's planner knows of the tables.

A claim that is planned while its table is empty, and not planned again when it is full, may read the whole table each
time. So one of the states is a worker that has claimed from tables which were analyzed while they were empty, and then
meets all jobs at once.
"""

from __future__ import annotations

import time

from bench.children import ask, crew
from bench.draining import SETTLE, drain, finish
from bench.plan import Measure, SideName
from bench.stores import Databases

__all__ = ["drain_in"]

FEW = 50
"""Jobs that a worker does one at a time before it counts as warm; a plan is kept from the sixth use on."""


def drain_in(state: Measure, stores: Databases, side: SideName, store: str, jobs: int) -> float:
    """Jobs a second of one worker process; autovacuum stays away from the tables."""
    ask("postgres", side, store, "submit", "fill", 0, 0)  # creates the tables
    stores.leave_alone(store)
    if state == "empty":
        stores.analyze(store)
        return _warm(side, store, jobs)
    ask("postgres", side, store, "submit", "fill", jobs, 0)
    if state == "full":
        stores.analyze(store)
    return drain("postgres", side, store, jobs)[0]


def _warm(side: SideName, store: str, jobs: int) -> float:
    with crew("postgres", side, store) as workers:
        (worker,) = workers.children
        workers.start()
        time.sleep(SETTLE)
        ask("postgres", side, store, "submit", "paced", FEW, 50.0)
        finish(workers, FEW)
        # It is halted meanwhile, so that it meets all jobs at once and not the first of them.
        worker.freeze()
        try:
            ask("postgres", side, store, "submit", "fill", jobs, 0)
        finally:
            worker.thaw()
        rate = finish(workers, jobs, done=FEW)
        workers.stop()
        return rate
