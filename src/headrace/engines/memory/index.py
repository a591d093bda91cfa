"""A sorted collection of job ids: what the store looks things up by."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any
from uuid import UUID

__all__ = ["Index", "Sort"]

Sort = tuple[Any, ...]
"""What an index is sorted by; ends in the order number, so no two entries are equal before their ids are compared."""


class Index:
    """Job ids in the order of their sort keys, each key once."""

    def __init__(self) -> None:
        self._entries: list[tuple[Sort, UUID]] = []
        # Entries before this one were removed. Lines are emptied from the front, and moving a long list for every
        # job taken would make draining it quadratic.
        self._front = 0

    def __len__(self) -> int:
        return len(self._entries) - self._front

    def __iter__(self) -> Iterator[tuple[Sort, UUID]]:
        for at in range(self._front, len(self._entries)):
            yield self._entries[at]

    def add(self, sort: Sort, id: UUID) -> None:
        """Put an id in its place."""
        insort(self._entries, (sort, id), lo=self._front)

    def remove(self, sort: Sort, id: UUID) -> None:
        """Take an id out that was added with this key."""
        at = bisect_left(self._entries, (sort, id), lo=self._front)
        if at > self._front:
            del self._entries[at]
            return
        self._front += 1
        if self._front * 2 > len(self._entries):
            del self._entries[: self._front]
            self._front = 0

    def first(self) -> Sort | None:
        """The smallest key."""
        return self._entries[self._front][0] if self else None

    def before(self, sort: Sort) -> Iterator[UUID]:
        """The ids whose key is smaller, in order."""
        for at in range(self._front, bisect_left(self._entries, sort, lo=self._front, key=lambda entry: entry[0])):
            yield self._entries[at][1]

    def last(self) -> Iterator[tuple[Sort, UUID]]:
        """From the greatest key down."""
        for at in range(len(self._entries) - 1, self._front - 1, -1):
            yield self._entries[at]

    def upto(self, bound: Any) -> Iterator[UUID]:
        """The ids whose key begins with something no greater than the bound, in order."""
        for sort, id in self:
            if sort[0] > bound:
                return
            yield id
