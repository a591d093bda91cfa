"""Secrets: bytes that nobody can guess. Ids and dice are no secrets, and are never used as such."""

from __future__ import annotations

import secrets

import msgspec

from headrace.engine import Engine

__all__ = ["kept_secret", "secret_bytes"]


def secret_bytes(count: int = 32) -> bytes:
    """So many bytes that the system's own source of chance has made."""
    return secrets.token_bytes(count)


async def kept_secret(engine: Engine, key: str) -> bytes:
    """The secret that the store keeps as this setting; it is made if there is none, once for all who ask."""
    while True:
        found = next((one for one in await engine.documents.settings(key) if one.key == key), None)
        if found is None:
            found = await engine.documents.put_setting(key, msgspec.json.encode(secret_bytes().hex()).decode(), 0)
        if found is not None:  # else somebody else has made it meanwhile
            return bytes.fromhex(msgspec.json.decode(found.value, type=str))
