"""Signing leases and tokens with secrets that every hub on the store has and none shows."""

from __future__ import annotations

import logging
import math
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.core import audit
from headrace.core.auth.tokens import (
    SECRET_BYTES,
    JobLease,
    Secrets,
    SigningSecret,
    lease_text,
    read_lease,
    read_token,
    secret_id,
    token_text,
)
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import SecretMismatch, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.secrets import ROOT, SECRET_GRACE, STATUS_PAGES, Root, Vault, secret_bytes, setting_of
from headrace.runtime.single_flight import SingleFlight

__all__ = ["SETTING", "Signing", "forget_stored", "rotate"]

_log = logging.getLogger("headrace.signing")

SETTING = "lease-secret"
"""The setting that holds the secrets, or the ids of those that are derived. Only this module reads it."""
CACHE_SECONDS = 10.0
"""Seconds for which the secrets are used as they were read: one that is taken back is refused after that."""
_REREAD_SECONDS = 1.0
"""Seconds between two reads for the sake of texts that name a secret not known here."""
_MAX_TRIES = 20


class Signing:
    """Makes and tests leases and tokens; a store without a secret is given one."""

    def __init__(self, vault: Vault, host: Host, namespace: str) -> None:
        self._vault, self._host, self._namespace = vault, host, namespace
        self._secrets = Secrets()
        self._strange: frozenset[str] = frozenset()
        """The ids of those that others derive, and that are not known here."""
        self._read_at = self._looked_at = -math.inf
        self._reading = SingleFlight(self._read)
        self._warned: str | None = None

    async def lease(self, key: str | None, lease: JobLease) -> str:
        """The text of a lease."""
        return lease_text(await self._known(), self._namespace, key, lease)

    async def token(self, key: str | None, worker: UUID) -> str:
        """The text of a token."""
        return token_text(await self._known(), self._namespace, key, worker)

    async def read_lease(self, key: str | None, text: str) -> JobLease | None:
        """The lease in a text that came with this key; None: it does not count;
        :raises SecretMismatch: only other processes can verify it"""
        return read_lease(await self._known(text), self._namespace, key, text)

    async def read_token(self, key: str | None, text: str) -> UUID | None:
        """The worker that a token names that came with this key; None: it does not count;
        :raises SecretMismatch: only other processes can verify it"""
        return read_token(await self._known(text), self._namespace, key, text)

    async def _known(self, text: str | None = None) -> Secrets:
        """The secrets; read again now and then, and if a text names one that is not known."""
        now, id = self._host.clock.monotonic(), None if text is None else secret_id(text)
        unknown = id is not None and self._secrets.named(id) is None and id not in self._strange
        if unknown and now - self._looked_at >= _REREAD_SECONDS:
            self._looked_at = now
            await self._reading()
        elif now - self._read_at >= CACHE_SECONDS:
            await self._reading()
        if id in self._strange:
            raise self._vault.refuse()
        return self._secrets

    async def _read(self) -> None:
        try:
            self._secrets, self._strange, lags = await _read(self._vault)
        except SecretMismatch as error:
            self._warn(f"this hub cannot let workers work, and is not ready: {error}")
            raise
        self._read_at = self._host.clock.monotonic()
        if lags is None:
            self._warned = None
        else:
            self._warn(
                "HEADRACE_SECRET was taken up by another hub, and is not set here: this hub goes on with the secret of"
                f" the store until {lags:%Y-%m-%d %H:%M} UTC; set it, and start this hub again before"
            )

    async def mismatch(self) -> SecretMismatch | None:
        """Why nothing can be signed here, or tested; None: it can. Nothing is taken up or made for that."""
        try:
            if await self._vault.stored() is None:
                return None
            if (await _lagging(self._vault))[2] is None:
                await self._vault.derives()
        except SecretMismatch as error:
            self._warn(f"this hub cannot let workers work, and is not ready: {error}")
            return error
        return None

    def _warn(self, message: str) -> None:
        """Log it once."""
        if message != self._warned:
            self._warned = message
            _log.warning("%s", message)


async def _read(vault: Vault) -> tuple[Secrets, frozenset[str], datetime | None]:
    """The secrets as they are stored; the first one is made here, also the first one that is derived. The ids of those
    that cannot be known here, and until when that does not matter."""
    if (lagging := await _lagging(vault))[2] is not None:
        return lagging
    derives = await vault.derives()
    for _ in range(_MAX_TRIES):
        stored, rev = await _stored(vault.engine)
        right = stored.settled(_new(derives), believes=vault.believes)
        text = msgspec.json.encode(right).decode()
        if right == stored or await vault.engine.documents.put_setting(SETTING, text, rev) is not None:
            return right.filled(lambda id: vault.derived("lease", id)), frozenset(), None
    raise Unavailable("the secret that leases are signed with could not be stored")


async def _lagging(vault: Vault) -> tuple[Secrets, frozenset[str], datetime | None]:
    """What a process without a secret goes on with while others derive; it changes nothing of what is stored."""
    until = await vault.lags_until()
    if until is None:
        return Secrets(), frozenset(), None
    stored, _ = await _stored(vault.engine)
    kept = stored.kept()
    strange = frozenset(one.id for one in stored.secrets if one.is_derived)
    return (kept, strange, until) if kept.secrets else (kept, strange, None)


async def forget_stored(engine: Engine, now: datetime) -> None:
    """Remove what was signed with before the secret was taken up, when it counts no more; no secret is needed for it.
    If others write at the same time, the next call does it."""
    root = await setting_of(engine, ROOT)
    if root is None or now < msgspec.json.decode(root.value, type=Root).since + SECRET_GRACE:
        return
    if (pages := await setting_of(engine, STATUS_PAGES)) is not None:
        await engine.documents.put_setting(STATUS_PAGES, None, pages.rev)
    stored, rev = await _stored(engine)
    if stored.kept().secrets:
        derived = Secrets(tuple(one for one in stored.secrets if one.is_derived))
        await engine.documents.put_setting(SETTING, msgspec.json.encode(derived).decode(), rev)


async def rotate(vault: Vault, host: Host, *, forget: bool, by: str | None) -> None:
    """Sign with another secret from now on; what the last one signed counts until the next rotation, unless ``forget``.

    :raises Unavailable: others rotate at the same time
    :raises SecretMismatch: the secret that it would be derived from is not set here, or another one is
    """
    engine, derives = vault.engine, await vault.derives()
    for _ in range(_MAX_TRIES):
        before, rev = await _stored(engine)
        text = msgspec.json.encode(before.rotated(_new(derives), forget=forget)).decode()
        act = audit.act("rotate", host.clock.now(), by, {"forget": forget})
        if await engine.documents.put_setting(SETTING, text, rev, act) is not None:
            engine.bus.send(Hint(Topic.SETTINGS, (SETTING,)))
            return
    raise Unavailable("the secret that leases are signed with was rotated by others at the same time")


async def _stored(engine: Engine) -> tuple[Secrets, int]:
    """The secrets as they are stored, and at which rev."""
    setting = await setting_of(engine, SETTING)
    return (Secrets(), 0) if setting is None else (msgspec.json.decode(setting.value, type=Secrets), setting.rev)


def _new(derives: bool) -> SigningSecret:
    return SigningSecret(secret_bytes(4).hex(), b"" if derives else secret_bytes(SECRET_BYTES))
