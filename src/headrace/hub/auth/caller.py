"""The caller of a request: the name, the scopes and the bounds of its key."""

from __future__ import annotations

from headrace.core.auth.api_keys import SCOPES, Permissions, Scope

__all__ = ["ANYBODY", "LOCAL", "SCOPES", "Caller", "Scope"]


class Caller(Permissions, frozen=True, kw_only=True):
    """The caller of a request, and what it may do."""

    name: str
    """``by`` of every action."""
    key: str | None = None
    """The prefix of the key; None: there are no keys, and the caller is on this machine."""


LOCAL = Caller(name="local", scopes=frozenset(SCOPES) - {"engine"})
"""Every caller of a hub without keys, which listens on this machine alone."""

ANYBODY = Caller(name="anybody", scopes=frozenset())
"""Every caller of operations that need no key."""
