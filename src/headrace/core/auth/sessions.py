"""Sessions at the dashboard: random texts, of which only digests are stored, beside the digest of their key."""

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
"""Random bytes in a session."""
_MAX_CLOCK_DIFFERENCE = timedelta(hours=1)
_MAX_TEXT_CHARACTERS = 128
"""Maximum characters of a text that is checked; a longer one is no session."""


class Session(msgspec.Struct, frozen=True):
    """A session as it is kept: its digest, which opens nothing."""

    digest: str
    until: datetime


class Sessions(msgspec.Struct, frozen=True):
    """The sessions of one key, the newest first."""

    key: str
    """The digest of their key; another key may begin with the same characters."""
    sessions: tuple[Session, ...] = ()

    def living(self, now: datetime) -> Sessions:
        """Return the same without expired sessions."""
        # A session that would last longer than any may was begun by a wrong clock; the clocks of hubs differ a little.
        return Sessions(
            self.key,
            tuple(
                one
                for one in self.sessions
                if now < one.until <= now + DASHBOARD_SESSION_LIFETIME + _MAX_CLOCK_DIFFERENCE
            ),
        )

    def begun(self, key: str, text: str, now: datetime) -> Sessions:
        """Return the same with one more; sessions of an earlier key are dropped."""
        others = self.living(now).sessions if self.key == key else ()
        return Sessions(
            key, (Session(session_digest(text), now + DASHBOARD_SESSION_LIFETIME), *others)[:MAX_DASHBOARD_SESSIONS]
        )

    def ended(self, text: str) -> Sessions:
        """Return the same without this session."""
        digest = session_digest(text)
        return Sessions(self.key, tuple(one for one in self.sessions if one.digest != digest))

    def has(self, key: str, text: str, now: datetime) -> datetime | None:
        """Return when this session of this key ends; None: there is none, or it has ended."""
        digest = session_digest(text)
        found = [one for one in self.living(now).sessions if compare_digest(one.digest, digest)]
        return found[0].until if found and compare_digest(self.key, key) else None


def session_text(prefix: str, chance: bytes) -> str:
    """Return the text of a session, which only the browser of the key's owner has."""
    return f"{prefix}.{urlsafe_b64encode(chance).rstrip(b'=').decode()}"


def prefix_of(text: str) -> str | None:
    """Return the beginning of the key that a session's text names; None: it is no such text."""
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
    """Return the secret for the forms of this session, beside the one for all: what is stored reveals neither."""
    return sha256(b"form " + text.encode()).hexdigest()


def session_digest(text: str) -> str:
    """Return what is stored of a session. It is random: no dictionary finds it, so it needs no slow hash."""
    return sha256(text.encode()).hexdigest()
