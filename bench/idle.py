"""What an idle worker asks of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from bench.children import ask, crew
from bench.plan import LABELS, SideName
from bench.progress import Progress
from bench.stores import Databases

__all__ = ["PRELOAD", "idle", "idle_lines"]

PRELOAD = {"shared_preload_libraries": "pg_stat_statements"}
"""What the server must be started with, to count statements."""
BOUND = 60
SETTLE = 10.0


def idle(stores: Databases, sides: Sequence[SideName], seconds: float) -> tuple[str, dict[SideName, float]]:
    """What was counted, and how many a minute by side; all wait at the same time, each on a database of its own."""
    what = stores.counted()
    progress = Progress(2)
    with ExitStack() as stack:
        made = {}
        progress.step("idle: starting workers")
        for side in sides:
            made[side] = store = stack.enter_context(stores.fresh())
            ask("postgres", side, store, "submit", "fill", 0, 0)
            workers = stack.enter_context(crew("postgres", side, store))
            workers.start()
            stack.callback(workers.stop)
        time.sleep(SETTLE)
        progress.step(f"idle: counting for {seconds:.0f} s")
        before, began = stores.counts(), time.monotonic()
        time.sleep(seconds)
        after, minutes = stores.counts(), (time.monotonic() - began) / 60
        found = {side: (after[made[side]] - before[made[side]]) / minutes for side in sides}
    progress.done()
    return what, found


def idle_lines(what: str, found: dict[SideName, float]) -> Iterator[str]:
    """The counts."""
    yield f"{what} a minute of one idle worker"
    for side, count in found.items():
        mark = " " if side != "headrace" else "✓" if count < BOUND else "✗"
        yield f"  {mark} {LABELS[side]:<16} {count:>8,.0f}{f'   < {BOUND}' if side == 'headrace' else ''}"
