"""Hints between sessions: they may be lost, doubled or late, and only speed depends on them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

__all__ = ["PARTED", "WORKER", "Bus", "Hint", "LocalBus", "Topic"]

WORKER = "worker:"
"""In a hint about settings: the prefix of a name that is the id of a newly registered worker."""
PARTED = f"{WORKER}parted:"
"""The same for a worker that lost its connection to a hub."""


class Topic(StrEnum):
    """What a hint is about."""

    READY = "ready"
    """Jobs became claimable; names are queues."""
    FREED = "freed"
    """Held jobs left their workers; names are queues."""
    ENDED = "ended"
    """Jobs ended; names are job ids."""
    CANCEL = "cancel"
    """A cancel was requested of held jobs; names are job ids."""
    PROGRESS = "progress"
    """Jobs reported progress; names are job ids."""
    ENTRIES = "entries"
    """Runs added entries to their jobs; names are job ids."""
    SETTINGS = "settings"
    """Settings changed; names are their keys. Also: a duty has another holder, or a worker registered."""
    DEADLINE = "deadline"
    """A job that no worker holds expires soon (``core.lifecycle.decision.expires_soon``); there are no names."""
    CHANGED = "changed"
    """Jobs changed in any way, or were given to a worker; names are job ids. ``runtime.writes.hints`` sends these: few
    at a time, and how many it left out. New jobs cause ``READY`` alone, and a deferred job that falls due causes no
    hint: a session that knows the job knows when."""


class Hint(msgspec.Struct, frozen=True):
    """Something happened that a listener may be waiting for."""

    topic: Topic
    names: tuple[str, ...] = ()
    """What it happened to. Empty: it may be anything, so every listener checks. A bus that may have missed hints, or
    would have to carry too many names, delivers such a hint."""
    dropped: int = 0
    """How many more it happened to that are not named; only with ``CHANGED``."""


Listener = Callable[[Hint], None]


class Bus(Protocol):
    """Carries hints to all listeners: in this session, in others of this process, and in other processes.

    An engine with a store that cannot notify may deliver to its own process only. Every listener also polls from time
    to time. ``LocalBus`` serves the listeners of one session.
    """

    def send(self, hint: Hint) -> None:
        """Send the hint to every open session of the store, this one included.

        It never blocks and never fails, and is called from any thread. A closed session may drop the hint. The hint of
        an insert may have gone with its commit: see ``Jobs.insert``.
        """

    def wanted(self, topic: Topic) -> bool:
        """Return whether there may be a listener for this topic. An engine that cannot know returns True."""

    def listen(self, topics: frozenset[Topic], listener: Listener) -> Callable[[], None]:
        """Call ``listener`` on this session's loop for each hint of these topics; the returned function ends that.

        Listeners may be added before the session is opened, and stay when it is closed and opened again.
        """


class LocalBus:
    """The listeners of one session; what an engine's bus delivers into."""

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[frozenset[Topic], Listener]] = {}
        self.topics: frozenset[Topic] = frozenset()
        """The topics with a listener here."""

    def deliver(self, hint: Hint) -> None:
        """Call all listeners for it."""
        for topics, listener in list(self._listeners.values()):
            if hint.topic in topics:
                listener(hint)

    def listen(self, topics: frozenset[Topic], listener: Listener) -> Callable[[], None]:
        """Add a listener; the returned function removes it."""
        key = object()
        self._listeners[key] = (topics, listener)
        self._sum_up()

        def unlisten() -> None:
            self._listeners.pop(key, None)
            self._sum_up()

        return unlisten

    def _sum_up(self) -> None:
        self.topics = frozenset().union(*(topics for topics, _ in self._listeners.values()))
