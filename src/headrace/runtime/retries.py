"""Pauses between tries: each is longer than the one before it, up to a maximum."""

from __future__ import annotations

import asyncio
import math

from headrace.runtime.host import Host

__all__ = ["Pauses"]


class Pauses:
    """The pauses of one mechanism, all in seconds."""

    __slots__ = ("_factor", "_first", "_host", "_longest", "_spread", "_until", "seconds")

    def __init__(
        self,
        host: Host,
        first: float,
        longest: float,
        *,
        factor: float = 2.0,
        spread: tuple[float, float] = (1.0, 1.0),
        timeout: float | None = None,
    ) -> None:
        """``spread``: chance multiplies each pause by a number between these; ``timeout``: when ``sleep`` gives up."""
        self._host, self._first, self._longest, self._factor, self._spread = host, first, longest, factor, spread
        self._until = math.inf if timeout is None else host.clock.monotonic() + timeout
        self.seconds = first
        """The next pause, before chance."""

    @property
    def is_first(self) -> bool:
        """Whether no pause was made since the beginning, or since the last reset."""
        return self.seconds == self._first

    def reset(self) -> None:
        """Begin with the first pause again."""
        self.seconds = self._first

    def grow(self) -> None:
        """Make the next pause longer."""
        self.seconds = min(self.seconds * self._factor, self._longest)

    def next(self) -> float:
        """The seconds to pause now; the next pause is longer."""
        (low, high), seconds = self._spread, self.seconds
        self.grow()
        return seconds * (low if low == high else low + self._host.dice.chance() * (high - low))

    async def sleep(self) -> bool:
        """Sleep for the next pause; False, at once, if the time is over."""
        if self._host.clock.monotonic() > self._until:
            return False
        await self._host.sleep(self.next())
        return True

    async def wait(self, event: asyncio.Event) -> bool:
        """Wait for the event, at most for the next pause; whether it happened."""
        return await self._host.wait(event, self.next())
