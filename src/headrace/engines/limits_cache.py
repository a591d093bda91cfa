"""The limits as a session of a store last read them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from headrace.core.limits.settings import Limits, QueueRule, limits_of, queue_rule, told_unreadable

__all__ = ["LimitsCache", "readable_queue"]

_log = logging.getLogger("headrace.limits")


class LimitsCache:
    """The limits at one rev of the settings; a setting that cannot be read is logged once."""

    def __init__(self) -> None:
        self.rev, self.limits = -1, Limits()
        self._told: Mapping[str, str] = {}

    def read(self, rev: int, settings: Iterable[tuple[str, str]]) -> Limits:
        """Return the limits in these settings, which are of this rev."""
        limits = limits_of(settings)
        for key, why in limits.unreadable.items():
            if self._told.get(key) != why:
                _log.warning("%s: %s", *told_unreadable(key, why))
        self.rev, self.limits, self._told = rev, limits, limits.unreadable
        return limits


def readable_queue(document: str | None) -> QueueRule | None:
    """Return the rule in a queue's setting; None: it cannot be read, and another version's stored rule stays."""
    try:
        return queue_rule(document)
    except (msgspec.MsgspecError, ValueError):
        return None
