"""``app.queues``: queues as the store has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from headrace.core.codec.record import Record
from headrace.core.limits.settings import limits_of
from headrace.core.query import Page
from headrace.core.status import Status
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["QUEUE_CURSOR", "QueueInfo", "page_of_queues", "queues"]


class QueueInfo(msgspec.Struct, Record, frozen=True):
    """A queue: its settings, and its jobs counted by status."""

    name: str
    priority: int
    paused: bool
    counts: dict[Status, int]
    oldest: datetime | None
    """When its oldest queued job became ``queued``."""
    max_concurrency: int | None = None
    rates: tuple[str, ...] = ()
    paused_by: str | None = None
    paused_at: datetime | None = None
    by_customer: bool = False
    """Whether jobs of each customer stand in lines of their own."""
    unreadable: str | None = None
    """Why this version cannot read the setting, if so; its workers get no job of the queue then."""


async def queues(session: Session, *, history: bool = True) -> list[QueueInfo]:
    """Every queue that has jobs or settings, in the order workers serve them; ``history``: count also what is over."""
    engine, now = session.engine, session.host.clock.now()
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings("queue:"))
    counts: dict[str, dict[Status, int]] = {}
    oldest: dict[str, datetime] = {}
    for count in await engine.records.count(now, history=history):
        counts.setdefault(count.queue, {})[count.status] = count.jobs
        if count.status is Status.QUEUED and count.oldest is not None:
            oldest[count.queue] = count.oldest
    infos = []
    for name in {*limits.queues, *counts}:
        rule = limits.queue(name)
        infos.append(
            QueueInfo(
                name,
                rule.priority,
                rule.paused,
                counts.get(name, {}),
                oldest.get(name),
                rule.max_concurrency,
                rule.rates,
                rule.paused_by,
                rule.paused_at,
                rule.by_customer,
                limits.unreadable.get(f"queue:{name}"),
            )
        )
    return sorted(infos, key=_served)


def _served(queue: QueueInfo) -> tuple[int, str]:
    return -queue.priority, queue.name


QUEUE_CURSOR = "^(-?[0-9]{1,18}):([!-~]+)$"
"""What a cursor looks like: the priority and the name of the last queue of a page."""


def page_of_queues(found: Sequence[QueueInfo], limit: int, cursor: str | None = None) -> Page[QueueInfo]:
    """Some of the queues, in the order workers serve them: anybody who submits may name new ones.

    :raises ConfigError: the cursor is not one of an earlier page
    """
    if cursor is not None:
        match = re.fullmatch(QUEUE_CURSOR, cursor)
        if match is None:
            raise ConfigError(f"not a cursor of an earlier page: {cursor!r:.80}")
        last = (-int(match[1]), unquote(match[2]))
        found = [one for one in found if _served(one) > last]
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page(items, f"{items[-1].priority}:{quote(items[-1].name, safe='')}" if more else None)
