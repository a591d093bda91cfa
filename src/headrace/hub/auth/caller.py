"""Who asks: the name, the scopes and the bounds of the key that a request carries."""

from __future__ import annotations

from headrace.core.auth.api_keys import SCOPES, Permissions, Scope

__all__ = ["ANYBODY", "LOCAL", "SCOPES", "Caller", "Scope"]


class Caller(Permissions, frozen=True, kw_only=True):
    """Whose request it is, and what it may do."""

    name: str
    """``by`` of every act."""
    key: str | None = None
    """The prefix of the key; None: there are no keys, and the caller is on this machine."""


LOCAL = Caller(name="local", scopes=frozenset(SCOPES) - {"engine"})
"""Whoever asks a hub without keys, which listens on this machine alone."""

ANYBODY = Caller(name="anybody", scopes=frozenset())
"""Whoever asks for what needs no key."""
