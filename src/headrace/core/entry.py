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
"""An attempt and a number: how far somebody has read."""

BEGIN: Cursor = (0, -1)
"""Before everything."""


class Kind(StrEnum):
    """What an entry is; those of each kind are numbered and read by themselves."""

    ITEM = "item"
    """Of a stream. Number 0 is no item: it says that this attempt begins the stream anew."""
    LOG = "log"
    STEP = "step"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One thing a run added. Numbers grow within an attempt, so attempt and number together are the order."""

    kind: Kind
    attempt: int
    number: int
    data: str
    """JSON text."""
    at: datetime
    name: str | None = None

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on behind it."""
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
        """The line that an entry holds."""
        return cls(entry.at, entry.attempt, entry.number, *_line(entry.data))


_line = msgspec.json.Decoder(tuple[str, str, str]).decode


def log_data(level: str, logger: str, message: str) -> str:
    """What an entry holds of a line."""
    return msgspec.json.encode((level, logger, message)).decode()


class Append(msgspec.Struct, frozen=True):
    """Entries of one job, and for which owner they speak."""

    job: UUID
    worker: UUID
    epoch: int
    entries: tuple[Entry, ...]


Kept = Literal["kept", "stale", "busy"]
"""An engine's answer to an append: it is durable; the job has another owner, so drop it; a transaction that is still
open has the job, so try again."""
