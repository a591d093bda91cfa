"""The metrics of a whole store, read at most every few seconds, once for all scrapes at that time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from prometheus_client.metrics_core import Metric as Family

from headrace.client.api.scale import QueueScale
from headrace.client.api.stats import StoreSnapshot
from headrace.contrib.prometheus.alerts import AlertSeries
from headrace.contrib.prometheus.catalogue import gauge
from headrace.contrib.prometheus.scale import scale_families
from headrace.core.query import HISTORY
from headrace.core.stats.alerts.alert import Alert
from headrace.core.stats.metrics import Metrics
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import OTHER
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["MAX_QUEUES", "Figures", "Store", "StoreReader"]


_log = logging.getLogger("headrace.metrics")

_MIN_PAUSE_RATIO = 20
"""Reads of all workers together take at most one part in so many of the time: long queues take long to count."""
_READ_TIMEOUT_SECONDS = 30.0
"""Seconds after which an unfinished read counts as failed."""


class Figures(msgspec.Struct, frozen=True):
    """What was read, and when."""

    snapshot: StoreSnapshot
    scale: Sequence[QueueScale]
    alerts: Sequence[Alert]
    read_at: float
    """Monotonic."""
    took: float
    """Seconds."""


class StoreReader:
    """Reads on the loop on which the App is open, for callers on any thread; no caller waits longer than
    ``patience``."""

    def __init__(self, app: App, every: float, patience: float) -> None:
        self._app, self._every, self._patience = app, every, patience
        self._last: Figures | None = None
        self._failed = False
        self._again_from = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        """When figures that have not come yet were first requested (monotonic)."""

    @property
    def figures(self) -> Figures | None:
        """The last figures; None if nothing was read yet, or the store cannot be read."""
        return self._last if self.up else None

    @property
    def up(self) -> bool | None:
        """Whether the store can be read; None if that is not known yet."""
        asked_at = self._asked_at
        if self._failed or (asked_at is not None and self._now() - asked_at > _READ_TIMEOUT_SECONDS):
            return False
        return None if self._last is None else True

    @property
    def age(self) -> float | None:
        """Seconds since the store was last read."""
        last = self._last
        return None if last is None else max(0.0, self._now() - last.read_at)

    def ask(self) -> None:
        """Have the store read, and wait for it; do not wait where an event loop runs on this thread."""
        if self._now() < self._again_from and self._asked_at is None:
            return
        if (loop := self._app._open_loop()) is None:
            self._failed, self._asked_at = True, None
            return
        self._asked_at = self._now() if self._asked_at is None else self._asked_at
        asked = asyncio.run_coroutine_threadsafe(self.read(), loop)
        if _on_a_loop():
            return  # the figures of this read are for the next call
        try:
            asked.result(2 * self._patience)
        except TimeoutError:  # the loop is blocked
            asked.cancel()

    async def read(self) -> None:
        """Read, unless that was done a moment ago; wait for the read, but not for long."""
        loop = asyncio.get_running_loop()
        if self._reading is not None and (self._reading.done() or self._reading.get_loop() is not loop):
            self._reading = None
        if self._reading is None:
            if self._now() < self._again_from:
                return
            self._reading = loop.create_task(self._read(), name="headrace-metrics")
        await asyncio.wait({self._reading}, timeout=self._patience)

    async def _read(self) -> None:
        began = self._now()
        self._asked_at = began if self._asked_at is None else self._asked_at
        pause = self._every
        try:
            stats = self._app.stats
            found, scale, alerts = await stats.snapshot(), await stats.scale(), await stats.alerts()
            took = self._now() - began
            self._last, self._failed = Figures(found, scale, alerts, self._now(), took), False
            pause = max(pause, _MIN_PAUSE_RATIO * took * max(1, found.alive))
        except Exception as error:  # whatever is wrong with the store, a scrape says so and goes on
            if not self._failed and self._app._open_loop() is not None:  # and not about to be closed
                _log.warning("metrics: the store cannot be read: %s", error)
            self._failed = True
        finally:
            self._again_from, self._asked_at = self._now() + pause, None

    def _now(self) -> float:
        return self._app.host.clock.monotonic()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


MAX_QUEUES = 200
"""Maximum queues with series of their own; all others are ``OTHER``."""
MAX_TASKS = 200
"""Maximum tasks of which it is reported whether they are paused."""

_LIVE_OR_FAILED = [status for status in Status if status not in HISTORY]


class Store:
    """The store of an App."""

    def __init__(self, app: App, reader: StoreReader) -> None:
        self._app, self._reader = app, reader
        self._queues: set[str] = set()
        """The queues reported so far: an empty queue has no jobs, but still exists."""
        self._tasks: set[str] = set()
        """The tasks reported so far."""
        self._alerts = AlertSeries()

    def families(self) -> Iterator[Family]:
        """Yield all metrics of the store, as of the last read."""
        reader = self._reader
        figures = reader.figures
        for name, value in (
            ("headrace_store_up", reader.up),
            ("headrace_store_read_age_seconds", reader.age),
            ("headrace_store_read_seconds", None if figures is None else figures.took),
        ):
            if value is not None:
                yield _filled(name, (((), float(value)),))
        if figures is not None:
            yield from self._families(figures.snapshot)
            yield from scale_families(figures.scale, sorted(self._queues), self._name)
            yield self._alerts.family(figures.alerts)

    def _families(self, found: StoreSnapshot) -> Iterator[Family]:
        now = self._app.host.clock.now()
        declared = {handler.policy.queue for handler in self._app._handlers.values()}
        for queue in sorted({*declared, *found.named}) + [count.queue for count in found.counts]:
            if len(self._queues) < MAX_QUEUES:
                self._queues.add(queue)
        queues = sorted(self._queues)
        jobs = {(queue, status): 0 for queue in queues for status in _LIVE_OR_FAILED}
        for count in found.counts:
            key = self._name(count.queue), count.status
            jobs[key] = jobs.get(key, 0) + count.jobs
        ages = dict.fromkeys(queues, 0.0)
        for queue, since in found.queued_since().items():
            name = self._name(queue)
            ages[name] = max(ages.get(name, 0.0), (now - since).total_seconds())
        by_status = (((queue, status.value), number) for (queue, status), number in jobs.items())
        yield _filled("headrace_queue_jobs", by_status)
        yield _filled("headrace_queue_oldest_seconds", (((queue,), age) for queue, age in ages.items()))
        yield _filled("headrace_queue_paused", (((queue,), queue in found.paused) for queue in queues))
        for task in (*sorted(found.paused_tasks), *sorted(self._app._handlers)):
            if len(self._tasks) < MAX_TASKS and not is_own(task):
                self._tasks.add(task)
        yield _filled("headrace_task_paused", (((task,), task in found.paused_tasks) for task in sorted(self._tasks)))
        yield _filled("headrace_workers", ((("alive",), found.alive), (("silent",), found.silent)))
        yield _filled("headrace_slots", ((("busy",), found.busy), (("free",), found.slots - found.busy)))
        own = dict.fromkeys(_LIVE_OR_FAILED, 0)
        for count in found.own:
            own[count.status] += count.jobs
        yield _filled("headrace_own_jobs", (((status.value,), number) for status, number in own.items()))
        yield _filled("headrace_own_workers", (((), found.own_alive),))
        yield from _six(found.metrics)
        yield _filled("headrace_schedules_late_seconds", (((), found.late(now).total_seconds()),))

    def _name(self, queue: str) -> str:
        return queue if queue in self._queues else OTHER


_BY_WINDOW = {
    "headrace_average_queue_seconds": "average_queue_time",
    "headrace_average_processing_seconds": "average_processing_time",
    "headrace_success_ratio": "success_rate",
    "headrace_retry_ratio": "retry_rate",
    "headrace_utilisation_ratio": "worker_utilisation",
}


def _six(metrics: Metrics) -> Iterator[Family]:
    """Yield the six metrics; a window in which nothing was measured has no sample."""
    yield _filled("headrace_queue_depth", (((), metrics.queue_depth),))
    for name, field in _BY_WINDOW.items():
        values = {window: getattr(one, field) for window, one in metrics.windows.items()}
        yield _filled(name, (((window,), value) for window, value in values.items() if value is not None))


def _filled(name: str, values: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    """A family with a value for each of these labels."""
    family = gauge(name)
    for labels, value in values:
        family.add_metric(labels, value)
    return family
