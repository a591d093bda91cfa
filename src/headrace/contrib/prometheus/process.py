"""Metrics of a process about its own workers, from totals that they keep anyway: they add no cost per job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric as Family

from headrace.contrib.prometheus.catalogue import counter, gauge, histogram
from headrace.core.stats.histogram import BOUNDS, Histogram
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import Totals
from headrace.core.status import Outcome
from headrace.core.webhooks.delivery import TASK
from headrace.runtime.totals import FinishTotals, Pair
from headrace.runtime.writes.omissions import COUNTED
from headrace.worker.worker import Worker

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["BUCKETS", "Process"]

BUCKETS = (*(8 * decade + step for decade in range(6) for step in (0, 3, 5)), 48, 56, 64)
"""The bucket ends that are exported, of those that workers count in: three to a decade from a millisecond to a quarter
of an hour, and two wide ones beyond. All of them would be three times as many series."""

_ENDS = tuple(str(float(f"{BOUNDS[place]:.3g}")) for place in BUCKETS)


class Process:
    """The workers that an App has made in this process, stopped ones included, since counters must not fall."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._sums: list[FinishTotals] = []
        app.workers.local.on_each(self._follow)

    def _follow(self, worker: Worker) -> None:
        self.follow(worker.sums)

    def follow(self, sums: FinishTotals) -> None:
        """Count these, too: jobs finished by others that this process represents."""
        sums.follow()
        self._sums.append(sums)

    def families(self) -> Iterator[Family]:
        """All metrics of the process."""
        workers = self._app.workers.local.all()
        # The tasks of these workers in their own queues are reported from the first, with 0: a count that appears with
        # its first job looks, to Prometheus, as if nothing had been added.
        pairs = {(one.name, one.policy.queue) for worker in workers for one in worker.handlers.values()}
        yield from self._jobs(pairs)
        if at_work := [worker for worker in workers if worker.stats.state != "stopped"]:
            yield from _workers(at_work)
            yield _running(at_work, pairs)

    def _jobs(self, pairs: Iterable[Pair]) -> Iterator[Family]:
        attempts, retries = counter("headrace_attempts"), counter("headrace_retries")
        dead_letters, stale = counter("headrace_dead_letters"), counter("headrace_worker_stale")
        waiting, running = histogram("headrace_waiting_seconds"), histogram("headrace_running_seconds")
        totals, dead = self._ever()
        for pair in sorted(pair for pair in {*totals, *pairs} if not is_own(pair[0])):
            one = totals.get(pair) or Totals()
            for outcome in Outcome:
                attempts.add_metric([*pair, outcome.value], getattr(one, outcome.value))
            retries.add_metric(pair, one.retried)
            dead_letters.add_metric(pair, dead.get(pair, 0))
            for family, measured in ((waiting, one.waited), (running, one.ran)):
                if measured.counts:
                    family.add_metric(pair, _cumulated(measured), measured.seconds)
        if self._sums:
            stale.add_metric((), sum(sums.stale for sums in self._sums))
        left_out = counter("headrace_left_out")
        for task, jobs in sorted({TASK: 0, **COUNTED}.items()):
            left_out.add_metric((task,), jobs)
        yield from (attempts, retries, dead_letters, waiting, running, stale, left_out)

    def _ever(self) -> tuple[dict[Pair, Totals], dict[Pair, int]]:
        totals, dead = dict[Pair, Totals](), dict[Pair, int]()
        for sums in self._sums:
            counted, died = sums.ever()
            for pair, one in counted.items():
                totals.setdefault(pair, Totals()).merge(one)
            for pair, jobs in died.items():
                dead[pair] = dead.get(pair, 0) + jobs
        return totals, dead


def _cumulated(measured: Histogram) -> list[tuple[str, float]]:
    """Return how many took no longer than each of ``BUCKETS``, cumulated as Prometheus expects."""
    places, count, found = sorted(measured.counts.items(), reverse=True), 0, list[tuple[str, float]]()
    for last, end in zip(BUCKETS, _ENDS, strict=True):
        while places and places[-1][0] <= last:
            count += places.pop()[1]
        found.append((end, count))
    return [*found, ("+Inf", count + sum(rest for _, rest in places))]


def _running(workers: Iterable[Worker], pairs: Iterable[Pair]) -> Family:
    running = dict.fromkeys(pairs, 0)
    for worker in workers:
        for job in worker.running():
            pair = job.task, job.queue
            running[pair] = running.get(pair, 0) + 1
    family = gauge("headrace_jobs_running")
    for pair, jobs in sorted(running.items()):
        family.add_metric(pair, jobs)
    return family


def _workers(workers: Sequence[Worker]) -> Iterator[Family]:
    """Yield metrics about the workers; of several in one process, their sum or the worst."""
    stats = [(worker, worker.stats) for worker in workers]
    figures = {
        "healthy": min(worker.healthy for worker in workers),
        "busy": sum(one.busy for _, one in stats),
        "concurrency": sum(worker.concurrency for worker in workers),
        "buffered": sum(one.buffered for _, one in stats),
        "stuck_threads": sum(one.stuck_threads for _, one in stats),
        "silence_seconds": max(one.silence for _, one in stats),
        "loop_lag_seconds": max(worker.host.clock.monotonic() - worker.ticked_at for worker in workers),
    }
    for name, value in figures.items():
        family = gauge(f"headrace_worker_{name}")
        family.add_metric((), max(0.0, float(value)))
        yield family
    info = gauge("headrace_worker_info")
    for worker in workers:
        info.add_metric((str(worker.id), worker.version), 1)
    yield info
