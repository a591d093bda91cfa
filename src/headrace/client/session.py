"""An App's stay on one event loop: an open engine and what works with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import WeakSet

from headrace.client.api.positions import places
from headrace.client.api.scale import LoadReader
from headrace.client.api.tasks import TaskDoc, known_tasks, named
from headrace.config import Settings
from headrace.engine import Engine, WorkerInfo
from headrace.runtime.host import Host
from headrace.runtime.secrets import Vault
from headrace.runtime.single_flight import SingleFlight
from headrace.runtime.watch.feed import Feed
from headrace.runtime.watch.followers import Followers
from headrace.runtime.watch.watcher import BatchWatcher, Watcher
from headrace.runtime.writes.writer import Writer
from headrace.worker.process.child import end_if_unguarded

__all__ = ["Session"]

_CACHE_SECONDS = 10.0


class Session:
    """An open engine with its writer and watchers, from the first entering of an App on a loop to the last leaving."""

    def __init__(
        self, engine: Engine, host: Host, secret: str | None = None, unwritten: int = Settings().unwritten
    ) -> None:
        self.engine, self.host = engine, host
        self.vault = Vault(engine, host, secret)
        self.writer = Writer(engine, host, unwritten=unwritten)
        self.watcher, self.batch_watcher = Watcher(engine, host), BatchWatcher(engine, host)
        self.followers = Followers(engine, host, self.watcher, partial(places, self))
        self._feeds: WeakSet[Feed] = WeakSet()
        self._tasks: dict[str, tuple[float, TaskDoc]] = {}
        self._known_tasks = SingleFlight(lambda: known_tasks(engine))
        self.task_names: tuple[str, ...] = ()
        """The tasks that workers had registered when one was last not found."""
        self.loads = LoadReader(engine, host)
        """What scaling advice is made of."""
        self._living = SingleFlight(self.live_workers)
        self._seen: tuple[float, list[WorkerInfo]] = (-_CACHE_SECONDS, [])

    @classmethod
    async def open(
        cls, engine: Engine, host: Host, secret: str | None = None, unwritten: int = Settings().unwritten
    ) -> Session:
        """Connect, and set the clock by the store's; ``secret``: what is signed with is derived from it."""
        end_if_unguarded()
        await engine.open()
        try:
            await host.measure(engine)
        except BaseException:
            await engine.close()
            raise
        return cls(engine, host, secret, unwritten)

    async def close(self) -> None:
        """Write what is waiting, settle every caller, disconnect."""
        try:
            await self.writer.close()
        finally:
            try:
                for feed in list(self._feeds):
                    feed.lose()
                await self.followers.close()
                await self.watcher.close()
                await self.batch_watcher.close()
            finally:
                await self.engine.close()

    def attach(self, feed: Feed) -> tuple[Engine, Host]:
        """Let a feed read here, until it or the App is closed."""
        self._feeds.add(feed)
        return self.engine, self.host

    async def find_task(self, name: str) -> TaskDoc | None:
        """A task as workers described it; what was found is used for a few seconds."""
        now = self.host.clock.monotonic()
        known = self._tasks.get(name)
        if known is not None and now - known[0] < _CACHE_SECONDS:
            return known[1]
        docs = await self._known_tasks()
        doc = named(name, docs)
        if doc is None:
            self.task_names = tuple(docs)
        else:
            self._tasks[name] = (now, doc)
        return doc

    async def is_run(self, name: str, requires: Mapping[str, Any]) -> bool:
        """Whether a live worker runs a task that none has described: those behind a hub describe nothing. That one
        does is relied on for a few seconds."""
        now = self.host.clock.monotonic()
        at, infos = self._seen
        if now - at < _CACHE_SECONDS and any(info.runs(name, requires) for info in infos):
            return True
        infos = await self._living()
        self._seen = (now, infos)
        return any(info.runs(name, requires) for info in infos)

    async def live_workers(self) -> list[WorkerInfo]:
        """The workers that take jobs, those behind hubs included."""
        now, rules = self.host.clock.now(), self.engine.rules
        return [row.info for row in await self.engine.workers.list() if row.as_heard(now, rules).takes]
