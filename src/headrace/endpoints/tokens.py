"""Tokens of public status pages: who was given the address of a job may look at it, and nobody else can guess it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import datetime
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.errors import ConfigError
from headrace.runtime.vault import STATUS_PAGES

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Tokens"]

SHORTEST = 16
"""Characters of a secret that is given."""


class Tokens:
    """Makes and tests the tokens of one App's jobs; all processes on a store make the same ones."""

    def __init__(self, app: App, secret: str | bytes | None = None) -> None:
        """``secret``: what they are signed with; None: what is derived from ``HEADRACE_SECRET``, or what the store
        keeps if that is not set.

        :raises ConfigError: the secret is too short
        """
        given = secret.encode() if isinstance(secret, str) else secret
        if given is not None and len(given) < SHORTEST:
            raise ConfigError(f"secret must have {SHORTEST} characters at least: python -c 'import secrets; ...'")
        self._app = app
        self._secret = None if given is None else blake2b(given).digest()
        self._before: tuple[bytes, datetime] | None = None
        """What they were signed with before ``HEADRACE_SECRET`` was set, and until when that counts."""

    async def ready(self) -> None:
        """Read the secret, if it is not known yet; :raises SecretMismatch:"""
        if self._secret is None:
            vault = self._app.session.vault
            before, secret = await vault.kept_before(STATUS_PAGES), await vault.kept(STATUS_PAGES)
            self._before = None if before is None else (blake2b(before[0]).digest(), before[1])
            self._secret = blake2b(secret).digest()

    def of(self, id: UUID) -> str:
        """The token of a job, once the secret is known."""
        assert self._secret is not None
        return self._token(self._secret, id)

    def _token(self, secret: bytes, id: UUID) -> str:
        said = self._app.settings.namespace.encode() + b"\0" + id.bytes
        # A keyed BLAKE2 is a MAC of its own, and is made in a tenth of the time of an HMAC.
        made = blake2b(said, key=secret, digest_size=24, person=b"headrace job")
        return urlsafe_b64encode(made.digest()).decode()

    def opens(self, id: UUID, token: str | None) -> bool:
        """Whether this is the token of the job; it takes the same time however much of it is right."""
        given = (token or "").encode(errors="surrogatepass")
        if compare_digest(given, self.of(id).encode()):
            return True
        if self._before is None or self._before[1] <= self._app.host.clock.now():
            return False
        return compare_digest(given, self._token(self._before[0], id).encode())
