"""Looks, not clocks: how long something has stayed the same, as seen by one watcher on its own monotonic time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Sighting", "Sightings"]

K = TypeVar("K", bound=Hashable)


class Sighting(NamedTuple):
    """What the looks say of one thing."""

    looks: int
    seconds: float


_NEVER = Sighting(0, 0.0)


class Sightings(Generic[K]):
    """Remembers what was seen in every look since; a gap between looks forgets everything.

    A look lasts from ``before`` (asked) to ``after`` (answered), and what it shows was so at some moment in between.
    So what lasted is counted from the answer of the first look to the question of the last, and a gap from question
    to answer: a look that hung in a frozen store is itself a gap.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._last: float | None = None
        self._since: dict[K, float] = {}
        self._seen: dict[K, Sighting] = {}

    def look(self, keys: Iterable[K], before: float, after: float) -> None:
        """A look saw these; whatever it did not see is forgotten."""
        known = self._since
        if after - (before if self._last is None else self._last) > self._gap:
            known = {}
        self._last = before
        seen, since = self._seen, dict[K, float]()
        self._seen = {}
        for key in keys:
            start = known.get(key)
            if start is None:
                since[key], self._seen[key] = after, Sighting(1, 0.0)
            else:
                since[key], self._seen[key] = start, Sighting(seen[key].looks + 1, before - start)
        self._since = since

    def add(self, keys: Iterable[K], after: float) -> None:
        """The same look went on and saw these as well."""
        for key in keys:
            if key not in self._since:
                self._since[key], self._seen[key] = after, Sighting(1, 0.0)

    def of(self, key: K) -> Sighting:
        """What is known of this one."""
        return self._seen.get(key, _NEVER)
