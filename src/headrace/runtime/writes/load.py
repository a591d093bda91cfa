"""What waits to be written, in bytes: how much of it there is, and callbacks for when there is room again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import Overloaded

__all__ = ["Load", "size_at_most"]

_log = logging.getLogger("headrace.batcher")


class Load:
    """What some batchers have to write, together. Above ``most`` a caller that would add to it waits."""

    __slots__ = ("_waiting", "bytes", "most")

    def __init__(self, most: float = math.inf) -> None:
        self.bytes = 0
        """From the moment it was put until it is answered."""
        self.most = most
        self._waiting: set[Callable[[], None]] = set()

    @property
    def full(self) -> bool:
        """Whether to wait with what would add to it."""
        return self.bytes >= self.most

    def keeps(self, then: Callable[[], None]) -> bool:
        """Whether it is full; if so, ``then`` is called, once, when there is room again."""
        if self.bytes < self.most:
            return False
        self._waiting.add(then)
        return True

    @contextmanager
    def taking(self, count: int) -> Iterator[None]:
        """Count so many bytes that came from another machine, which can keep them, until they are written;
        :raises Overloaded: it is full; nothing was stored"""
        if self.full:
            raise Overloaded(f"{self.most:,} bytes and more wait for the store; nothing was stored: send it again")
        self.bytes += count
        try:
            yield
        finally:
            self.left(count)

    def left(self, count: int) -> None:
        """Take off what was answered."""
        self.bytes -= count
        if self._waiting and not self.full:
            waiting, self._waiting = self._waiting, set()
            for call in waiting:
                try:
                    call()
                except Exception:  # a callback that fails must not keep the batcher from writing
                    _log.exception("whoever waited for room could not go on")


def size_at_most(text: str | None) -> int:
    """The bytes of a text in memory or in UTF-8, or more; found without reading the text."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
