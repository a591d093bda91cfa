"""Waiting within a request: for so long, and no longer than the client listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.endpoints.asked import Asked

__all__ = ["HungUp", "patiently"]

T = TypeVar("T")


class HungUp(Exception):
    """The client does not listen any more: nobody hears the answer."""


async def patiently(asked: Asked, work: Coroutine[Any, Any, T]) -> T:
    """What comes of the work, which ends by itself in time.

    :raises HungUp: nobody waits for it any more; what the work waited for goes on
    """
    if asked.left is None:
        return await work
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(asked.left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
