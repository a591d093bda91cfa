"""``app.queues``: list queues, pause and resume them, and change their settings while workers run."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from urllib.parse import quote, unquote

import msgspec

from headrace.client.api.limit_settings import RESUMED, RuleNoun, checked_queue, given, paused_by
from headrace.core.codec.record import Record
from headrace.core.limits.settings import limits_of
from headrace.core.query import Page
from headrace.core.status import HELD, Status
from headrace.errors import ConfigError

__all__ = ["QUEUE_CURSOR", "QueueInfo", "QueuesApi", "page_of_queues", "with_idle"]


class QueueInfo(msgspec.Struct, Record, frozen=True):
    """A queue: its settings, and its jobs counted by status."""

    name: str
    priority: int
    paused: bool
    counts: dict[Status, int]
    """The user's jobs."""
    oldest: datetime | None
    """When its oldest queued job of the user's became ``queued``."""
    max_concurrency: int | None = None
    rates: tuple[str, ...] = ()
    paused_by: str | None = None
    paused_at: datetime | None = None
    by_customer: bool = False
    """Whether jobs of each customer stand in lines of their own."""
    unreadable: str | None = None
    """Why this version cannot read the setting, if so; its workers get no job of the queue then."""
    own_counts: dict[Status, int] = {}
    """Headrace's own jobs in it, such as deliveries of webhooks."""
    own_oldest: datetime | None = None
    """When the oldest queued one of those became ``queued``."""

    @property
    def depth(self) -> int:
        """All queued jobs in it, headrace's own as well."""
        return self.counts.get(Status.QUEUED, 0) + self.own_counts.get(Status.QUEUED, 0)

    @property
    def held(self) -> int:
        """The user's jobs of it that workers have."""
        return sum(self.counts.get(status, 0) for status in HELD)

    @property
    def running(self) -> int:
        """All jobs of it that run."""
        return self.counts.get(Status.RUNNING, 0) + self.own_counts.get(Status.RUNNING, 0)

    @property
    def waiting_since(self) -> datetime | None:
        """When the oldest queued job of all became ``queued``."""
        return min((at for at in (self.oldest, self.own_oldest) if at is not None), default=None)


class QueuesApi(RuleNoun):
    """The queues of the store; ``app.queue`` declares one in code."""

    _kind = "queue"

    async def list(self, *, history: bool = True) -> builtins.list[QueueInfo]:
        """Every queue that has jobs or settings, in the order in which workers serve them. ``history``: count also
        completed and cancelled jobs; without them it is cheap, however many there are."""
        engine, now = self._engine, self._host.clock.now()
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings("queue:"))
        counts: dict[tuple[str, bool], dict[Status, int]] = {}
        oldest: dict[tuple[str, bool], datetime] = {}
        for count in await engine.records.count(now, history=history):
            counts.setdefault((count.queue, count.own), {})[count.status] = count.jobs
            if count.status is Status.QUEUED and count.oldest is not None:
                oldest[count.queue, count.own] = count.oldest
        infos = [
            QueueInfo(
                name=name,
                counts=counts.get((name, False), {}),
                oldest=oldest.get((name, False)),
                own_counts=counts.get((name, True), {}),
                own_oldest=oldest.get((name, True)),
                unreadable=limits.unreadable.get(f"queue:{name}"),
                **msgspec.structs.asdict(limits.queue(name)),
            )
            for name in {*limits.queues, *(queue for queue, _ in counts)}
        ]
        return sorted(infos, key=_served)

    async def pause(self, name: str, *, by: str | None = None) -> None:
        """Pause a queue: workers start none of its jobs, running ones go on. ``explain`` names who paused it."""
        await self._edit(name, paused_by(by, self._host.clock.now()), "pause", by, {})

    async def resume(self, name: str, *, by: str | None = None) -> None:
        """Resume a paused queue."""
        said = {**RESUMED, "paused": False}  # the setting stays: a queue that has one is listed
        await self._edit(name, said, "resume", by, {})

    async def set(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
        by_customer: bool | None = None,
        by: str | None = None,
    ) -> None:
        """Change a queue while workers run: priority (default 0, higher is served first), concurrency limit, rate
        limits, and whether each customer has a subqueue of its own. An argument left out stays as it is."""
        said = given(priority=priority, max_concurrency=max_concurrency, rates=rates, by_customer=by_customer)
        await self._edit(name, checked_queue(said), "set", by)


def with_idle(found: Sequence[QueueInfo], names: Iterable[str]) -> list[QueueInfo]:
    """Return the queues, and those of these names that have neither jobs nor settings, in the order of workers."""
    idle = {*names} - {one.name for one in found}
    return sorted([*found, *(QueueInfo(name, 0, False, {}, None) for name in idle)], key=_served)


def _served(queue: QueueInfo) -> tuple[int, str]:
    return -queue.priority, queue.name


QUEUE_CURSOR = "^(-?[0-9]{1,18}):([!-~]+)$"
"""The form of a cursor: the priority and the name of the last queue of a page."""


def page_of_queues(found: Sequence[QueueInfo], limit: int, cursor: str | None = None) -> Page[QueueInfo]:
    """A page of the queues, in the order workers serve them: any submit may name new ones;
    :raises ConfigError: the cursor is not one of an earlier page"""
    if cursor is not None:
        match = re.fullmatch(QUEUE_CURSOR, cursor)
        if match is None:
            raise ConfigError(f"not a cursor of an earlier page: {cursor!r:.80}")
        last = (-int(match[1]), unquote(match[2]))
        found = [one for one in found if _served(one) > last]
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page(items, f"{items[-1].priority}:{quote(items[-1].name, safe='')}" if more else None)
