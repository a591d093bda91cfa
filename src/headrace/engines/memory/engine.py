"""A session on a memory store."""

from __future__ import annotations

import threading
from datetime import datetime

from headrace.core.defaults import Rules
from headrace.engine import Bus, Check, Direct, Engine, Transactions
from headrace.engines.memory.bus import MemoryBus, Sessions
from headrace.engines.memory.documents import Documents
from headrace.engines.memory.entries import Entries
from headrace.engines.memory.families import Families
from headrace.engines.memory.jobs import Jobs
from headrace.engines.memory.records import Records
from headrace.engines.memory.rollups import Rollups
from headrace.engines.memory.state import Session, State
from headrace.engines.memory.workers import Workers
from headrace.runtime.host import Host

__all__ = ["MemoryEngine"]


class _Shared:
    """What all sessions of one store share."""

    def __init__(self, rules: Rules) -> None:
        self.state, self.lock, self.sessions = State(rules), threading.Lock(), Sessions()


class MemoryEngine:
    """Jobs in this process's memory: gone with it, and until then exactly what the contract says.

    A store belongs to the engine it was made with and to that engine's other sessions; it outlives ``close``.
    """

    name = "memory"
    direct: Direct | None = None
    transactions: Transactions | None = None

    def __init__(self, rules: Rules, host: Host, shared: _Shared | None = None) -> None:
        self.rules = rules
        self._host = host
        self._shared = shared or _Shared(rules)
        self._session = Session(self._shared.state, self._shared.lock)
        self._bus = MemoryBus(self._shared.sessions)
        self.bus: Bus = self._bus
        self.jobs, self.records, self.entries = Jobs(self._session), Records(self._session), Entries(self._session)
        self.families, self.workers = Families(self._session), Workers(self._session)
        self.documents, self.rollups = Documents(self._session), Rollups(self._session)

    async def open(self) -> None:
        self._bus.connect()
        self._session.is_open = True

    async def close(self) -> None:
        self._bus.disconnect()
        self._session.is_open = False

    async def exists(self) -> bool:
        return True

    async def migrate(self, *, plan: bool = False) -> list[str]:
        return []

    async def time(self) -> datetime | None:
        return None

    async def check(self, now: datetime) -> list[Check]:
        ledger = await self.records.ledger()
        if ledger.unaccounted:
            return [Check("ledger", "fail", f"{ledger.unaccounted} jobs are unaccounted for: {ledger}")]
        return [
            Check(
                "store", "warn", "jobs are kept in memory and end with this process", "use sqlite:// or another engine"
            ),
            Check("ledger", "ok", f"{ledger.accepted} submitted, all accounted for"),
        ]

    def another_session(self) -> Engine:
        return MemoryEngine(self.rules, self._host, self._shared)
