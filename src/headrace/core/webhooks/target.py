"""Targets of webhooks in a job, and what each of them was sent so far; small values that are part of the record."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from headrace.core.codec.record import Record
from headrace.errors import ConfigError, shown

__all__ = ["CLAIMS", "EVENTS", "GROUPS", "Notified", "Occasion", "Target", "checked_events", "messages_ahead"]

Occasion = Literal[
    "submitted", "assigned", "accepted", "started", "progress", "retrying", "completed", "failed", "cancelled"
]
"""The events that a webhook reports."""

EVENTS: tuple[Occasion, ...] = get_args(Occasion)

CLAIMS: tuple[Occasion, ...] = ("assigned", "accepted")
"""The events of a claim: only a webhook that names them receives them."""

_ENDS: tuple[Occasion, ...] = ("completed", "failed", "cancelled")

GROUPS: dict[str, tuple[Occasion, ...]] = {
    "status_change": tuple(event for event in EVENTS if event not in ("progress", *CLAIMS)),
    "completion": _ENDS,
    "ended": _ENDS,
}
"""Several events under one name."""


class Target(msgspec.Struct, Record, frozen=True, omit_defaults=True):
    """A webhook that receives messages of a job: a reference to it, and the events it wants."""

    id: str
    """The id of the webhook, ``wh_…``; its URL and its credentials are stored apart."""
    events: tuple[Occasion, ...]
    customer: str | None = None
    """The customer of the webhook; None: the operator."""


class Notified(msgspec.Struct, frozen=True, array_like=True):
    """What one target was sent of a job: how many messages, and which delivery was the last."""

    target: str
    count: int
    last: UUID
    at: datetime
    progress_at: datetime | None = None
    """When it was last sent progress."""


def messages_ahead(events: Iterable[Occasion], *, new: bool = False) -> int:
    """Return how many messages of a live job are expected for a receiver of these events: of its claim, its start and
    its end, and of its submit if it is ``new``. The numbers of retries and of progress reports are unknown: they count
    as one, for a receiver of nothing else."""
    wanted = set(events)
    ahead = (
        len(wanted.intersection(("started", *CLAIMS)))
        + (not wanted.isdisjoint(_ENDS))
        + (new and "submitted" in wanted)
    )
    return ahead or int(not wanted.isdisjoint(("retrying", "progress")))


def checked_events(given: Iterable[object], name: str = "events") -> tuple[Occasion, ...]:
    """Return the events of these names, in their order, each once; ``job.completed`` is ``completed``.

    :raises ConfigError: one is unknown, or there is none
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} must be a sequence of {', '.join((*EVENTS, *GROUPS))}, not {shown(given)}")
    found = set[Occasion]()
    for one in given:
        word = one.removeprefix("job.") if isinstance(one, str) else None
        known = GROUPS.get(word) if word in GROUPS else tuple(event for event in EVENTS if event == word)
        if not known:
            raise ConfigError(f"{name}: there is no event {shown(one)}; known are {', '.join((*EVENTS, *GROUPS))}")
        found.update(known)
    if not found:
        raise ConfigError(f"{name} must not be empty: leave it out for every change of status")
    return tuple(event for event in EVENTS if event in found)
