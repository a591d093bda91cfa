"""Waiting for something that shows no signal: look again and again, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def until_sync(true: Callable[[], bool], seconds: float = 60.0, what: Callable[[], object] = lambda: "") -> None:
    """Wait on this thread until it is true; ``what`` tells more when it never is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s {what()}"
        time.sleep(0.02)
