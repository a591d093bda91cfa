"""A question to the store that many ask at the same time, and that is put once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Asks on behalf of all who call: whoever calls while it is asked is answered by the next time, which begins later.

    So an answer is never older than the call, and however many call, no two questions are under way at once.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asked: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer, asked for after this was called."""
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
    """What went wrong is for those who wait; that none of them does any more is no fault."""
    if not task.cancelled():
        task.exception()
