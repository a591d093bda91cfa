"""What SIGINT and SIGTERM mean: once, stop in good order; twice, stop at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["on_signals"]


@contextmanager
def on_signals(first: Callable[[int], None], second: Callable[[int], None]) -> Iterator[None]:
    """Call ``first`` on the loop at the first signal, ``second`` right in the handler at every later one."""
    loop = asyncio.get_running_loop()
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        # A plain handler instead of the loop's: the second signal must work even while the loop is blocked.
        nonlocal count
        count += 1
        if count > 1:
            second(number)
        else:
            loop.call_soon_threadsafe(first, number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
