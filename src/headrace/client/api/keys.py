"""``app.keys``: make, list and revoke the keys of the hub; the store keeps them as settings."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from headrace.client.api.dashboard_sessions import forget_sessions
from headrace.client.api.noun import Noun
from headrace.client.api.store import derived_webhooks
from headrace.core import audit
from headrace.core.attempt import Event
from headrace.core.auth.api_keys import (
    MARK,
    SCOPES,
    SHOWN_KEY_CHARACTERS,
    ApiKey,
    Keyring,
    Permissions,
    Scope,
    StoredKey,
    checked_grant,
    digest_of,
    lacks,
    written,
)
from headrace.core.codec.record import Record
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_name, checked_note
from headrace.engine import Engine, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, KeyTaken, NotGranted, StoreLost, Unavailable, UnknownKey, shown
from headrace.runtime.secrets import secret_bytes
from headrace.runtime.signatures import rotate

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["POLL_SECONDS", "USE_NOTE_INTERVAL", "KeysApi", "NewKey", "note_key_use", "watch_keys"]

_log = logging.getLogger("headrace.keys")

KEY = "key:"
"""What the settings that are keys begin with."""
POLL_SECONDS = 1.0
"""Seconds between two reads of the keys, if no hint comes."""
USE_NOTE_INTERVAL = timedelta(hours=1)
"""Minimum time between two notes that a key was used: every write of a setting makes workers read theirs."""
_MAX_TRIES = 20


class NewKey(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A key that was just made. Its text is here and nowhere else: the store keeps a digest."""

    text: str
    key: ApiKey

    def __repr__(self) -> str:  # which may be logged
        return f"<NewKey {self.key.name!r} {self.key.prefix}…>"


class KeysApi(Noun):
    """The keys of the hub."""

    async def create(
        self,
        name: str,
        scopes: Iterable[Scope],
        *,
        customer: str | None = None,
        tasks: Iterable[str] | None = None,
        queues: Iterable[str] | None = None,
        expires: Seconds | None = None,
        profiles: int | None = None,
        by: str | None = None,
        within: Permissions | None = None,
    ) -> NewKey:
        """Make a key for the hub. ``text`` of the result is the key, and cannot be had again.

        ``customer``: it sees and makes only that customer's jobs. ``tasks``, ``queues``: it submits only these, only
        there. ``expires``: after so many seconds. ``profiles``: of how many pairs of task and requirements the customer
        may have live jobs, in place of 100; of several keys the maximum counts. ``within``: what the caller may do, if
        that is not everything.

        :raises ConfigError: naming what cannot be used
        :raises KeyTaken: a key has this name
        :raises NotGranted: the caller lacks what the key would have
        """
        name = checked_name(name, "the name of a key")
        if name.startswith(MARK):
            raise ConfigError(f"the name of a key must not begin with {MARK}, as keys themselves do")
        now = self._host.clock.now()
        ends = None if expires is None else now + timedelta(seconds=_positive(expires))
        grant = checked_grant(scopes, customer, tasks, queues, ends, profiles)
        if within is not None and (why := lacks(within, grant)):
            raise NotGranted(why)
        taken = {one.key.prefix for one in (await _ring(self._engine)).keys}
        while (text := written(secret_bytes()))[:SHOWN_KEY_CHARACTERS] in taken:
            pass
        key = ApiKey(
            name=name,
            prefix=text[:SHOWN_KEY_CHARACTERS],
            scopes=tuple(scope for scope in SCOPES if scope in grant.scopes),
            customer=grant.customer,
            tasks=None if grant.tasks is None else tuple(sorted(grant.tasks)),
            queues=None if grant.queues is None else tuple(sorted(grant.queues)),
            created_at=now,
            created_by=checked_note(by, "by"),
            expires_at=ends,
            profiles=grant.profiles,
        )
        kept = {
            field: value
            for field, value in key.to_dict().items()
            if field not in ("name", "created_at", "created_by") and value is not None
        }
        if not await _put(self._engine, StoredKey(digest_of(text), key), 0, audit.act("create", now, by, kept)):
            raise KeyTaken(name)
        return NewKey(text=text, key=key)

    async def list(self) -> builtins.list[ApiKey]:
        """Every key, by name, also those that have expired; not their texts, which the store does not have."""
        return [one.key for one in (await _ring(self._engine)).keys]

    async def revoke(self, name: str, *, by: str | None = None) -> str:
        """Revoke a key by its name, its prefix or the key itself: every hub refuses it from now on, at most a second
        later, and closes what it has open. Returns the name; :raises UnknownKey: there is none"""
        act = audit.act("revoke", self._host.clock.now(), by)
        for _ in range(_MAX_TRIES):
            found = await _find(self._engine, name)
            if found is None:
                raise UnknownKey(name)
            if await self._engine.documents.put_setting(found.key, None, found.rev, act) is not None:
                self._engine.bus.send(Hint(Topic.SETTINGS, (found.key,)))
                if (stored := _read(found.value)) is not None:
                    await forget_sessions(self._engine, stored.key.prefix)
                return found.key.removeprefix(KEY)
        raise Unavailable(f"the key {name!r} was changed by others {_MAX_TRIES} times while it was being revoked")

    async def rotate_leases(self, *, forget: bool = False, by: str | None = None) -> None:
        """Sign the leases and tokens of workers behind hubs with another secret from now on.

        What was signed with the one before counts until the next rotation. ``forget``: all that was signed so far is
        void, within seconds, on every hub; these workers register anew, and their jobs go to others.
        """
        await rotate(self._session.vault, self._host, forget=forget, by=by)

    async def replace_secret(self, *, by: str | None = None) -> builtins.list[str]:
        """Take up the ``HEADRACE_SECRET`` that is set here in place of the one before, or none if none is set.

        All leases and tokens of workers behind hubs are void then. Returns the webhooks with new secrets, which their
        receivers do not have yet: rotate them. Hubs that have the old one sign no more within seconds.
        """
        vault = self._session.vault
        await vault.replace(by)
        await rotate(vault, self._host, forget=True, by=by)
        return await derived_webhooks(self._engine)


async def watch_keys(app: App) -> AsyncGenerator[Keyring, None]:
    """All keys, then again whenever one came or went: what a hub lets callers in by. It never ends by itself."""
    session, seen, wake = app.session, None, asyncio.Event()
    engine, host = session.engine, session.host

    def hear(hint: Hint) -> None:
        if not hint.names or any(name.startswith(KEY) for name in hint.names):
            wake.set()

    unlisten = engine.bus.listen(frozenset({Topic.SETTINGS}), hear)
    try:
        while True:
            wake.clear()
            try:
                ring = await _ring(engine)
            except StoreLost:
                raise
            except Unavailable as error:
                if seen is None:
                    raise
                _log.warning("the keys could not be looked at, trying on: %s", error)
            else:
                if ring != seen:
                    seen = ring
                    yield ring
            await host.wait(wake, POLL_SECONDS)
    finally:
        unlisten()


async def note_key_use(app: App, name: str) -> None:
    """Write down that the key of this name was used now, unless that was done within the hour or it is gone."""
    now, engine = app.host.clock.now(), app.session.engine
    for setting in await engine.documents.settings(KEY + name):
        stored = _read(setting.value)
        if setting.key != KEY + name or stored is None:
            continue
        if stored.key.used_at is None or stored.key.used_at + USE_NOTE_INTERVAL <= now:
            used = msgspec.structs.replace(stored.key, used_at=now)
            # If it was revoked meanwhile, this must not bring it back: so the rev is the one that was read.
            await _put(engine, StoredKey(stored.digest, used), setting.rev, None)


def _positive(expires: Seconds) -> float:
    length = seconds(expires, "expires")
    if length <= 0:
        raise ConfigError(f"expires must be longer than nothing, not {shown(expires)}")
    return length


async def _ring(engine: Engine) -> Keyring:
    keys, unreadable = list[StoredKey](), list[str]()
    for setting in await engine.documents.settings(KEY):
        stored = _read(setting.value)
        if stored is None:
            unreadable.append(setting.key.removeprefix(KEY))
        else:
            keys.append(stored)
    return Keyring(tuple(keys), tuple(unreadable))


_decode = msgspec.json.Decoder(StoredKey).decode


def _read(document: str) -> StoredKey | None:
    """The key, if this version can read it: one with a scope that it does not know must open nothing here."""
    try:
        return _decode(document)
    except msgspec.MsgspecError:
        return None


async def _find(engine: Engine, name: str) -> Setting | None:
    """The setting that is the key of this name or prefix."""
    for setting in await engine.documents.settings(KEY):
        if setting.key == KEY + name:
            return setting
        stored = _read(setting.value) if name.startswith(MARK) else None
        if stored is not None and name.startswith(stored.key.prefix):
            return setting
    return None


async def _put(engine: Engine, stored: StoredKey, rev: int, act: Event | None) -> bool:
    name = KEY + stored.key.name
    if await engine.documents.put_setting(name, msgspec.json.encode(stored).decode(), rev, act) is None:
        return False
    engine.bus.send(Hint(Topic.SETTINGS, (name,)))
    return True
