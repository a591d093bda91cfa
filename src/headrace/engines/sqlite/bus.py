"""Hints between the processes that share a file (for now: within this session only)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.bus import Hint, LocalBus, Topic
from headrace.host import Host


class SocketBus:
    """Carries hints."""

    def __init__(self, path: Path, host: Host) -> None:
        self._local = LocalBus()

    def open(self) -> None:
        """Listen."""

    def close(self) -> None:
        """Stop."""

    def send(self, hint: Hint) -> None:
        """Pass it on."""
        self._local.deliver(hint)

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        """Add a listener."""
        return self._local.listen(topics, listener)
