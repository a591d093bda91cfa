"""Programs that hold duties and are no workers, such as hubs: what shows that they live, and what others do if not."""

from __future__ import annotations

import logging
from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.core.lifecycle.duty import HOLDER
from headrace.engine import Beat, Engine, Setting, WorkerInfo, WorkerRow
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import EngineError, StoreLost
from headrace.runtime.host import Host
from headrace.runtime.secrets import setting_of
from headrace.runtime.service import Service

__all__ = ["Attendance", "Program", "programs_of"]

_log = logging.getLogger("headrace.maintenance")

POLL_SECONDS = 1.0
"""Seconds between two checks whether it is still held: what was lost is held anew before two findings prove a death."""


class Program(NamedTuple):
    """A program as others see it."""

    row: WorkerRow
    """As if it were a worker: its proof is what counts."""
    setting: Setting

    async def bury(self, engine: Engine) -> bool:
        """Take its duties, if it has written nothing since; whether it was so. A living program has them back as soon
        as it requests them again."""
        if await engine.documents.put_setting(self.setting.key, None, self.setting.rev) is None:
            return False
        await engine.workers.retire(self.row.info.id)
        return True


async def programs_of(engine: Engine) -> dict[UUID, Program]:
    """All programs that have stored how their death can be proved, by their ids."""
    found = dict[UUID, Program]()
    for setting in await engine.documents.settings(HOLDER):
        try:
            info = msgspec.json.decode(setting.value, type=WorkerInfo)
        except (msgspec.MsgspecError, UnicodeError):
            continue
        found[info.id] = Program(WorkerRow(info, Beat(), 0, info.started_at, True, 0), setting)
    return found


class Attendance(Service):
    """Holds what shows that this program lives, and stores that it does, for as long as it runs."""

    def __init__(self, engine: Engine, host: Host, holder: UUID) -> None:
        super().__init__()
        self._engine, self._host, self._holder = engine, host, holder
        self._started_at = host.clock.now()
        self._proof: str | None = None
        """What the store has."""
        self._look_at = float("-inf")
        """When to check whether the store still has it (monotonic)."""

    async def main(self) -> None:
        """Hold it until stopped."""
        try:
            while True:
                try:
                    await self._attend()
                except StoreLost:
                    return  # the duties log it
                except EngineError as error:
                    _log.debug("nothing shows that this program lives for now: %s", error)
                except Exception:
                    _log.exception("it could not be shown that this program lives; it goes on")
                if await self._host.wait(self.stopping, min(POLL_SECONDS, self._engine.rules.beat / 4)):
                    return
        finally:
            await self._leave()

    async def _attend(self) -> None:
        attended = await self._engine.workers.attend(self._holder)
        proof = attended.proof if attended is not None and attended.judged else None
        now = self._host.clock.monotonic()
        if proof == self._proof and (proof is None or now < self._look_at):
            return
        known = await setting_of(self._engine, self._key)
        stored = known is not None and proof == self._proof
        if not stored and not await self._put(proof, 0 if known is None else known.rev):
            return  # another was faster, which took it for dead: the next round tries again
        self._proof, self._look_at = proof, now + self._engine.rules.lease

    async def _put(self, proof: str | None, rev: int) -> bool:
        """Store the proof; whether the store has it."""
        value = None
        if proof is not None:
            host = self._host
            info = WorkerInfo(
                id=self._holder, host=host.name, pid=host.pid, started_at=self._started_at, concurrency=0, proof=proof
            )
            value = msgspec.json.encode(info).decode()
        if value is None and not rev:
            return True
        stored = await self._engine.documents.put_setting(self._key, value, rev) is not None
        self._engine.bus.send(Hint(Topic.SETTINGS, (f"{WORKER}{self._holder}",)))
        return stored

    @property
    def _key(self) -> str:
        return f"{HOLDER}{self._holder}"

    async def _leave(self) -> None:
        """Leave nothing behind."""
        if self._proof is None:
            return
        try:
            if (known := await setting_of(self._engine, self._key)) is not None:
                await self._engine.documents.put_setting(self._key, None, known.rev)
            await self._engine.workers.retire(self._holder)
        except EngineError as error:
            _log.debug("what showed that this program lived is left to whoever sweeps: %s", error)
