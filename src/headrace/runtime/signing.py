"""Signing leases and tokens with secrets that every hub on the store has and none shows."""

from __future__ import annotations

import math
from uuid import UUID

import msgspec

from headrace.core import audit
from headrace.core.signed import (
    MADE_OF,
    Lease,
    Secret,
    Secrets,
    lease_text,
    read_lease,
    read_token,
    secret_id,
    token_text,
)
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from headrace.runtime.secret import secret_bytes
from headrace.runtime.shared import Shared
from headrace.runtime.vault import Vault, setting_of

__all__ = ["SETTING", "Signing", "rotate"]

SETTING = "lease-secret"
"""The setting that holds the secrets, or the ids of those that are derived. It is read here, and nowhere else."""
FRESH = 10.0
"""Seconds for which the secrets are believed as they were read: one that is taken back is refused after that."""
_AGAIN = 1.0
"""Seconds between two reads for the sake of texts that name a secret not known here."""
_TRIES = 20


class Signing:
    """Makes and tests leases and tokens; a store without a secret is given one."""

    def __init__(self, vault: Vault, host: Host, namespace: str) -> None:
        self._vault, self._host, self._namespace = vault, host, namespace
        self._secrets = Secrets()
        self._read_at = -math.inf
        self._reading = Shared(self._read)

    async def lease(self, key: str | None, lease: Lease) -> str:
        """The text of a lease."""
        return lease_text(await self._known(), self._namespace, key, lease)

    async def token(self, key: str | None, worker: UUID) -> str:
        """The text of a token."""
        return token_text(await self._known(), self._namespace, key, worker)

    async def read_lease(self, key: str | None, text: str) -> Lease | None:
        """The lease in a text that came with this key; None: it does not count."""
        return read_lease(await self._known(text), self._namespace, key, text)

    async def read_token(self, key: str | None, text: str) -> UUID | None:
        """The worker that a token names that came with this key; None: it does not count."""
        return read_token(await self._known(text), self._namespace, key, text)

    async def _known(self, text: str | None = None) -> Secrets:
        """The secrets; read again now and then, and if a text names one that is not known."""
        age = self._host.clock.monotonic() - self._read_at
        id = None if text is None else secret_id(text)
        if age >= FRESH or (id is not None and age >= _AGAIN and self._secrets.named(id) is None):
            await self._reading()
        return self._secrets

    async def _read(self) -> None:
        self._secrets = await _read(self._vault)
        self._read_at = self._host.clock.monotonic()


async def _read(vault: Vault) -> Secrets:
    """The secrets as they are stored; the first one is made here, also the first one that is derived."""
    derives = await vault.derives()
    for _ in range(_TRIES):
        stored, rev = await _stored(vault.engine)
        right = stored.settled(_new(derives), believes=vault.believes)
        text = msgspec.json.encode(right).decode()
        if right == stored or await vault.engine.documents.put_setting(SETTING, text, rev) is not None:
            return right.filled(lambda id: vault.derived("lease", id))
    raise Unavailable("the secret that leases are signed with could not be stored")


async def rotate(vault: Vault, host: Host, *, forget: bool, by: str | None) -> None:
    """Sign with another secret from now on; what the last one signed counts until the next rotation, unless ``forget``.

    :raises Unavailable: others rotate at the same time
    :raises SecretMismatch: the secret that it would be derived from is not set here, or another one is
    """
    engine, derives = vault.engine, await vault.derives()
    for _ in range(_TRIES):
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


def _new(derives: bool) -> Secret:
    return Secret(secret_bytes(4).hex(), b"" if derives else secret_bytes(MADE_OF))
