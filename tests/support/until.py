"""Waiting for something to become true, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


async def until(check: Callable[[], Any | Awaitable[Any]], *, within: float = 45.0, what: str = "") -> None:
    """Return once ``check``, which may be async, gives a true value; fail loudly when time is up.

    A check that takes long is made less often: what is waited for needs the processor, too.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        began = loop.time()
        found = check()
        if await found if inspect.isawaitable(found) else found:
            return
        assert loop.time() < deadline, f"not within {within} s: {what or inspect.getsource(check).strip()}"
        await asyncio.sleep(min(max(2 * (loop.time() - began), 0.01), 0.3))
