"""Two stores side by side: the memory engine as the model, and another one that must do as it does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.attempt import Event
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.engine import Alive, Beat, Engine
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.support.servers import schemas

Make = Callable[[Rules, Host, Path], Engine]

REMEMBERED = 4
"""How many versions of a job are kept to decide stale changes from."""

_OWN = frozenset({"profiles_rev", "settings_rev"})
"""Numbers each store counts for itself."""


def plain(value: Any) -> Any:
    """An answer in a form that two stores must agree on: order numbers and revs of settings are a store's own."""
    if isinstance(value, Job):
        return replace(value, seq=0)
    if isinstance(value, Beat):
        return replace(value, held=())  # which jobs were named last need not be kept
    if isinstance(value, Alive):
        value = replace(value, now=None)  # a store's own time, if it has one
    if isinstance(value, msgspec.Struct):
        fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in _OWN}
        return type(value).__name__, fields
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Exception):
        return type(value).__name__, str(value)
    return value


def first_difference(one: Any, other: Any, place: str = "answer") -> str:
    """Where two plain answers differ first, and how: a whole answer is too long to read."""
    if isinstance(one, Job) and isinstance(other, Job):
        one, other = (msgspec.structs.asdict(job) for job in (one, other))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            if one[name] != other[name]:
                return first_difference(one[name], other[name], f"{place}.{name}")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for at, (mine, yours) in enumerate(zip(one, other, strict=True)):
            if mine != yours:
                return first_difference(mine, yours, f"{place}[{at}]")
    return f"{place} is {one!r} instead of {other!r}"


class Side:
    """One store, with the copies of its jobs that its users have seen."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self.copies: dict[UUID, list[Job]] = {}

    def copy(self, id: UUID, age: int) -> Job:
        """A copy as old as that, as far as one is remembered."""
        kept = self.copies[id]
        return kept[max(len(kept) - 1 - age, 0)]

    async def look(self, ids: Sequence[UUID]) -> list[Job | None]:
        """Read the jobs and remember how they are now."""
        found = await self.engine.jobs.get(ids)
        for id, job in zip(ids, found, strict=True):
            kept = self.copies.setdefault(id, [])
            if job is not None and (not kept or kept[-1] != job):
                kept.append(job)
                del kept[:-REMEMBERED]
        return found

    async def ask(self, tasks: frozenset[str], **fields: Any) -> ClaimRequest:
        known = (await self.engine.documents.profiles()).profiles
        return ClaimRequest(profiles=frozenset(profile.id for profile in known if profile.task in tasks), **fields)

    async def put_setting(self, key: str, value: str, act: Event | None = None) -> bool:
        revs = [setting.rev for setting in await self.engine.documents.settings(key) if setting.key == key]
        return await self.engine.documents.put_setting(key, value, revs[0] if revs else 0, act) is not None


class Sides:
    """The model and its subject, called alike."""

    def __init__(self, makers: dict[str, Make], rules: Rules) -> None:
        self.rules = rules
        self.dice = SystemDice(7)
        self._loop = asyncio.Runner()
        self._place = tempfile.TemporaryDirectory()
        host = Host(dice=self.dice)
        self.all = []
        for name, make in makers.items():
            place = Path(self._place.name) / name
            place.mkdir()
            self.all.append(Side(name, make(rules, host, place)))
        for side in self.all:
            self._loop.run(side.engine.open())

    def close(self) -> None:
        for side in self.all:
            self._loop.run(side.engine.close())
        self._loop.close()
        schemas.give_back(Path(self._place.name))
        self._place.cleanup()

    def run(self, work: Callable[[Side], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Do it on each side, whatever they answer."""
        return [self._loop.run(work(side)) for side in self.all]

    def agree(self, work: Callable[[Side], Coroutine[Any, Any, Any]], sort: Callable[[Any], Any] | None = None) -> Any:
        """Do it on each side, and require the same answer; the model's."""
        answers = self.run(work)
        shown = [plain(answer if sort is None else sorted(answer, key=sort)) for answer in answers]
        for side, one in zip(self.all[1:], shown[1:], strict=True):
            assert one == shown[0], (
                f"{side.name} does not do as {self.all[0].name} does: {first_difference(one, shown[0])}"
            )
        return answers[0]

    def apply(self, changes: Sequence[Sequence[Change]], now: datetime) -> Any:
        """Apply to each side its own changes (the same, decided from its own copies)."""
        of = dict(zip([side.name for side in self.all], changes, strict=True))
        return self.agree(lambda side: side.engine.jobs.apply(of[side.name], now))
