"""The entries of a memory store: what runs added to their jobs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from uuid import UUID

from headrace.core.entry import Cursor, Entry, Kind

__all__ = ["KeptEntries"]


def _cursor(entry: Entry) -> Cursor:
    return entry.cursor


class KeptEntries:
    """Entries by job and kind, in order of attempt and number."""

    def __init__(self) -> None:
        self._kept: dict[UUID, dict[Kind, list[Entry]]] = {}

    def add(self, job: UUID, entries: Iterable[Entry]) -> None:
        """Store the entries that are not stored yet."""
        for entry in entries:
            kept = self._kept.setdefault(job, {}).setdefault(entry.kind, [])
            place = bisect_left(kept, entry.cursor, key=_cursor)
            if place == len(kept) or kept[place].cursor != entry.cursor:
                kept.insert(place, entry)

    def tail(self, job: UUID, kind: Kind, after: Cursor, limit: int, newest: bool) -> list[Entry]:
        """The first, or the last, behind the cursor."""
        kept = self._kept.get(job, {}).get(kind, [])
        behind = kept[bisect_right(kept, after, key=_cursor) :]
        return behind[max(0, len(behind) - limit) :] if newest else behind[:limit]

    def forget(self, job: UUID) -> None:
        """Forget the entries of a job that is gone."""
        self._kept.pop(job, None)
