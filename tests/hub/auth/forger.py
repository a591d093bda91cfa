"""A forger: somebody who has read everything that a store keeps, and nothing else."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from headrace import App
from headrace.core.auth.tokens import JobLease, Secrets, SigningSecret, lease_text, token_text
from headrace.core.webhooks.subscription import secret_of

__all__ = ["Forger"]


class Forger:
    """What can be made of the settings of a store: each text in them, and all bytes that a text may stand for."""

    def __init__(self, texts: set[str]) -> None:
        self.texts = texts
        self.secrets = {data for text in texts for data in _bytes(text)} | {text.encode() for text in texts}

    @classmethod
    async def reads(cls, app: App) -> Forger:
        """Read the store."""
        found = await app.session.engine.documents.settings()
        texts = {text for one in found for text in _texts(msgspec.json.decode(one.value))}
        return cls(texts | {part for one in found for part in (one.key, one.key.partition(":")[2])})

    def leases(self, key: str | None, lease: JobLease) -> Iterator[str]:
        """Leases and tokens of this worker, signed with whatever was found."""
        for id in self.texts:
            if len(id) == 8:
                for data in self.secrets:
                    if data:
                        yield lease_text(Secrets((SigningSecret(id, data),)), "headrace", key, lease)
                        yield token_text(Secrets((SigningSecret(id, data),)), "headrace", key, lease.worker)

    def webhook_secrets(self) -> set[str]:
        """What messages may be signed with."""
        return {secret_of(data) for data in self.secrets if data} | {one for one in self.texts if "whsec_" in one}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, one in value.items():
                yield name
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)


def _bytes(text: str) -> Iterator[bytes]:
    try:
        yield bytes.fromhex(text)
    except ValueError:
        pass
    for decode in (base64.b64decode, base64.urlsafe_b64decode):
        plain = text.removeprefix("whsec_")
        try:
            yield decode(plain + "=" * (-len(plain) % 4))
        except (binascii.Error, ValueError):
            pass
