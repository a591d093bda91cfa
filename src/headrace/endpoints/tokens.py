"""Tokens of public status pages: they give access to everyone who has a job's address, and cannot be guessed."""

from __future__ import annotations

import math
from base64 import urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.errors import ConfigError
from headrace.runtime.secrets import STATUS_PAGES, Kept
from headrace.runtime.single_flight import SingleFlight

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Tokens"]

MIN_SECRET_CHARACTERS = 16
"""Minimum characters of a secret that is given."""
SECRET_CACHE_SECONDS = 60.0
"""Seconds for which the secret is cached."""
_REREAD_SECONDS = 1.0
"""Minimum seconds between two reads because of tokens that do not match."""


class Tokens:
    """Makes and checks the tokens of one App's jobs; all processes on a store make the same ones."""

    def __init__(self, app: App, secret: str | bytes | None = None) -> None:
        """``secret``: signs the tokens; None: it is derived from ``HEADRACE_SECRET``, or kept by the store if that is
        not set.

        :raises ConfigError: the secret is too short
        """
        given = secret.encode() if isinstance(secret, str) else secret
        if given is not None and len(given) < MIN_SECRET_CHARACTERS:
            raise ConfigError(
                f"secret must have {MIN_SECRET_CHARACTERS} characters at least: python -c 'import secrets; ...'"
            )
        self._app = app
        self._given = None if given is None else blake2b(given).digest()
        self._kept: Kept | None = None
        self._read_at = self._looked_at = -math.inf
        self._reading = SingleFlight(self._read)

    async def ready(self) -> None:
        """Read the secret, unless it was read within the last minute; :raises SecretMismatch:"""
        if self._given is None and not self._fresh():
            await self._reading()

    def _fresh(self) -> bool:
        kept, clock = self._kept, self._app.host.clock
        if kept is None or clock.monotonic() - self._read_at >= SECRET_CACHE_SECONDS:
            return False
        return not kept.lags or kept.until is None or clock.now() < kept.until

    async def _read(self) -> None:
        kept = await self._app.session.vault.kept(STATUS_PAGES)
        before = None if kept.before is None else blake2b(kept.before).digest()
        self._kept = kept._replace(secret=blake2b(kept.secret).digest(), before=before)
        self._read_at = self._app.host.clock.monotonic()

    def of(self, id: UUID) -> str:
        """Return the token of a job, once the secret is read."""
        if self._given is not None:
            return self._token(self._given, id)
        assert self._kept is not None
        return self._token(self._kept.secret, id)

    def _token(self, secret: bytes, id: UUID) -> str:
        said = self._app.settings.namespace.encode() + b"\0" + id.bytes
        # A keyed BLAKE2 is a MAC by itself, and takes a tenth of the time of an HMAC.
        made = blake2b(said, key=secret, digest_size=24, person=b"headrace job")
        return urlsafe_b64encode(made.digest()).decode()

    async def admits(self, id: UUID, token: str | None) -> bool:
        """Return whether this is the token of the job; read the secret first if necessary.

        :raises SecretMismatch: it is not known here, or the token may be from a process that derives it
        """
        await self.ready()
        if self.opens(id, token):
            return True
        if self._given is not None or not token:
            return False
        now = self._app.host.clock.monotonic()
        if now - self._looked_at >= _REREAD_SECONDS:  # another process may have replaced it since
            self._looked_at = now
            await self._reading()
        if self.opens(id, token):
            return True
        if self._kept is not None and self._kept.lags:
            raise self._app.session.vault.refuse()
        return False

    def opens(self, id: UUID, token: str | None) -> bool:
        """Return whether this is the token of the job, in the same time however much of it is right."""
        given, kept = (token or "").encode(errors="surrogatepass"), self._kept
        if compare_digest(given, self.of(id).encode()):
            return True
        if kept is None or kept.before is None or kept.until is None or kept.until <= self._app.host.clock.now():
            return False
        return compare_digest(given, self._token(kept.before, id).encode())
