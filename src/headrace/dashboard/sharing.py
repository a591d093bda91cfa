"""Answers of the store that all viewers share: five open dashboards ask for as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from headrace.runtime.clock import Clock

__all__ = ["Shared"]

T = TypeVar("T")

MOST = 500
"""Answers that are kept at once."""


class Shared:
    """Keeps each answer for a moment. Whoever asks while it is being fetched waits for the same one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of this name, if it is younger than so many seconds; else a new one."""
        now, known = self._clock.monotonic(), self._found.get(key)
        if known is not None and _counts(known, now, seconds):
            # Whoever asked first may go, and its request be cancelled: the answer is for all.
            answer: T = await asyncio.shield(known[1])
            return answer
        future = asyncio.ensure_future(ask())
        self._keep(key, now, future)
        return await asyncio.shield(future)

    def forget(self) -> None:
        """Somebody acted: what was read before, or is being read, is given to those who wait for it, and no more."""
        self._found.clear()

    def _keep(self, key: Hashable, now: float, future: asyncio.Future[Any]) -> None:
        if len(self._found) >= MOST:
            for old in sorted(self._found, key=lambda one: self._found[one][0])[: MOST // 2]:
                del self._found[old]
        future.add_done_callback(lambda one: None if one.cancelled() else one.exception())
        self._found[key] = (now, future)


def _counts(known: tuple[float, asyncio.Future[Any]], now: float, seconds: float) -> bool:
    """Whether an answer is under way, or is there and young enough; an error is no answer for others."""
    at, future = known
    if not future.done():
        return True
    return now - at < seconds and not future.cancelled() and future.exception() is None
