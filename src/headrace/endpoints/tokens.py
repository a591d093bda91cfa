"""Tokens of public status pages: who was given the address of a job may look at it, and nobody else can guess it."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.errors import ConfigError
from headrace.runtime.secret import kept_secret

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Tokens"]

SETTING = "endpoints-secret"
"""The setting that holds the secret of the store. It is read here, and nowhere else."""
SHORTEST = 16
"""Characters of a secret that is given."""


class Tokens:
    """Makes and tests the tokens of one App's jobs; all processes on a store make the same ones."""

    def __init__(self, app: App, secret: str | bytes | None = None) -> None:
        """``secret``: what they are signed with; None: the store keeps one, and is given it if it has none.

        :raises ConfigError: the secret is too short
        """
        given = secret.encode() if isinstance(secret, str) else secret
        if given is not None and len(given) < SHORTEST:
            raise ConfigError(f"secret must have {SHORTEST} characters at least: python -c 'import secrets; ...'")
        self._app, self._secret = app, given

    async def ready(self) -> None:
        """Read the secret, if it is not known yet."""
        if self._secret is None:
            self._secret = await kept_secret(self._app.engine, SETTING)

    def of(self, id: UUID) -> str:
        """The token of a job, once the secret is known."""
        assert self._secret is not None
        said = b"headrace job\0" + self._app.settings.namespace.encode() + b"\0" + id.bytes
        return urlsafe_b64encode(hmac.digest(self._secret, said, sha256)).rstrip(b"=").decode()

    def opens(self, id: UUID, token: str | None) -> bool:
        """Whether this is the token of the job; it takes the same time however much of it is right."""
        given = (token or "").encode(errors="surrogatepass")
        return hmac.compare_digest(given, self.of(id).encode())
