"""The names of all metrics, with labels and meanings: the one list that everything else is made from."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

__all__ = ["METRICS", "Metric", "counter", "empty", "gauge", "histogram"]

F = TypeVar("F", bound=Family)


class Metric(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


_PAIR, _WINDOW = ("task", "queue"), ("window",)

METRICS: dict[str, Metric] = {
    # -- of this process
    "headrace_attempts": Metric(
        "counter", (*_PAIR, "outcome"), "Attempts that ended: completed, failed, timed_out, lost, snoozed, …"
    ),
    "headrace_retries": Metric("counter", _PAIR, "Attempts that failed, timed out or were lost, and are tried again."),
    "headrace_dead_letters": Metric("counter", _PAIR, "Jobs whose last attempt did not succeed: they ended failed."),
    "headrace_waiting_seconds": Metric(
        "histogram", _PAIR, "From when a job could be claimed until its handler was called."
    ),
    "headrace_running_seconds": Metric(
        "histogram", _PAIR, "How long handlers ran that completed, failed or timed out."
    ),
    "headrace_jobs_running": Metric("gauge", _PAIR, "Jobs whose handlers run at this moment."),
    "headrace_worker_healthy": Metric(
        "gauge", (), "1: the worker runs, its event loop moves, the store hears its beats."
    ),
    "headrace_worker_busy": Metric("gauge", (), "Slots in use."),
    "headrace_worker_concurrency": Metric("gauge", (), "Slots."),
    "headrace_worker_buffered": Metric("gauge", (), "Jobs that were claimed ahead."),
    "headrace_worker_stuck_threads": Metric("gauge", (), "Plain handlers that outlived their attempts."),
    "headrace_worker_silence_seconds": Metric("gauge", (), "Since the store last acknowledged a beat."),
    "headrace_worker_loop_lag_seconds": Metric(
        "gauge", (), "Since the event loop last moved; it does so every 0.25 s."
    ),
    "headrace_worker_stale": Metric("counter", (), "Attempts whose end came too late: another worker had the job."),
    "headrace_left_out": Metric(
        "counter",
        ("task",),
        "Jobs that should have been stored with a change of another, and were not.",
    ),
    "headrace_worker_info": Metric("gauge", ("worker", "version"), "Always 1; which worker this is."),
    # -- of the store, the same from every worker
    "headrace_average_queue_seconds": Metric(
        "gauge", _WINDOW, "From the submission of a job, or when it could run, to its first assignment."
    ),
    "headrace_average_processing_seconds": Metric("gauge", _WINDOW, "From start to completion."),
    "headrace_success_ratio": Metric("gauge", _WINDOW, "Of the jobs that completed or failed, those that completed."),
    "headrace_retry_ratio": Metric("gauge", _WINDOW, "Of the jobs that completed or failed, those that were retried."),
    "headrace_utilisation_ratio": Metric("gauge", _WINDOW, "The share of the time of all slots in which they worked."),
    "headrace_queue_depth": Metric("gauge", (), "Jobs that are queued."),
    "headrace_queue_jobs": Metric("gauge", ("queue", "status"), "Jobs in the store that are live or failed."),
    "headrace_queue_oldest_seconds": Metric("gauge", ("queue",), "How long the first queued job has waited; 0: none."),
    "headrace_queue_paused": Metric("gauge", ("queue",), "1: the queue is paused."),
    "headrace_task_paused": Metric("gauge", ("task",), "1: the task is paused."),
    "headrace_queue_slots": Metric("gauge", ("queue",), "Slots of the live workers that may run jobs of the queue."),
    "headrace_queue_slots_needed": Metric(
        "gauge",
        ("queue",),
        "Slots with which 95 % of the queue's jobs begin within 30 s; own jobs of headrace left out.",
    ),
    "headrace_workers": Metric("gauge", ("state",), "Workers that are alive, or silent: not heard of for their lease."),
    "headrace_slots": Metric(
        "gauge", ("state",), "Slots of all living workers, also of those behind hubs: busy, free."
    ),
    "headrace_own_jobs": Metric(
        "gauge", ("status",), "Headrace's own jobs that are live or failed, such as deliveries of webhooks."
    ),
    "headrace_own_workers": Metric("gauge", (), "Living workers that run only headrace's own tasks."),
    "headrace_schedules_late_seconds": Metric("gauge", (), "How late the planner is with the fire that is first due."),
    "headrace_alerts": Metric(
        "gauge",
        ("kind", "level", "subject"),
        "What is wrong now, as headrace doctor finds it; of workers, how many. 0: it was, and is no more.",
    ),
    "headrace_store_up": Metric("gauge", (), "1: the store can be read; 0: it cannot, and what it holds is left out."),
    "headrace_store_read_age_seconds": Metric("gauge", (), "How old the figures of the store are."),
    "headrace_store_read_seconds": Metric("gauge", (), "How long reading them took."),
}
"""By name, of a counter without ``_total``."""


def counter(name: str) -> CounterMetricFamily:
    """Return an empty family of this name."""
    return CounterMetricFamily(name, METRICS[name].help, labels=METRICS[name].labels)


def gauge(name: str) -> GaugeMetricFamily:
    """Return an empty family of this name."""
    return GaugeMetricFamily(name, METRICS[name].help, labels=METRICS[name].labels)


def histogram(name: str) -> HistogramMetricFamily:
    """Return an empty family of this name."""
    return HistogramMetricFamily(name, METRICS[name].help, labels=METRICS[name].labels)


def empty() -> list[Family]:
    """Return every family, without samples."""
    make = {"counter": counter, "gauge": gauge, "histogram": histogram}
    return [make[metric.kind](name) for name, metric in METRICS.items()]
