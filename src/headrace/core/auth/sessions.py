"""Sessions of people at the dashboard: texts of chance, of which nothing is kept but digests, beside their key's."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest

import msgspec

from headrace.core.auth.api_keys import SHOWN_KEY_CHARACTERS
from headrace.core.defaults import DASHBOARD_SESSION_LIFETIME, MAX_DASHBOARD_SESSIONS

__all__ = ["SESSION_RANDOM_BYTES", "Session", "Sessions", "form_secret", "prefix_of", "session_digest", "session_text"]

SESSION_RANDOM_BYTES = 32
"""Bytes of chance in a session."""
_MAX_CLOCK_DIFFERENCE = timedelta(hours=1)
_MAX_TEXT_CHARACTERS = 128
"""Characters of the longest text that is looked at."""


class Session(msgspec.Struct, frozen=True):
    """A session as it is kept: its digest, which opens nothing."""

    digest: str
    until: datetime


class Sessions(msgspec.Struct, frozen=True):
    """The sessions of one key, the newest first."""

    key: str
    """The digest of the key: they are those of no other that begins alike."""
    sessions: tuple[Session, ...] = ()

    def living(self, now: datetime) -> Sessions:
        """Without those that are over."""
        # One that would last longer than any can was begun by a clock that was wrong; those of hubs differ a little.
        return Sessions(
            self.key,
            tuple(
                one
                for one in self.sessions
                if now < one.until <= now + DASHBOARD_SESSION_LIFETIME + _MAX_CLOCK_DIFFERENCE
            ),
        )

    def begun(self, key: str, text: str, now: datetime) -> Sessions:
        """With one more; those of a key before this one are gone."""
        others = self.living(now).sessions if self.key == key else ()
        return Sessions(
            key, (Session(session_digest(text), now + DASHBOARD_SESSION_LIFETIME), *others)[:MAX_DASHBOARD_SESSIONS]
        )

    def ended(self, text: str) -> Sessions:
        """Without this one."""
        digest = session_digest(text)
        return Sessions(self.key, tuple(one for one in self.sessions if one.digest != digest))

    def has(self, key: str, text: str, now: datetime) -> datetime | None:
        """Until when this session of this key lasts; None: there is no such one, or no more."""
        digest = session_digest(text)
        found = [one for one in self.living(now).sessions if compare_digest(one.digest, digest)]
        return found[0].until if found and compare_digest(self.key, key) else None


def session_text(prefix: str, chance: bytes) -> str:
    """What the browser of somebody with this key has, and nobody else."""
    return f"{prefix}.{urlsafe_b64encode(chance).rstrip(b'=').decode()}"


def prefix_of(text: str) -> str | None:
    """How the key begins whose session this says to be; None: it is none."""
    prefix, dot, chance = text.partition(".")
    return (
        prefix
        if dot
        and chance
        and len(prefix) == SHOWN_KEY_CHARACTERS
        and len(text) <= _MAX_TEXT_CHARACTERS
        and text.isascii()
        else None
    )


def form_secret(text: str) -> str:
    """What forms of this session are signed with, beside the secret of all: neither it nor the session is found from
    what is kept."""
    return sha256(b"form " + text.encode()).hexdigest()


def session_digest(text: str) -> str:
    """What is kept of a session. It is chance: no dictionary finds it, so that it needs no slow hash."""
    return sha256(text.encode()).hexdigest()
