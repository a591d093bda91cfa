"""News of one job, and the mark that says how far a reader has come: where it left off, it can go on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec

from headrace.core.entry import BEGIN, Cursor, Entry
from headrace.core.job import History, Job

__all__ = ["Mark", "News", "Place", "happened_since"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WRITTEN = re.compile(r"(\d{1,18})-(\d{1,16})-(\d{1,9})\.(\d{1,18})-(\d{1,9})\.(\d{1,18})", re.ASCII)


class Mark(msgspec.Struct, frozen=True):
    """How much of a job somebody has been told of."""

    rev: int
    at: datetime
    """When the job was last changed, as it was told."""
    log: Cursor = BEGIN
    """The last line of its log."""
    item: Cursor = BEGIN
    """The last item of its stream."""

    def __str__(self) -> str:
        """As text for programs to keep and to give back, not to read."""
        (log, line), (stream, item) = self.log, self.item
        return f"{self.rev}-{(self.at - _EPOCH) // _MICROSECOND}-{log}.{line + 1}-{stream}.{item + 1}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The mark that was written so; None: none was."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return None
        rev, at, log, line, stream, item = map(int, found.groups())
        return cls(rev, _EPOCH + at * _MICROSECOND, (log, line - 1), (stream, item - 1))


class Place(msgspec.Struct, frozen=True):
    """Where a queued job stands in its queue."""

    position: int | None
    """The first is 1; None: there are too many before it to count."""
    estimated_start: datetime | None = None
    """None: nobody can say."""

    def like(self, other: Place) -> bool:
        """Whether it is the same place, whatever is estimated from it."""
        known = self.estimated_start is None, other.estimated_start is None
        return self.position == other.position and known[0] == known[1]


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who follows a job is told at once."""

    job: Job
    """As it is now."""
    before: Job | None
    """As it was told last; the same as ``job``: nothing new of it. None: these are the first news."""
    mark: Mark
    """How far that is, the entries included."""
    history: History = History()
    """Its attempts and the acts on it since the news before, where these may have hidden some; with the first news,
    since the mark that the reader came with."""
    logs: tuple[Entry, ...] = ()
    items: tuple[Entry, ...] = ()
    place: Place | None = None
    """Its place, if that is news."""
    over: bool = False
    """Whether the job has ended, and these are the last news."""


def happened_since(history: History, mark: Mark) -> History:
    """Of a history, what the mark does not know of.

    By time: what happened within the same microsecond as the change that was told last is taken to have been told.
    """
    return History(
        tuple(one for one in history.attempts if one.finished_at > mark.at),
        tuple(one for one in history.events if one.at > mark.at),
    )
