"""Reads what alerts are decided from: workers, what waits, settings, and what was finished in the last hours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.client.api.tasks import live_tasks
from headrace.client.api.workers import workers
from headrace.core.limits.settings import limits_of
from headrace.core.query import Filter
from headrace.core.stats.alerts.alert import Alert
from headrace.core.stats.alerts.failures import FAILURE_SPAN, failure_alerts
from headrace.core.stats.alerts.quarantine import quarantine_alerts
from headrace.core.stats.alerts.queues import full_limits, queue_alerts
from headrace.core.stats.alerts.settings import setting_alerts
from headrace.core.stats.alerts.workers import (
    unmet,
    unserved_later,
    unserved_queues,
    unserved_tasks,
    worker_alerts,
)
from headrace.core.stats.rollup import DEPTH, SLOTS
from headrace.core.status import LIVE
from headrace.runtime.writes.webhooks import SUBSCRIPTIONS, read_webhooks

if TYPE_CHECKING:
    from headrace.client.session import Session
    from headrace.engine import Engine, WorkerRow

__all__ = ["alerts"]

_MAX_COUNTED_SUSPECTS = 100


async def alerts(session: Session, rows: Sequence[WorkerRow] | None = None) -> list[Alert]:
    """Every alert, failures first; ``rows``: the workers, if they are known."""
    engine, now = session.engine, session.host.clock.now()
    rows = await workers(session) if rows is None else rows
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    loads = await engine.records.load(now)
    counts = await engine.records.count(now, history=False)
    since, until = now - 2 * FAILURE_SPAN, now + timedelta(minutes=1)  # a worker's clock may be ahead of this one
    finished = [row for row in await engine.rollups.read(since, until) if row.task not in (SLOTS, DEPTH)]
    held = (await engine.records.usage()).held
    suspects = await engine.records.find(Filter(status=LIVE, suspect=True), now, _MAX_COUNTED_SUSPECTS)
    queued = {load.task for load in loads.loads if load.queued}
    found = [
        *worker_alerts(rows, now),
        *unserved_tasks(rows, loads.loads, now),
        *unserved_later(await _later(engine, rows, queued, now)),
        *unmet(rows, loads.loads),
        *unserved_queues(rows, counts, limits),
        *queue_alerts(counts, loads, limits, finished, now),
        *full_limits(counts, loads, limits, held),
        *failure_alerts(finished, now),
        *quarantine_alerts(suspects.items, more=suspects.cursor is not None),
        *setting_alerts(limits, read_webhooks(await engine.documents.settings(SUBSCRIPTIONS))),
    ]
    return sorted(found, key=lambda one: one.level != "fail")


async def _later(engine: Engine, rows: Iterable[WorkerRow], queued: set[str], now: datetime) -> list[str]:
    """The tasks that no living worker has, of which no job could run now, but some later; none if nobody lives."""
    able = [row.info for row in rows if row.takes]
    if not able:
        return []
    profiles = (await engine.documents.profiles()).profiles
    run = {one.task for one in profiles if any(info.runs(one.task, one.requires) for info in able)}
    return await live_tasks(engine, {one.task for one in profiles} - run - queued, now)
