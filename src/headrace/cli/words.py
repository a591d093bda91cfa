"""Small values as words: ids, counts, cut texts."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

__all__ = ["compact", "counted", "cut", "short"]


def short(id: UUID | None) -> str:
    """The end of an id, which is enough to tell it; ids begin with the time, so their beginnings are alike."""
    return "" if id is None else id.hex[-8:]


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def counted(count: int, what: str) -> str:
    """So many of something."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def cut(text: str, limit: int) -> str:
    """The text on one line of at most so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
