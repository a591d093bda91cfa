"""Reads of the store that all viewers share: five open dashboards cost as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from headrace.runtime.clock import Clock

__all__ = ["WAIT_SECONDS", "SharedReads"]

T = TypeVar("T")

MAX_ENTRIES = 500
"""Maximum results that are kept."""
IDLE_SECONDS = 60.0
"""Seconds after which a result is dropped if no newer one was requested: pages of jobs can be large."""
MIN_AGE_RATIO = 20
"""A result is kept for at least so many times as long as its read took: expensive reads are less frequent, and none of
them keeps a store busy for more than a twentieth of the time."""
WAIT_SECONDS = 0.1
"""Seconds that a page waits for optional content."""


class _Answer:
    """One result, being read or recent, and the previous one."""

    __slots__ = ("at", "before", "future", "until")

    def __init__(self, future: asyncio.Future[Any], before: Any) -> None:
        self.future, self.before = future, before
        self.at = self.until = 0.0

    @property
    def good(self) -> bool:
        """Whether it is there, and no error."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None


class SharedReads:
    """Keeps each result for a moment. Concurrent requests share one read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[Hashable, _Answer] = {}
        self._swept = clock.monotonic()

    async def get(
        self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]], sparing: float = MIN_AGE_RATIO
    ) -> T:
        """Return the result under this key, if it is younger than so many seconds, or than ``sparing`` times the read's
        duration; else read anew."""
        # The first request may be cancelled, but others wait for the same result.
        answer: T = await asyncio.shield(self._asked(key, seconds, ask, sparing).future)
        return answer

    async def soon(
        self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]], patience: float = WAIT_SECONDS
    ) -> T | None:
        """Return the same, if it comes soon; else the previous result, or None. The read goes on for the next
        request."""
        found = self._asked(key, seconds, ask)
        await asyncio.wait({found.future}, timeout=patience)
        if not found.future.done():
            before: T | None = found.before
            return before
        answer: T = found.future.result()
        return answer

    def forget(self, *, wholly: bool = False) -> None:
        """Forget what was read before an action; it may still be shown until the new result comes.

        A read that is under way serves only those who wait for it already. ``wholly``: nothing is kept at all.
        """
        self._found = {key: one for key, one in self._found.items() if one.good and not wholly}
        for one in self._found.values():
            one.until = 0.0

    async def settled(self) -> None:
        """Wait until no read is under way."""
        while pending := [one.future for one in self._found.values() if not one.future.done()]:
            await asyncio.wait(pending)

    def _asked(
        self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[Any]], sparing: float = MIN_AGE_RATIO
    ) -> _Answer:
        began, known = self._clock.monotonic(), self._found.get(key)
        if known is not None and (not known.future.done() or (known.good and began < known.until)):
            return known
        before = known.future.result() if known is not None and known.good else None
        self._sweep(began)
        made = self._found[key] = _Answer(asyncio.ensure_future(ask()), before)

        def note(future: asyncio.Future[Any]) -> None:
            made.at = self._clock.monotonic()
            made.until = made.at + max(seconds, sparing * (made.at - began))
            if not future.cancelled():
                future.exception()  # if no request waits any more, the error would be logged as never retrieved

        made.future.add_done_callback(note)
        if len(self._found) > MAX_ENTRIES:
            for old in sorted(self._found, key=lambda one: self._found[one].at)[: MAX_ENTRIES // 2]:
                if self._found[old].future.done():
                    del self._found[old]
        return made

    def _sweep(self, now: float) -> None:
        """Drop old results, from time to time."""
        if now - self._swept < IDLE_SECONDS / 10:
            return
        self._swept = now
        for key, one in list(self._found.items()):
            if one.future.done() and one.at and now >= max(one.until, one.at + IDLE_SECONDS):
                del self._found[key]
