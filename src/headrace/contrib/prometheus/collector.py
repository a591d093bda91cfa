"""The collector, which a registry calls at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headrace.app import App
from headrace.contrib.prometheus.catalogue import empty
from headrace.contrib.prometheus.process import Process
from headrace.contrib.prometheus.store import Store, StoreReader
from headrace.errors import ConfigError
from headrace.runtime.totals import FinishTotals

__all__ = ["HeadraceCollector"]


class HeadraceCollector(Collector):
    """The metrics of an App: of its workers in this process, and of its store.

    ``REGISTRY.register(HeadraceCollector(app))``, before or after the App makes workers. The store is read only when
    scraped, at most every ``every`` seconds, and no scrape waits for it much longer than ``patience`` seconds; one that
    cannot be read shows as ``headrace_store_up 0``. ``store=False``: leave the store to another process.
    """

    def __init__(self, app: App, *, store: bool = True, every: float = 5.0, patience: float = 2.0) -> None:
        if not isinstance(app, App):
            raise ConfigError(f"HeadraceCollector takes the App, as in HeadraceCollector(app), not {app!r}")
        self._process = Process(app)
        self._reader = StoreReader(app, every, patience)
        self._store = Store(app, self._reader) if store else None

    def follow(self, sums: FinishTotals) -> None:
        """Count these, too: jobs finished by others that this process represents, as a hub does."""
        self._process.follow(sums)

    def describe(self) -> Iterable[Family]:
        """Return every metric, without values."""
        return empty()

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its current value; on any thread.

        On the thread of an event loop the figures of the store are those of the previous scrape, since a loop must not
        wait: ``await collector.refresh()`` before, if you serve the page there.
        """
        yield from self._process.families()
        if self._store is not None:
            self._reader.ask()
            yield from self._store.families()

    async def refresh(self) -> None:
        """Read the store now, if the last read is old enough; to be awaited where the App is open."""
        await self._reader.read()
