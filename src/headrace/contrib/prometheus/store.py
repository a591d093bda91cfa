"""What a scrape tells of the whole store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric as Family

from headrace.client.standing import Standing
from headrace.contrib.prometheus.catalogue import gauge
from headrace.contrib.prometheus.store_reader import StoreReader
from headrace.core.query import HISTORY
from headrace.core.rollup import OTHER
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["MOST_QUEUES", "Store"]

MOST_QUEUES = 200
"""How many queues are told apart; all others are ``OTHER``."""

_TOLD = [status for status in Status if status not in HISTORY]


class Store:
    """The store of an App."""

    def __init__(self, app: App, reader: StoreReader) -> None:
        self._app, self._reader = app, reader
        self._queues: set[str] = set()
        """Those that were told of: an empty queue has no jobs, and is not gone."""

    def families(self) -> Iterator[Family]:
        """All metrics of the store, as of the last read."""
        reader = self._reader
        figures = reader.figures
        for name, value in (
            ("headrace_store_up", reader.up),
            ("headrace_store_read_age_seconds", reader.age),
            ("headrace_store_read_seconds", None if figures is None else figures.took),
        ):
            if value is not None:
                yield _one(name, float(value))
        if figures is not None:
            yield from self._standing(figures.standing)

    def _standing(self, standing: Standing) -> Iterator[Family]:
        now = self._app.host.clock.now()
        own = {handler.policy.queue for handler in self._app.handlers.values()}
        for queue in sorted({*own, *standing.named}) + [count.queue for count in standing.counts]:
            if len(self._queues) < MOST_QUEUES:
                self._queues.add(queue)
        jobs = {(queue, status): 0 for queue in sorted(self._queues) for status in _TOLD}
        for count in standing.counts:
            key = self._name(count.queue), count.status
            jobs[key] = jobs.get(key, 0) + count.jobs
        ages = dict.fromkeys(sorted(self._queues), 0.0)
        for queue, since in standing.queued_since().items():
            name = self._name(queue)
            ages[name] = max(ages.get(name, 0.0), (now - since).total_seconds())
        family = gauge("headrace_queue_jobs")
        for (queue, status), number in jobs.items():
            family.add_metric((queue, status.value), number)
        yield family
        family = gauge("headrace_queue_oldest_seconds")
        for queue, age in ages.items():
            family.add_metric((queue,), age)
        yield family
        family = gauge("headrace_queue_paused")
        for queue in sorted(self._queues):
            family.add_metric((queue,), queue in standing.paused)
        yield family
        family = gauge("headrace_workers")
        for state, workers in (("alive", standing.alive), ("silent", standing.silent)):
            family.add_metric((state,), workers)
        yield family
        family = gauge("headrace_slots")
        for state, slots in (("busy", standing.busy), ("free", standing.slots - standing.busy)):
            family.add_metric((state,), slots)
        yield family
        yield _one("headrace_schedules_late_seconds", standing.late(now).total_seconds())

    def _name(self, queue: str) -> str:
        return queue if queue in self._queues else OTHER


def _one(name: str, value: float) -> Family:
    family = gauge(name)
    family.add_metric((), value)
    return family
