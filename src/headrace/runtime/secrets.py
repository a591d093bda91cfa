"""Secrets: random bytes, and what a process signs with. Ids and dice are no secrets, and are never used as such.

What a process signs with is derived from ``HEADRACE_SECRET``, or kept in the store. With ``HEADRACE_SECRET`` a reader
of the store, or of a backup of it, finds nothing to sign with. The store then has a check value of the secret, so that
two processes with different ones do not sign past each other. The secret is stretched first: a receiver of something
derived from it, such as a webhook's, can try guesses only slowly.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime, timedelta
from hashlib import scrypt
from hmac import compare_digest
from typing import NamedTuple

import msgspec

from headrace.core import audit
from headrace.core.auth.tokens import derived
from headrace.engine import Engine, Setting
from headrace.errors import SecretMismatch, Unavailable
from headrace.runtime.host import Host

__all__ = ["ROOT", "SECRET_GRACE", "STATUS_PAGES", "Kept", "Root", "Vault", "kept_secret", "secret_bytes", "setting_of"]


def secret_bytes(count: int = 32) -> bytes:
    """So many bytes that the system's own source of chance has made."""
    return secrets.token_bytes(count)


async def kept_secret(engine: Engine, key: str) -> bytes:
    """The secret that the store keeps as this setting; made if there is none, once for all processes."""
    while True:
        found = await setting_of(engine, key)
        if found is None:
            found = await engine.documents.put_setting(key, msgspec.json.encode(secret_bytes().hex()).decode(), 0)
        if found is not None:  # else another process has made it meanwhile
            return _bytes_of(found)


ROOT = "signing-root"
"""The setting by which the secret is known again."""
SECRET_GRACE = timedelta(days=1)
"""For how long what is signed with a secret of the store counts after ``HEADRACE_SECRET`` was taken up."""
STATUS_PAGES = "endpoints-secret"
"""The setting with the secret of public status pages, where it is not derived."""
_MAX_TRIES = 20

_UNSET = (
    "what this store's leases and webhooks are signed with is derived from HEADRACE_SECRET, which is not set here: set"
    " it as it is set for the hubs; if it is to be used no more, headrace keys replace-secret without it"
)
_OTHER = (
    "HEADRACE_SECRET is not the one that this store's leases and webhooks are signed with: set the same one everywhere;"
    " if this is a new one that replaces it, headrace keys replace-secret"
)


class Root(msgspec.Struct, frozen=True):
    """What proves that a secret is the same one again, without revealing it."""

    salt: bytes
    check: bytes
    since: datetime
    """When it was taken up."""


class Kept(NamedTuple):
    """A secret that signs, and what else counts."""

    secret: bytes
    before: bytes | None = None
    """What signed before it was derived."""
    until: datetime | None = None
    """Until when what the store keeps counts, if others derive by now."""
    lags: bool = False
    """Whether others sign with what is derived, which is not known here."""


class Vault:
    """The secrets of one session on a store."""

    def __init__(self, engine: Engine, host: Host, secret: str | None) -> None:
        self.engine, self._host, self._secret = engine, host, secret
        self._known: Root | None = None
        self._root: bytes | None = None

    @property
    def is_set(self) -> bool:
        """Whether this process has a secret."""
        return self._secret is not None

    async def derives(self) -> bool:
        """Whether secrets are derived here, and from the same one as everywhere on this store; the first process with a
        secret takes it up; :raises SecretMismatch: this process has another one than the store's, or none"""
        stored = await self.stored()
        if self._secret is None and stored is not None:
            raise SecretMismatch(_UNSET)
        for _ in range(_MAX_TRIES):
            if self._secret is None or stored is not None:
                break
            await self._put(await self._made(self._secret), 0, "take up", None)
            stored = await self.stored()
        return stored is not None and await self._fits(stored)

    async def lags_until(self) -> datetime | None:
        """Until when this process goes on with the store's secret, which others accept as long, while they derive;
        None: they do not, it has a secret as well, or that time is over.

        So all can be restarted one by one, and those that have not been yet are of use meanwhile.
        """
        if self._secret is not None or (stored := await self.stored()) is None:
            return None
        until = stored.since + SECRET_GRACE
        return until if self._host.clock.now() < until else None

    async def stored(self) -> Root | None:
        """By what the store knows the secret; None: it is used without one."""
        found = await setting_of(self.engine, ROOT)
        return None if found is None else msgspec.json.decode(found.value, type=Root)

    async def replace(self, by: str | None) -> None:
        """Take up the secret that is set here in place of the store's; or none, if none is set."""
        for _ in range(_MAX_TRIES):
            found = await setting_of(self.engine, ROOT)
            new = None if self._secret is None else await self._made(self._secret)
            if (found is None and new is None) or await self._put(
                new, 0 if found is None else found.rev, "replace", by
            ):
                return
        raise Unavailable("others replaced the secret at the same time: nothing was stored; try again")

    def derived(self, purpose: str, *ids: str) -> bytes:
        """What is signed with for this purpose, once it is known that it is derived."""
        if self._root is None:
            raise self.refuse()
        return derived(self._root, purpose, *ids)

    async def kept(self, key: str) -> Kept:
        """The secret of this name: derived, or kept as this setting; what was kept before is removed when it counts no
        more; :raises SecretMismatch: others derive it, and this process cannot"""
        until, setting = await self.lags_until(), await setting_of(self.engine, key)
        if until is not None and setting is not None:
            return Kept(_bytes_of(setting), until=until, lags=True)
        if not await self.derives():
            return Kept(await kept_secret(self.engine, key))
        if setting is None:
            return Kept(self.derived(key))
        if not self.believes:
            await self.engine.documents.put_setting(key, None, setting.rev)
            return Kept(self.derived(key))
        assert self._known is not None
        return Kept(self.derived(key), _bytes_of(setting), self._known.since + SECRET_GRACE)

    def refuse(self) -> SecretMismatch:
        """The error where something derived is needed that is not known here."""
        return SecretMismatch(_UNSET if self._secret is None else _OTHER)

    @property
    def believes(self) -> bool:
        """Whether what was signed before the secret was taken up counts still."""
        return self._known is None or self._host.clock.now() < self._known.since + SECRET_GRACE

    async def _fits(self, stored: Root) -> bool:
        assert self._secret is not None
        if stored != self._known:
            root = await asyncio.to_thread(_stretched, self._secret, stored.salt)
            if not compare_digest(_check(root), stored.check):
                self._root = self._known = None
                raise SecretMismatch(_OTHER)
            self._root, self._known = root, stored
        return True

    async def _made(self, secret: str) -> Root:
        salt = secret_bytes(16)
        root = await asyncio.to_thread(_stretched, secret, salt)
        return Root(salt, _check(root), self._host.clock.now())

    async def _put(self, root: Root | None, rev: int, verb: str, by: str | None) -> bool:
        text = None if root is None else msgspec.json.encode(root).decode()
        act = audit.act(verb, self._host.clock.now(), by)
        return await self.engine.documents.put_setting(ROOT, text, rev, act) is not None


async def setting_of(engine: Engine, key: str) -> Setting | None:
    """The setting of this key, if there is one."""
    return next((one for one in await engine.documents.settings(key) if one.key == key), None)


def _bytes_of(setting: Setting) -> bytes:
    return bytes.fromhex(msgspec.json.decode(setting.value, type=str))


def _stretched(secret: str, salt: bytes) -> bytes:
    """The secret, stretched so that a guess at it costs 16 MiB and a twentieth of a second."""
    return scrypt(secret.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)


def _check(root: bytes) -> bytes:
    return derived(root, "check")
