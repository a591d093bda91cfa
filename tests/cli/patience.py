"""Waiting for something that shows no signal: look again and again, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait on the loop until it is true."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)


def until_sync(true: Callable[[], bool], seconds: float = 30.0, what: Callable[[], object] = lambda: "") -> None:
    """Wait on this thread until it is true; ``what`` tells more when it never is."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:g} s {what()}"
        time.sleep(0.02)
