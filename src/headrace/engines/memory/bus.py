"""Hints between the sessions of one memory store, each on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from headrace.engine import Hint, LocalBus, Topic

__all__ = ["MemoryBus", "Sessions"]


class Sessions:
    """The buses of all open sessions of one store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.buses: set[MemoryBus] = set()


class MemoryBus:
    """Delivers a hint to every open session of the store."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None

    def connect(self) -> None:
        """Take part, on the running loop."""
        self._loop = asyncio.get_running_loop()
        with self._sessions.lock:
            self._sessions.buses.add(self)

    def disconnect(self) -> None:
        """Stop taking part."""
        with self._sessions.lock:
            self._sessions.buses.discard(self)

    def send(self, hint: Hint) -> None:
        with self._sessions.lock:
            buses = list(self._sessions.buses)
        for bus in buses:
            bus._receive(hint)

    def wanted(self, topic: Topic) -> bool:
        with self._sessions.lock:
            return any(topic in bus._local.topics for bus in self._sessions.buses)

    def _receive(self, hint: Hint) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._local.deliver, hint)
        except RuntimeError:  # its loop is closed: it has no listeners any more
            pass

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        return self._local.listen(topics, listener)
