"""Signing leases and tokens with the secrets of the store, which every hub on it reads and none shows."""

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
from headrace.engine import Engine, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from headrace.runtime.secret import secret_bytes
from headrace.runtime.shared import Shared

__all__ = ["SETTING", "Signing", "rotate"]

SETTING = "lease-secret"
"""The setting that holds the secrets. It is read here, and nowhere else."""
FRESH = 10.0
"""Seconds for which the secrets are believed as they were read: one that is taken back is refused after that."""
_AGAIN = 1.0
"""Seconds between two reads for the sake of texts that name a secret not known here."""
_TRIES = 20


class Signing:
    """Makes and tests leases and tokens; a store without a secret is given one."""

    def __init__(self, engine: Engine, host: Host, namespace: str) -> None:
        self._engine, self._host, self._namespace = engine, host, namespace
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
        self._secrets = await _read(self._engine)
        self._read_at = self._host.clock.monotonic()


async def _read(engine: Engine) -> Secrets:
    """The secrets as they are stored; the first one is made here."""
    for _ in range(_TRIES):
        setting = await _setting(engine)
        if setting is not None:
            return msgspec.json.decode(setting.value, type=Secrets)
        made = Secrets().rotated(_new())
        await engine.documents.put_setting(SETTING, msgspec.json.encode(made).decode(), 0)
    raise Unavailable("the secret that leases are signed with could not be stored")


async def rotate(engine: Engine, host: Host, *, forget: bool, by: str | None) -> None:
    """Sign with another secret from now on; what the last one signed counts until the next rotation, unless ``forget``.

    :raises Unavailable: others rotate at the same time
    """
    for _ in range(_TRIES):
        setting = await _setting(engine)
        before = Secrets() if setting is None else msgspec.json.decode(setting.value, type=Secrets)
        text = msgspec.json.encode(before.rotated(_new(), forget=forget)).decode()
        act = audit.act("rotate", host.clock.now(), by, {"forget": forget})
        if await engine.documents.put_setting(SETTING, text, 0 if setting is None else setting.rev, act) is not None:
            engine.bus.send(Hint(Topic.SETTINGS, (SETTING,)))
            return
    raise Unavailable("the secret that leases are signed with was rotated by others at the same time")


async def _setting(engine: Engine) -> Setting | None:
    return next((one for one in await engine.documents.settings(SETTING) if one.key == SETTING), None)


def _new() -> Secret:
    return Secret(secret_bytes(4).hex(), secret_bytes(MADE_OF))
