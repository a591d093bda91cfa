"""Waiting within a request: for so long, and no longer than the hub serves and the client listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from headrace.hub.operation import Ask

__all__ = ["LONGEST", "patiently"]

T = TypeVar("T")

LONGEST = 60.0
"""Seconds that a request may wait."""


async def patiently(ask: Ask, seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of the work; None: time is up, or the hub begins to stop.

    :raises ClientDisconnect: nobody waits any more
    """
    working = asyncio.create_task(work)
    stopping, leaving = asyncio.create_task(ask.hub.draining.wait()), asyncio.create_task(_left(ask.request))
    tasks = (working, stopping, leaving)
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
