"""Webhooks as stored: their URLs, the events they want, and how their receivers responded.

What authenticates messages (secrets, tokens) is stored apart, in ``Credentials``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_WEBHOOK_FAILURES
from headrace.core.job import Spec
from headrace.core.validation import checked_name, plain
from headrace.core.webhooks.delivery import is_delivery
from headrace.core.webhooks.target import GROUPS, Occasion, Target, checked_events
from headrace.core.words import Words, vocabulary_of
from headrace.errors import ConfigError, shown

__all__ = [
    "SECRET",
    "Credentials",
    "KeptSecret",
    "Webhook",
    "Wish",
    "checked_bearer",
    "checked_secret",
    "checked_url",
    "checked_wish",
    "failed",
    "rotated",
    "secret_of",
    "succeeded",
]


SECRET = "whsec_"
"""The beginning of every secret."""

_MAX_URL_CHARACTERS, _MAX_BEARER_CHARACTERS = 2048, 4096


class Webhook(msgspec.Struct, Record, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook: a subscription, or the address that submits have named for their jobs."""

    id: str
    url: str
    created_at: datetime
    events: tuple[Occasion, ...] = GROUPS["status_change"]
    """The events of a subscription. A job that names the webhook has its own."""
    tasks: tuple[str, ...] = ()
    """Only jobs of these tasks; none: of all."""
    queues: tuple[str, ...] = ()
    """Only jobs that were submitted to these queues; none: to all."""
    customer: str | None = None
    """Only jobs of this customer, which owns the webhook; None: of all, and it is the operator's."""
    description: str | None = None
    created_by: str | None = None
    signed: bool = False
    """Whether it has a secret, by which the receiver can verify that a message is ours."""
    bearer: bool = False
    """Whether messages carry a bearer token."""
    words: Words = "headrace"
    """The words for statuses in its messages."""
    failures: int = 0
    """How many deliveries in a row failed for good."""
    off_at: datetime | None = None
    """When it was switched off; None: it is on."""
    off_because: str | None = None
    of_jobs: bool = False
    """Whether it is the address of jobs that name it, and no subscription."""
    used_at: datetime | None = None
    """For an address of jobs: when a submit last named it, by the day."""

    @property
    def on(self) -> bool:
        """Whether anything is sent to it."""
        return self.off_at is None

    def wants(self, spec: Spec) -> bool:
        """Return whether a subscription wants messages of this new job."""
        return (
            self.off_at is None
            and (self.customer is None or self.customer == spec.customer)
            and (not self.tasks or spec.task in self.tasks)
            and (not self.queues or spec.queue in self.queues)
            and not is_delivery(spec)
        )

    @property
    def target(self) -> Target:
        """Return the reference in the record of a job."""
        return Target(self.id, self.events, self.customer)


def failed(webhook: Webhook, now: datetime, why: str, *, at_once: bool = False) -> Webhook:
    """Return the webhook after a delivery failed for good; ``at_once``: its receiver replied that it is gone."""
    count = webhook.failures + 1
    counted = replace(webhook, failures=count)
    if webhook.of_jobs or not webhook.on or (count < MAX_WEBHOOK_FAILURES and not at_once):
        return counted
    because = why if at_once else f"{count} deliveries in a row failed; the last: {why}"
    return replace(counted, off_at=now, off_because=because[:500])


def succeeded(webhook: Webhook) -> Webhook:
    """Return the webhook after a message was delivered."""
    return replace(webhook, failures=0) if webhook.failures else webhook


class KeptSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret that signs messages."""

    text: str = ""
    """Empty: it is derived, and not stored."""
    until: datetime | None = None
    """Until when it also signs messages after it was replaced; None: it is in use."""
    generation: str | None = None
    """From this and the webhook's id a derived one is made."""
    given: bool = False
    """Whether the creator of the webhook supplied it."""

    def __repr__(self) -> str:  # which may be logged
        return "<KeptSecret>"


class Credentials(msgspec.Struct, frozen=True, omit_defaults=True):
    """What proves to a webhook that a message is ours; stored apart from the webhook, and never shown."""

    secrets: tuple[KeptSecret, ...] = ()
    """The one in use first."""
    bearer: str | None = None

    def __repr__(self) -> str:  # which may be logged
        return "<Credentials>"

    @property
    def derived(self) -> bool:
        """Return whether any of the secrets is not stored, and must be derived."""
        return any(one.generation is not None for one in self.secrets)

    def filled(self, text: Callable[[str], str]) -> Credentials:
        """Return the same with the derived ones filled in, by their generations."""
        found = (one if one.generation is None else replace(one, text=text(one.generation)) for one in self.secrets)
        return replace(self, secrets=tuple(found))

    def signing(self, now: datetime) -> list[str]:
        """Return the secrets that sign a message now."""
        return [one.text for one in self.secrets if one.until is None or one.until > now]


def rotated(kept: Credentials, secret: KeptSecret, now: datetime, until: datetime) -> Credentials:
    """Return the same with a new secret; the old one is used until then, earlier ones as long as before."""
    old = (replace(one, until=until if one.until is None else one.until) for one in kept.secrets)
    return replace(kept, secrets=(secret, *(one for one in old if one.until and one.until > now)))


class Wish(msgspec.Struct, frozen=True):
    """The webhook that a submit names for its job."""

    url: str
    events: tuple[Occasion, ...]
    secret: str | None = None
    bearer: str | None = None
    words: Words = "headrace"

    def __repr__(self) -> str:  # which may be logged
        return f"<Wish {urlsplit(self.url).hostname}>"


_AUTHENTICATION = {"type", "token"}
_KEYS = {"url", "webhook_url", "events", "secret", "bearer", "authentication", "words"}


def checked_wish(value: Any, name: str = "webhook") -> Wish:
    """Return a webhook as a submit may name it: a URL, or a mapping with ``url`` and optional ``events``, ``secret``,
    ``bearer`` and ``words``. ``webhook_url`` and ``authentication`` are accepted as well.

    :raises ConfigError: naming what cannot be used
    """
    if isinstance(value, Wish):
        return value
    given: Mapping[str, Any] = {"url": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} must be a URL, or a mapping with url, events, secret, bearer and words")
    if unknown := [one for one in given if one not in _KEYS]:
        raise ConfigError(f"{name} has no field {unknown[0]!r}: {', '.join(sorted(_KEYS))}")
    url = _either(given.get("url"), given.get("webhook_url"), f"{name}.url", f"{name}.webhook_url")
    if url is None:
        raise ConfigError(f"{name}.url is missing: where is it to be told?")
    bearer = _either(
        given.get("bearer"), _token(given.get("authentication"), name), f"{name}.bearer", f"{name}.authentication"
    )
    events, secret = given.get("events"), given.get("secret")
    return Wish(
        checked_url(url, f"{name}.url"),
        GROUPS["status_change"] if events is None else checked_events(events, f"{name}.events"),
        None if secret is None else checked_secret(secret, f"{name}.secret"),
        None if bearer is None else checked_bearer(bearer, f"{name}.bearer"),
        vocabulary_of(given.get("words", "headrace")).name,
    )


def _either(one: Any, other: Any, name: str, other_name: str) -> Any:
    if one is not None and other is not None and one != other:
        raise ConfigError(f"{name} and {other_name} say different things: give one of them")
    return other if one is None else one


def _token(given: Any, name: str) -> Any:
    """Return the bearer token of an ``authentication``."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or set(given) - _AUTHENTICATION or "token" not in given:
        raise ConfigError(f'{name}.authentication must be {{"type": "bearer_token", "token": …}}')
    if given.get("type", "bearer_token") not in ("bearer_token", "bearer"):
        raise ConfigError(f'{name}.authentication.type must be "bearer_token": no other is known')
    return given["token"]


def checked_url(value: Any, name: str = "url") -> str:
    """Return a URL that a webhook may have; its address is checked when something is sent there.

    :raises ConfigError: saying what is wrong with it
    """
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= _MAX_URL_CHARACTERS
        or not value.isprintable()
        or " " in value
    ):
        raise ConfigError(
            f"{name} must be an address of at most {_MAX_URL_CHARACTERS} characters, as https://example.com/hook"
        )
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{name} is no address that can be read") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ConfigError(f"{name} must begin with https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{name} must not contain a user or a password: they would be shown; use bearer")
    if parts.fragment:
        raise ConfigError(f"{name} must not have a fragment (#…): it would not be sent")
    return plain(value)


def checked_bearer(value: Any, name: str = "bearer") -> str:
    """Return a token that can be sent in a header; :raises ConfigError: without repeating it"""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= _MAX_BEARER_CHARACTERS
        or not re.fullmatch(r"[\x21-\x7e]+", value)
    ):
        raise ConfigError(
            f"{name} must be a token of at most {_MAX_BEARER_CHARACTERS} visible ASCII characters, without spaces"
        )
    return plain(value)


def checked_secret(value: Any, name: str = "secret") -> str:
    """Return a secret to sign with, as ``secret_of`` makes it; :raises ConfigError: without repeating it"""
    how = f"{name} must be {SECRET} and 24 to 64 bytes in base64"
    if not isinstance(value, str) or not value.startswith(SECRET):
        raise ConfigError(how)
    try:
        size = len(base64.b64decode(value.removeprefix(SECRET), validate=True))
    except (binascii.Error, ValueError):
        raise ConfigError(how) from None
    if not 24 <= size <= 64:
        raise ConfigError(how)
    return plain(value)


def secret_of(data: bytes) -> str:
    """Return a secret of these random bytes."""
    return SECRET + base64.b64encode(data).decode()


def checked_names(value: Sequence[str], name: str) -> tuple[str, ...]:
    """Return names of tasks or queues; :raises ConfigError:"""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{name} must be a sequence of names, not {shown(value)}")
    return tuple(dict.fromkeys(checked_name(one, f"each of {name}") for one in value))
