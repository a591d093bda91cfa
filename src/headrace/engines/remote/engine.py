"""A session with a hub, which has the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from headrace.core.defaults import Rules
from headrace.engine import (
    Bus,
    Check,
    Direct,
    Documents,
    Engine,
    Entries,
    Families,
    Gone,
    Jobs,
    Records,
    Rollups,
    Transactions,
    WorkerRow,
    Workers,
)
from headrace.engine.wire import Hello, far_role
from headrace.engines.remote.bus import PROOF, RemoteBus
from headrace.engines.remote.calls import Calls
from headrace.engines.remote.connection import Address
from headrace.runtime.host import Host

__all__ = ["RemoteEngine"]

_GONE_AFTER_SECONDS = 5.0
"""``Workers.gone_after`` until the hub has sent that of its engine."""


class RemoteEngine:
    """The store of a hub, remotely: every verb is a call, and the hub's engine does it.

    Nothing can be held from here for a worker while its process lives, nor by the hub, since the hub's death would look
    like the worker's: so a worker behind a hub is judged by its beats. If its connection is cut off, the hub reports
    it, and the worker has a grace in which to beat again.
    """

    name = "hub"
    direct: Direct | None = None
    transactions: Transactions | None = None

    def __init__(self, address: Address, *, rules: Rules, host: Host) -> None:
        self.rules = rules
        self._address, self._host = address, host
        self._calls = Calls(address, rules.silence)
        self._bus = RemoteBus(address, host, rules.beat)
        self.bus: Bus = self._bus
        call = self._calls.call
        self.jobs = cast(Jobs, far_role("jobs", call))
        self.records = cast(Records, far_role("records", call))
        self.entries = cast(Entries, far_role("entries", call))
        self.families = cast(Families, far_role("families", call))
        self.rollups = cast(Rollups, far_role("rollups", call))
        self.documents = cast(Documents, far_role("documents", call))
        self._workers: Any = far_role("workers", call)
        self._workers.attend, self._workers.gone_after = self._bus.attend, _GONE_AFTER_SECONDS
        self._far_gone, self._workers.gone = self._workers.gone, self._gone
        self.workers = cast(Workers, self._workers)
        self._session: Any = far_role("session", call)

    async def open(self) -> None:
        hello = await self._calls.open()
        self._workers.gone_after = hello.gone_after
        self._bus.open()

    async def close(self) -> None:
        await self._bus.close()
        await self._calls.close()

    async def exists(self) -> bool:
        await self._calls.greet()
        return True

    async def migrate(self, *, plan: bool = False) -> list[str]:
        await self._calls.greet()
        return []  # a hub that replies has opened its store, and so has found it up to date

    async def time(self) -> datetime | None:
        said: datetime | None = await self._session.time()
        return said

    async def check(self, now: datetime) -> list[Check]:
        hello = await self._calls.greet()
        found: list[Check] = await self._session.check(now)
        return [_about(hello, self._address), *_rules(hello, self.rules), *found]

    async def _gone(self, rows: Sequence[WorkerRow]) -> Gone:
        """Query the hub, unless none of these could be found gone, or all are programs beside the store: others beside
        it watch those, and every remote worker would call once a second for nothing."""
        judged = [row for row in rows if row.proof and row.info.concurrency and not row.proof.startswith(PROOF)]
        found: Gone = await self._far_gone(judged) if judged else Gone()
        return found

    def another_session(self) -> Engine:
        return RemoteEngine(self._address, rules=self.rules, host=self._host)


def _about(hello: Hello, address: Address) -> Check:
    return Check("hub", "ok", f"{address} is headrace {hello.headrace}, and has the store ({hello.store})")


def _rules(hello: Hello, here: Rules) -> list[Check]:
    """Return whether the hub has other rules than this machine."""
    there = hello.rules
    others = [name for name in here.__struct_fields__ if getattr(here, name) != getattr(there, name)]
    if not others:
        return []
    message = f"the hub is set up with other values for {', '.join(others)} than are set here"
    return [Check("settings", "warn", message, "set them alike, at the hub and here: what counts depends on who asks")]
