"""Answers of the store that all viewers share: five open dashboards ask for as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from headrace.runtime.clock import Clock

__all__ = ["WAIT_SECONDS", "SharedReads"]

T = TypeVar("T")

MAX_ENTRIES = 500
"""Answers that are kept at once."""
IDLE_SECONDS = 60.0
"""Seconds after which an answer is not kept any more, if nobody asked for a newer one: pages of jobs can be large."""
MIN_AGE_RATIO = 20
"""An answer is kept for at least so many times as long as it took: what is dear is asked for less often, and none of
them keeps a store busy for more than a twentieth of the time."""
WAIT_SECONDS = 0.1
"""Seconds that a page waits for what it can do without."""


class _Answer:
    """One answer: under way, or there since a moment; and the one before it."""

    __slots__ = ("at", "before", "future", "until")

    def __init__(self, future: asyncio.Future[Any], before: Any) -> None:
        self.future, self.before = future, before
        self.at = self.until = 0.0

    @property
    def good(self) -> bool:
        """Whether it is there, and no error."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None


class SharedReads:
    """Keeps each answer for a moment. Whoever asks while it is being fetched waits for the same one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[Hashable, _Answer] = {}
        self._swept = clock.monotonic()

    async def get(
        self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]], sparing: float = MIN_AGE_RATIO
    ) -> T:
        """The answer of this name, if it is younger than so many seconds, or than ``sparing`` times what it took; else
        a new one."""
        # Whoever asked first may go, and its request be cancelled: the answer is for all.
        answer: T = await asyncio.shield(self._asked(key, seconds, ask, sparing).future)
        return answer

    async def soon(
        self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]], patience: float = WAIT_SECONDS
    ) -> T | None:
        """The same, if it comes soon; else the answer before it, or None if there is none. The new one is fetched all
        the same, for whoever asks next."""
        found = self._asked(key, seconds, ask)
        await asyncio.wait({found.future}, timeout=patience)
        if not found.future.done():
            before: T | None = found.before
            return before
        answer: T = found.future.result()
        return answer

    def forget(self, *, wholly: bool = False) -> None:
        """Somebody acted: what was read before counts no more, but may be shown until what is new comes.

        What is being read is given to those who wait for it, and to nobody else. ``wholly``: nothing is kept at all.
        """
        self._found = {key: one for key, one in self._found.items() if one.good and not wholly}
        for one in self._found.values():
            one.until = 0.0

    async def settled(self) -> None:
        """Wait until nothing is being fetched."""
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
                future.exception()  # whoever asked may have gone: then it is nobody's

        made.future.add_done_callback(note)
        if len(self._found) > MAX_ENTRIES:
            for old in sorted(self._found, key=lambda one: self._found[one].at)[: MAX_ENTRIES // 2]:
                if self._found[old].future.done():
                    del self._found[old]
        return made

    def _sweep(self, now: float) -> None:
        """Drop what is old, from time to time."""
        if now - self._swept < IDLE_SECONDS / 10:
            return
        self._swept = now
        for key, one in list(self._found.items()):
            if one.future.done() and one.at and now >= max(one.until, one.at + IDLE_SECONDS):
                del self._found[key]
