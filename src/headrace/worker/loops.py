"""Run on the worker's loop what a handler asks for elsewhere: a handler in a thread may have a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.errors import SyncInAsync

__all__ = ["on_loop", "wait_on_loop"]

T = TypeVar("T")


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run the work on this loop, whichever loop the caller is on; its result."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def wait_on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], instead: str) -> T:
    """Run the work on this loop, and wait for its result on the thread of a plain handler.

    :raises SyncInAsync: the thread has a running loop, which waiting would stop; ``instead`` is what to await there
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    work.close()
    raise SyncInAsync(f"this thread has a running event loop: use `await {instead}(...)`")
