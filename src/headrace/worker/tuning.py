"""What a process that does nothing but work sets for itself; never done to a process that belongs to somebody else."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
from collections.abc import Callable

__all__ = ["fast_loop", "tune_process"]


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop of a worker process: uvloop where it is installed, else Python's own."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def tune_process() -> None:
    """Fit the interpreter to a worker: short-lived objects by the thousand, and a store's thread that wants its turn.

    What was loaded so far is left out of garbage collection, which then looks less often at what is young: measured,
    the defaults cost a busy worker nearly half its time. The switch interval is how long a thread that comes back from
    the database waits for the interpreter while handlers compute.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.setswitchinterval(0.0005)
