"""A read of the store that many request at the same time, made once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Calls once for all who call: a call that comes while one is under way gets the result of the next, which begins
    later. So a result is never older than the call, and no two calls are under way at once."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asked: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The result of a call that begins after this one."""
        if self._next is None:
            self._next = asyncio.create_task(self._answer(self._asked))
            self._next.add_done_callback(_heard)
        return await asyncio.shield(self._next)

    async def _answer(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._asked, self._next = self._next, None
        try:
            return await self._ask()
        finally:
            self._asked = None


def _heard(task: asyncio.Task[T]) -> None:
    """Mark the error as seen: it is for those who wait, and that none does any more is no fault."""
    if not task.cancelled():
        task.exception()
