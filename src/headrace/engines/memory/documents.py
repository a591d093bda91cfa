"""Documents of a memory store: settings, profiles, leases."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from uuid import UUID

from headrace.core.attempt import Event
from headrace.core.audit import Audited
from headrace.core.lifecycle.duty import FREE, given_back, holder_of, taken
from headrace.core.limits.settings import limits_of
from headrace.engine import Profiles, Setting
from headrace.engines.memory.state import Role
from headrace.engines.validation import refuse_text

__all__ = ["Documents"]


class Documents(Role):
    """The role ``documents`` of one session."""

    async def profiles(self) -> Profiles:
        with self._state() as state:
            return Profiles(state.table.profiles_rev, tuple(state.table.profiles.values()))

    async def settings(self, prefix: str = "") -> list[Setting]:
        with self._state() as state:
            return [state.settings[key] for key in sorted(state.settings) if key.startswith(prefix)]

    async def put_setting(self, key: str, value: str | None, expect: int, act: Event | None = None) -> Setting | None:
        refuse_text(key, value)
        with self._state() as state:
            here = state.settings.get(key)
            if expect != (0 if here is None else here.rev):
                return None
            state.settings_rev += 1
            if act is not None:
                state.audit.appendleft(Audited.of(key, act))
            if value is None:
                setting = state.settings.pop(key, Setting(key, "null", 0))
            else:
                setting = state.settings[key] = Setting(key, value, state.settings_rev)
            rules = limits_of((one.key, one.value) for one in state.settings.values())
            state.table.by_customer = rules.by_customer
            return setting

    async def audit(self, limit: int) -> list[Audited]:
        with self._state() as state:
            return list(islice(state.audit, limit))

    async def lease(
        self, name: str, holder: UUID, seconds: float, now: datetime, longest: float | None = None
    ) -> int | None:
        with self._state() as state:
            lease = taken(state.leases.get(name, FREE), holder, seconds, now, longest)
            if lease is None:
                return None
            state.leases[name] = lease
            return lease.token

    async def unlease(self, name: str, holder: UUID) -> None:
        with self._state() as state:
            state.leases[name] = given_back(state.leases.get(name, FREE), holder)

    async def holder(self, name: str, now: datetime) -> UUID | None:
        with self._state() as state:
            return holder_of(state.leases.get(name, FREE), now)
