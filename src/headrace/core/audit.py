"""The audit of settings: who changed a queue, a limit, a rate, a schedule or a key, and when."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from headrace.core.attempt import Event
from headrace.core.codec.record import Record
from headrace.core.validation import checked_note

__all__ = ["Audited", "act"]


class Audited(msgspec.Struct, Record, frozen=True, kw_only=True):
    """An action of a person or program on a setting."""

    key: str
    """What was changed: ``queue:NAME``, ``limit:TASK``, ``rate:NAME``, ``schedule:NAME`` or ``key:NAME``; ``drain:ID``
    is a worker that was requested to leave, ``task:NAME`` a task of which a job was submitted by hand."""
    verb: str
    at: datetime
    by: str | None = None
    details: dict[str, Any] | None = None
    """What the action set."""

    @classmethod
    def of(cls, key: str, event: Event) -> Audited:
        """The event of a setting."""
        return cls(key=key, verb=event.verb, at=event.at, by=event.by, details=event.details)


def act(verb: str, at: datetime, by: str | None, details: dict[str, Any] | None = None) -> Event:
    """Return the entry for an action on a setting; :raises ConfigError: ``by`` is too long"""
    return Event(verb, at, checked_note(by, "by"), details=details or None)
