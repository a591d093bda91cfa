"""Keys of the hub: what they allow, how a key is recognised, and which keys may create which."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Literal, get_args

import msgspec

from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_API_KEY_NAMES
from headrace.core.limits.profiles import checked_profiles
from headrace.core.validation import checked_key, checked_name
from headrace.errors import ConfigError, shown

__all__ = [
    "MARK",
    "SCOPES",
    "SHOWN_KEY_CHARACTERS",
    "ApiKey",
    "Keyring",
    "Permissions",
    "Scope",
    "StoredKey",
    "checked_grant",
    "digest_of",
    "is_key",
    "lacks",
    "written",
]

Scope = Literal["read", "submit", "work", "act", "admin", "engine"]
"""What a key may do; each operation and each message of a socket needs one."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

WHOLE: frozenset[Scope] = frozenset({"admin", "engine"})
"""Scopes that reach the jobs of all customers: a key of one customer never has them."""

MARK = "hr_"
"""The beginning of every key, by which people and scanners of leaked secrets recognise one."""
SHOWN_KEY_CHARACTERS = len(MARK) + 8
"""How many characters of a key are stored and shown: enough to tell keys apart, too few to open anything."""


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may do at a hub, and with what."""

    scopes: frozenset[Scope]
    customer: str | None = None
    """Sees and makes only jobs of this customer; None: of all."""
    tasks: frozenset[str] | None = None
    """May submit only these; None: all."""
    queues: frozenset[str] | None = None
    """May submit only to these; None: to all."""
    expires_at: datetime | None = None
    profiles: int | None = None
    """For how many pairs of task and requirements its customer may have live jobs; None: the default."""

    def may(self, scope: Scope | None) -> bool:
        """Return whether it has the scope; None: the operation needs none."""
        return scope is None or scope in self.scopes

    def has_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


class ApiKey(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A key as it is shown: everything but the key itself."""

    name: str
    """Its own name, and ``by`` of everything done with it."""
    prefix: str
    """How the key begins, by which a key that was found is recognised."""
    scopes: tuple[Scope, ...]
    customer: str | None = None
    tasks: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    profiles: int | None = None
    """For how many pairs of task and requirements its customer may have live jobs; None: the default."""
    created_at: datetime
    created_by: str | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    """When it was last used, to the hour; None: never."""

    @property
    def grant(self) -> Permissions:
        """What its holder may do."""
        return msgspec.convert(self, Permissions, from_attributes=True)


class StoredKey(msgspec.Struct, frozen=True):
    """A key as it is stored: as its digest, from which the key cannot be found."""

    digest: str
    key: ApiKey


class Keyring(msgspec.Struct, frozen=True):
    """All keys of a store."""

    keys: tuple[StoredKey, ...] = ()
    unreadable: tuple[str, ...] = ()
    """The names of keys that only another version can read: they open nothing here, but count as keys."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.unreadable)


def written(secret: bytes) -> str:
    """The text of a key, which its holder sends."""
    return MARK + urlsafe_b64encode(secret).rstrip(b"=").decode()


def digest_of(text: str) -> str:
    """Return what is stored of a key. A key is 32 random bytes: no dictionary finds it, so it needs no slow hash."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def is_key(text: str, digest: str) -> bool:
    """Return whether this is the key of that digest, in constant time."""
    return compare_digest(digest_of(text), digest)


def checked_grant(
    scopes: Iterable[Any],
    customer: Any,
    tasks: Iterable[Any] | None,
    queues: Iterable[Any] | None,
    expires_at: datetime | None,
    profiles: Any = None,
) -> Permissions:
    """Return what a new key is to allow; :raises ConfigError: naming what cannot be used"""
    given: list[Any] = [scopes] if isinstance(scopes, str) else list(scopes)
    for one in given:
        if not isinstance(one, str) or one not in SCOPES:
            raise ConfigError(f"{shown(one)} is no scope: they are {', '.join(SCOPES)}")
    if not given:
        raise ConfigError(f"a key needs a scope: {', '.join(SCOPES)}")
    if customer is not None:
        customer = checked_key(customer, "customer")
        if reach := sorted(WHOLE.intersection(given)):
            raise ConfigError(f"{' and '.join(reach)} reaches everybody's jobs: such a key cannot have a customer")
    elif profiles is not None:
        raise ConfigError("profiles are those of a customer: name the customer, too")
    return Permissions(
        scopes=frozenset(scope for scope in SCOPES if scope in given),
        customer=customer,
        tasks=_names(tasks, "tasks"),
        queues=_names(queues, "queues"),
        expires_at=expires_at,
        profiles=checked_profiles(profiles),
    )


def _names(given: Iterable[Any] | None, what: str) -> frozenset[str] | None:
    if given is None:
        return None
    names = frozenset(checked_name(one, f"each of {what}") for one in ([given] if isinstance(given, str) else given))
    if not 1 <= len(names) <= MAX_API_KEY_NAMES:
        raise ConfigError(
            f"{what}: name 1 to {MAX_API_KEY_NAMES} of them, or leave it out for all; there are {len(names)}"
        )
    return names


def lacks(granter: Permissions, wanted: Permissions) -> str | None:
    """Return what the granter lacks to give these permissions, in words; None: nothing."""
    if "engine" in wanted.scopes:
        return "a key with the scope engine is made on the command line only, next to the store"
    if missing := [scope for scope in SCOPES if scope in wanted.scopes - granter.scopes]:
        return f"you lack the scope {' and '.join(missing)}"
    if granter.customer not in (None, wanted.customer):
        return "your key is one customer's"
    for what in ("tasks", "queues"):
        own, given = getattr(granter, what), getattr(wanted, what)
        if own is not None and (given is None or given - own):
            return f"your key is bound to the {what} {', '.join(sorted(own))}"
    if granter.expires_at is not None and (wanted.expires_at is None or wanted.expires_at > granter.expires_at):
        return f"your key expires at {granter.expires_at.isoformat()}, and the new one would outlast it"
    return None
