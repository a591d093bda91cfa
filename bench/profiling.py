"""Where the time goes: set HEADRACE_BENCH_PROFILE to a directory to have the processes of headrace profiled into it."""

from __future__ import annotations

import cProfile
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["profiled"]

VARIABLE = "HEADRACE_BENCH_PROFILE"


@contextmanager
def profiled(name: str) -> Iterator[None]:
    """Profile this thread, if asked for; figures measured under a profile are slower than they are."""
    home = os.environ.get(VARIABLE)
    if not home:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        Path(home).mkdir(parents=True, exist_ok=True)
        profile.dump_stats(Path(home) / f"{name}-{os.getpid()}.prof")
