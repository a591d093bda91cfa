"""What a run adds to its job while it runs: the items of a stream, lines of its log, results of its steps."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal
from uuid import UUID

import msgspec

from headrace.core.codec.record import Record

__all__ = ["BEGIN", "Append", "Cursor", "Entry", "Kept", "Kind", "LogLine", "log_data"]

Cursor = tuple[int, int]
"""An attempt and a number: how far a reader has read."""

BEGIN: Cursor = (0, -1)
"""Before everything."""


class Kind(StrEnum):
    """What an entry is; each kind has its own numbers and is read by itself."""

    ITEM = "item"
    """An item of a stream. Number 0 is no item: it says that this attempt begins the stream again."""
    LOG = "log"
    STEP = "step"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One thing that a run added. Numbers grow within an attempt, so attempt and number together are the order."""

    kind: Kind
    attempt: int
    number: int
    data: str
    """JSON text."""
    at: datetime
    name: str | None = None

    @property
    def cursor(self) -> Cursor:
        """Where reading continues behind it."""
        return (self.attempt, self.number)


class LogLine(msgspec.Struct, Record, frozen=True):
    """One line of a job's log."""

    at: datetime
    attempt: int
    number: int
    level: str
    logger: str
    message: str

    @classmethod
    def of(cls, entry: Entry) -> LogLine:
        """Return the line that an entry holds."""
        return cls(entry.at, entry.attempt, entry.number, *_line(entry.data))


_line = msgspec.json.Decoder(tuple[str, str, str]).decode


def log_data(level: str, logger: str, message: str) -> str:
    """Return the data of an entry for a line."""
    return msgspec.json.encode((level, logger, message)).decode()


class Append(msgspec.Struct, frozen=True):
    """Entries of one job, and the owner that fences them."""

    job: UUID
    worker: UUID
    epoch: int
    entries: tuple[Entry, ...]


Kept = Literal["kept", "stale", "busy"]
"""An engine's reply to an append: it is durable; the job has another owner (drop it); it is locked (try again)."""
