"""The metrics of a hub: those of its App and its store, of its own requests, and of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headrace.contrib.prometheus import HeadraceCollector

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Metrics"]


class Requests(Collector):
    """The metrics of a hub's requests."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def describe(self) -> Iterable[Family]:
        """Return every metric, without values."""
        return [*_empty(), *_gauges()]

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its current value."""
        access = self._hub.access
        requests, seconds = _empty()
        for (operation, status), (count, took) in sorted(access.answered.copy().items()):
            requests.add_metric((operation, str(status)), count)
            seconds.add_metric((operation, str(status)), took)
        under_way, draining = _gauges()
        for kind, number in access.open.items():
            under_way.add_metric((kind,), number)
        draining.add_metric((), self._hub.draining.is_set())
        yield from (requests, seconds, under_way, draining)


def _empty() -> tuple[CounterMetricFamily, CounterMetricFamily]:
    labels = "operation", "status"
    return (
        CounterMetricFamily("headrace_hub_requests", "Requests that were answered.", labels=labels),
        CounterMetricFamily("headrace_hub_request_seconds", "How long they took, together.", labels=labels),
    )


def _gauges() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("headrace_hub_open", "Requests and sockets under way.", labels=("kind",)),
        GaugeMetricFamily("headrace_hub_draining", "1: the hub is about to stop.", labels=()),
    )


class Metrics:
    """The page for Prometheus; open while its block lasts."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._app = HeadraceCollector(hub.app)
        self._registry = REGISTRY
        self._stack = ExitStack()

    async def page(self) -> bytes:
        """Return the current page; the store is read at most every few seconds, however often the page is requested."""
        await self._app.refresh()
        return await asyncio.to_thread(generate_latest, self._registry)

    def __enter__(self) -> None:
        self._app.follow(self._hub.fleet.sums)
        try:
            self._register(REGISTRY)
        except ValueError:
            # The App's module has registered headrace's metrics itself, or there is another hub in this process.
            self._stack.close()
            self._registry = CollectorRegistry()
            self._register(self._registry)

    def _register(self, registry: CollectorRegistry) -> None:
        for collector in (self._app, Requests(self._hub)):
            registry.register(collector)
            self._stack.callback(registry.unregister, collector)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
