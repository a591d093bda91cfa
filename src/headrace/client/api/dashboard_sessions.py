"""Sessions at the dashboard, as an App begins, finds and ends them; the store keeps their digests, as settings."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.client.api.noun import Noun
from headrace.core.auth.sessions import SESSION_RANDOM_BYTES, Sessions, prefix_of, session_text
from headrace.engine import Engine, Setting
from headrace.errors import Unavailable
from headrace.runtime.retries import Pauses
from headrace.runtime.secrets import secret_bytes, setting_of

__all__ = ["SESSIONS", "DashboardSessions", "forget_sessions"]

SESSIONS = "sessions:"
"""What the settings with the sessions of a key begin with; its prefix follows."""
_MAX_TRIES = 100
_FIRST_PAUSE_SECONDS = 0.05
"""Seconds, at most, before the second try; those who log in at once come apart by chance."""
_MAX_PAUSE_SECONDS = 1.0
"""Seconds, at most, before any later one."""


class DashboardSessions(Noun):
    """The sessions of people at the dashboard. ``key``, everywhere: the digest of the key with this prefix."""

    async def begin(self, prefix: str, key: str) -> str:
        """Begin a session of a person who has shown this key; its text is for the browser, and kept nowhere else."""
        text = session_text(prefix, secret_bytes(SESSION_RANDOM_BYTES))
        pauses = self._pauses()
        for _ in range(_MAX_TRIES):
            now, setting = self._host.clock.now(), await setting_of(self._engine, SESSIONS + prefix)
            before = Sessions(key) if setting is None else _read(setting)
            if await self._put(prefix, before.begun(key, text, now), setting):
                await self._tidy(now)
                return text
            await pauses.sleep()
        raise Unavailable("others logged in with the same key all the time: nothing was stored; try again")

    async def find(self, text: str, key: str) -> datetime | None:
        """Until when a session lasts; None: there is none, it was ended, its time is over, or its key is another."""
        prefix = prefix_of(text)
        setting = None if prefix is None else await setting_of(self._engine, SESSIONS + prefix)
        return None if setting is None else _read(setting).has(key, text, self._host.clock.now())

    async def end(self, text: str) -> None:
        """End a session, on every hub."""
        prefix = prefix_of(text)
        pauses = self._pauses()
        for _ in range(_MAX_TRIES):
            setting = None if prefix is None else await setting_of(self._engine, SESSIONS + prefix)
            if prefix is None or setting is None:
                return
            before = _read(setting)
            after = before.ended(text)
            if after == before or await self._put(prefix, after, setting):
                return
            await pauses.sleep()
        raise Unavailable("others logged in with the same key all the time: the session was not ended; try again")

    def _pauses(self) -> Pauses:
        return Pauses(self._host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, spread=(0.0, 1.0))

    async def _put(self, prefix: str, sessions: Sessions, before: Setting | None) -> bool:
        text = msgspec.json.encode(sessions).decode() if sessions.sessions else None
        rev = 0 if before is None else before.rev
        return await self._engine.documents.put_setting(SESSIONS + prefix, text, rev) is not None

    async def _tidy(self, now: datetime) -> None:
        """Remove the settings of keys that have no session any more."""
        for setting in await self._engine.documents.settings(SESSIONS):
            if not _read(setting).living(now).sessions:
                await self._engine.documents.put_setting(setting.key, None, setting.rev)


async def forget_sessions(engine: Engine, prefix: str) -> None:
    """End all sessions of a key."""
    while (setting := await setting_of(engine, SESSIONS + prefix)) is not None:
        await engine.documents.put_setting(setting.key, None, setting.rev)


def _read(setting: Setting) -> Sessions:
    try:
        return msgspec.json.decode(setting.value, type=Sessions)
    except msgspec.MsgspecError:  # of another version: they log in again
        return Sessions("")
