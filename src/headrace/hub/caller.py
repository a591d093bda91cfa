"""Who asks: the name, the scopes and the bounds of the key that a request carries."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

__all__ = ["LOCAL", "SCOPES", "Caller", "Scope"]

Scope = Literal["read", "submit", "work", "act", "admin", "engine"]
"""What a key may do; each operation and each message of a socket needs one."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is, and what it may do."""

    name: str
    """``by`` of every act."""
    scopes: frozenset[Scope]
    key: str | None = None
    """The id of the key; None: there are no keys, and the caller is on this machine."""
    customer: str | None = None
    """Sees and makes only jobs of this customer; None: of all."""
    tasks: frozenset[str] | None = None
    """May submit only these; None: all."""
    queues: frozenset[str] | None = None

    def may(self, scope: Scope | None) -> bool:
        """Whether it has the scope; None: nobody needs one."""
        return scope is None or scope in self.scopes


LOCAL = Caller(name="local", scopes=frozenset(SCOPES) - {"engine"})
"""Whoever asks a hub without keys, which listens on this machine alone."""
