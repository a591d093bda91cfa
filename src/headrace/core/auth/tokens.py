"""Leases and tokens of workers behind a hub: signed texts that only hubs of the store can make and check.

A *lease* says that a job at an epoch was given to a worker; a *token* says which worker the sender is. Both are bound
to the key with which the worker connected. They contain ids and no secrets.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from hashlib import sha256
from uuid import UUID

import msgspec

__all__ = [
    "SECRET_BYTES",
    "JobLease",
    "Secrets",
    "SigningSecret",
    "derived",
    "lease_text",
    "read_lease",
    "read_token",
    "secret_id",
    "token_text",
]

SECRET_BYTES = 32
"""Bytes of a secret."""
MAX_SECRETS = 2
"""How many secrets are accepted: the one that signs, and the one before it."""

_LEASE, _TOKEN = "hrl", "hrw"
_EPOCH_BYTES = 8
_MAX_TEXT_CHARACTERS = 256
"""Maximum characters of a text that is checked; a longer one is refused."""


class SigningSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """What texts are signed with; its id says in a text which one it was."""

    id: str
    data: bytes = b""
    """Empty: it is derived, and not stored."""

    @property
    def is_derived(self) -> bool:
        """Return whether the store has only its id."""
        return not self.data

    def __repr__(self) -> str:  # which may be logged
        return f"<Secret {self.id}>"


class Secrets(msgspec.Struct, frozen=True):
    """The secrets of a store, the newest first: it signs, and all of them are accepted."""

    secrets: tuple[SigningSecret, ...] = ()

    def rotated(self, new: SigningSecret, *, forget: bool = False) -> Secrets:
        """Return the same with a new one that signs; ``forget``: what was signed before is void at once."""
        return Secrets((new,) if forget else (new, *self.secrets)[:MAX_SECRETS])

    def settled(self, new: SigningSecret, *, believes: bool) -> Secrets:
        """Return the secrets as they must be stored, given the next one, which signs if none does.

        While the next one is derived, stored ones are accepted for a while; else the derived ones are unknown.
        """
        kept = [one for one in self.secrets if one.is_derived == new.is_derived or (new.is_derived and believes)]
        signs = bool(kept) and kept[0].is_derived == new.is_derived
        return Secrets(tuple(kept if signs else (new, *kept))[:MAX_SECRETS])

    def kept(self) -> Secrets:
        """Return those that are stored."""
        return Secrets(tuple(one for one in self.secrets if not one.is_derived))

    def filled(self, data: Callable[[str], bytes]) -> Secrets:
        """Return the same with the derived ones filled in, by their ids."""
        return Secrets(tuple(SigningSecret(one.id, data(one.id)) if one.is_derived else one for one in self.secrets))

    def named(self, id: str) -> SigningSecret | None:
        """Return the secret of this id, if it is accepted."""
        return next((one for one in self.secrets if one.id == id), None)


class JobLease(msgspec.Struct, frozen=True):
    """Which job, at which epoch, was given to which worker."""

    job: UUID
    epoch: int
    worker: UUID


def lease_text(secrets: Secrets, namespace: str, key: str | None, lease: JobLease) -> str:
    """Return the lease as it is given to the worker, always the same text; ``key``: the one with which it connected."""
    body = lease.job.bytes + lease.epoch.to_bytes(_EPOCH_BYTES, "big") + lease.worker.bytes
    return _signed(secrets, _LEASE, namespace, key, body)


def token_text(secrets: Secrets, namespace: str, key: str | None, worker: UUID) -> str:
    """Return the token of a worker."""
    return _signed(secrets, _TOKEN, namespace, key, worker.bytes)


def read_lease(secrets: Secrets, namespace: str, key: str | None, text: str) -> JobLease | None:
    """Return the lease in a text; None: it is none, or not of this store, this namespace or this key."""
    body = _read(secrets, _LEASE, namespace, key, text)
    if body is None or len(body) != 32 + _EPOCH_BYTES:
        return None
    epoch = int.from_bytes(body[16 : 16 + _EPOCH_BYTES], "big")
    return JobLease(UUID(bytes=body[:16]), epoch, UUID(bytes=body[16 + _EPOCH_BYTES :]))


def read_token(secrets: Secrets, namespace: str, key: str | None, text: str) -> UUID | None:
    """Return the worker that a token names; None: it is none, or not of this store, this namespace or this key."""
    body = _read(secrets, _TOKEN, namespace, key, text)
    return UUID(bytes=body) if body is not None and len(body) == 16 else None


def derived(root: bytes, purpose: str, *ids: str) -> bytes:
    """Return the secret for one purpose: it reveals neither the root nor the secrets of other purposes."""
    return hmac.digest(root, b"".join(_counted("headrace", purpose, *ids)), sha256)


def secret_id(text: str) -> str | None:
    """Return the id of the secret that a text names as its signer; None: it is no such text."""
    parts = text.split(".") if len(text) <= _MAX_TEXT_CHARACTERS else ()
    return parts[1] if len(parts) == 4 and parts[0] in (_LEASE, _TOKEN) else None


def _signed(secrets: Secrets, domain: str, namespace: str, key: str | None, body: bytes) -> str:
    secret = secrets.secrets[0]
    return f"{domain}.{secret.id}.{_text(body)}.{_text(_mac(secret, domain, namespace, key, body))}"


def _read(secrets: Secrets, domain: str, namespace: str, key: str | None, text: str) -> bytes | None:
    id = secret_id(text)
    secret = None if id is None else secrets.named(id)
    if secret is None or not text.isascii():
        return None
    found, _, data, mac = text.split(".")
    try:
        body = _bytes(data)
        given = _bytes(mac)
    except (NotBase64, ValueError):
        return None
    # Every field is part of what is compared, so a change of any field is found in the same time.
    right = hmac.compare_digest(given, _mac(secret, domain, namespace, key, body))
    # One text for each lease: base64 that spells the same bytes differently is refused.
    return body if right and found == domain and _text(body) == data and _text(given) == mac else None


def _mac(secret: SigningSecret, domain: str, namespace: str, key: str | None, body: bytes) -> bytes:
    said = b"".join(_counted(domain, namespace, "" if key is None else f"key {key}")) + body
    return hmac.digest(secret.data, said, sha256)


def _counted(*texts: str) -> Iterator[bytes]:
    """Yield the texts so that no two lists of them give the same bytes."""
    for text in texts:
        data = text.encode(errors="surrogatepass")
        yield len(data).to_bytes(4, "big") + data


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
