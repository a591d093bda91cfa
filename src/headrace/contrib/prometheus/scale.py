"""Metrics of scaling advice: how many slots each queue has and needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric as Family

from headrace.client.api.scale import QueueScale
from headrace.contrib.prometheus.catalogue import gauge

__all__ = ["scale_families"]


def scale_families(found: Iterable[QueueScale], queues: Iterable[str], named: Callable[[str], str]) -> Iterator[Family]:
    """Yield the metrics of these queues; ``named``: under which name a queue is reported."""
    there, needed = dict.fromkeys(queues, 0), dict.fromkeys(queues, 0)
    for one in found:
        name = named(one.queue)
        there[name] = there.get(name, 0) + one.slots
        needed[name] = needed.get(name, 0) + one.slots_needed
    for metric, values in (("headrace_queue_slots", there), ("headrace_queue_slots_needed", needed)):
        family = gauge(metric)
        for queue, slots in values.items():
            family.add_metric((queue,), slots)
        yield family
