"""A session on a memory store: the contract's verbs, one at a time over all sessions, and the bus between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.bus import Bus, Hint, LocalBus, Topic
from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.claim import Ask
from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.core.job import History, Job
from headrace.core.limit import Usage
from headrace.core.query import Count, Filter, Ledger, Page
from headrace.core.rule import Bound
from headrace.core.rules import Rules
from headrace.core.standing import MOST, WINDOW, Standing
from headrace.core.status import Status
from headrace.engine import (
    MAX_BATCH,
    Alive,
    Beat,
    Check,
    Claimed,
    Dead,
    Engine,
    Enlisted,
    InsertAnswer,
    Overdue,
    Profiles,
    Setting,
    Steps,
    Told,
    WorkerInfo,
    WorkerRow,
)
from headrace.engines.memory.standing import standing
from headrace.engines.memory.store import Store
from headrace.engines.refusing import refuse_changes, refuse_entries, refuse_jobs, refuse_text
from headrace.errors import NotOpen, NotSupported
from headrace.host import Host

__all__ = ["MemoryEngine"]


class _Shared:
    """What all sessions of one store have in common."""

    def __init__(self, rules: Rules) -> None:
        self.lock = threading.Lock()
        self.store = Store(rules)
        self.buses: set[_Bus] = set()


class _Bus:
    """Hands a hint to every open session of the store, each on its own loop."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._local = LocalBus()
        self._loop: asyncio.AbstractEventLoop | None = None

    def connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        with self._shared.lock:
            self._shared.buses.add(self)

    def disconnect(self) -> None:
        with self._shared.lock:
            self._shared.buses.discard(self)

    def send(self, hint: Hint) -> None:
        with self._shared.lock:
            buses = list(self._shared.buses)
        for bus in buses:
            bus.receive(hint)

    def wanted(self, topic: Topic) -> bool:
        with self._shared.lock:
            return any(topic in bus._local.topics for bus in self._shared.buses)

    def receive(self, hint: Hint) -> None:
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._local.deliver, hint)
        except RuntimeError:  # its loop is closed: nobody is left to listen
            pass

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        return self._local.listen(topics, listener)


class MemoryEngine:
    """Jobs in this process's memory: gone with it, and until then exactly what the contract says.

    A store belongs to the engine it was made with and to that engine's twins; it outlives ``close``.
    """

    name = "memory"
    capabilities: frozenset[str] = frozenset()

    def __init__(self, rules: Rules, host: Host, shared: _Shared | None = None) -> None:
        self.rules = rules
        self._host = host
        self._shared = shared or _Shared(rules)
        self._bus = _Bus(self._shared)
        self.bus: Bus = self._bus
        self._open = False

    async def open(self) -> None:
        self._bus.connect()
        self._open = True

    async def exists(self) -> bool:
        return True

    async def close(self) -> None:
        self._bus.disconnect()
        self._open = False

    async def migrate(self, *, plan: bool = False) -> list[str]:
        return []

    async def check(self, now: datetime) -> list[Check]:
        with self._store() as store:
            ledger = store.jobs.ledger()
        if ledger.unaccounted:
            return [Check("ledger", "fail", f"{ledger.unaccounted} jobs are unaccounted for: {ledger}")]
        return [
            Check(
                "store", "warn", "jobs are kept in memory and end with this process", "use sqlite:// or another engine"
            ),
            Check("ledger", "ok", f"{ledger.accepted} submitted, all accounted for"),
        ]

    def twin(self) -> Engine:
        return MemoryEngine(self.rules, self._host, self._shared)

    @contextmanager
    def _store(self) -> Iterator[Store]:
        if not self._open:
            raise NotOpen("this session of the memory engine is not open")
        with self._shared.lock:
            yield self._shared.store

    # -- jobs

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        refuse_jobs(jobs, documents=True)
        with self._store() as store:
            return store.insert(jobs, batch, whole)

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        with self._store() as store:
            return store.claim(worker, ask, request, now)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        refuse_changes(changes)
        with self._store() as store:
            return store.apply(changes)

    async def tell(self, now: datetime, limit: int = MAX_BATCH) -> Told:
        with self._store() as store:
            return store.tell(now, limit)

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        with self._store() as store:
            return [store.families.batches.get(id) for id in ids]

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        with self._store() as store:
            return store.families.find(limit, cursor)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        with self._store() as store:
            return store.families.seal(batch, now)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        with self._store() as store:
            return store.families.cancel(batch, now, by)

    async def settle(self, batch: UUID) -> None:
        with self._store() as store:
            store.families.settle(batch)

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        with self._store() as store:
            return store.usage()

    async def standing(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Standing:
        with self._store() as store:
            return standing(store.jobs, job, now, window, most)

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        with self._store() as store:
            return store.promote(now, limit)

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        with self._store() as store:
            return store.overdue(now, limit)

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        with self._store() as store:
            return [store.jobs.records.get(id) for id in ids]

    async def history(self, id: UUID) -> History:
        with self._store() as store:
            return store.jobs.history(id)

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        with self._store() as store:
            return store.jobs.find(filter, now, limit, cursor)

    async def count(self, now: datetime) -> list[Count]:
        with self._store() as store:
            return store.jobs.count(now)

    async def ledger(self) -> Ledger:
        with self._store() as store:
            return store.jobs.ledger()

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        with self._store() as store:
            return store.delete(before, limit)

    # -- what runs add to their jobs

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        with self._store() as store:
            return store.append(appends)

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        with self._store() as store:
            return store.jobs.entries.tail(job, kind, after, limit, newest)

    # -- in the user's own transaction: there is none to be in

    def enlist(self, connection: Any) -> Enlisted:
        raise _no_transactions()

    async def inserting(self, jobs: Sequence[Job], now: datetime) -> Steps[list[InsertAnswer]]:
        raise _no_transactions()

    async def applying(self, change: Change, now: datetime) -> Steps[Verdict]:
        raise _no_transactions()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        raise _no_transactions()

    # -- workers

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        with self._store() as store:
            store.register(info, now)

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        with self._store() as store:
            return store.beat(worker, beat, now)

    async def bury(self, worker: UUID, beats: int) -> bool:
        with self._store() as store:
            return store.bury(worker, beats)

    async def retire(self, worker: UUID) -> None:
        with self._store() as store:
            store.retire(worker)

    async def workers(self) -> list[WorkerRow]:
        with self._store() as store:
            return store.workers()

    # -- the rest of the store

    async def profiles(self) -> Profiles:
        with self._store() as store:
            return store.profiles()

    async def settings(self, prefix: str = "") -> list[Setting]:
        with self._store() as store:
            return store.settings(prefix)

    async def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        refuse_text(key, value)
        with self._store() as store:
            return store.put_setting(key, value, expect)

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        with self._store() as store:
            return store.lease(name, holder, seconds, now)

    async def unlease(self, name: str, holder: UUID) -> None:
        with self._store() as store:
            store.unlease(name, holder)


def _no_transactions() -> NotSupported:
    return NotSupported("the memory engine has no transactions: use sqlite:// or postgresql://")
