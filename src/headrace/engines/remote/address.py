"""Where a hub is, and how it is asked."""

from __future__ import annotations

import msgspec

from headrace.core.keys import SHOWN

__all__ = ["Address"]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A hub, and the key to it."""

    host: str
    port: int
    tls: bool = False
    root: str = ""
    """What stands before all of its paths, as in ``/jobs``; a proxy may have put it there."""
    key: str | None = None

    def __repr__(self) -> str:  # the key opens everything
        return f"<Address {self}>"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.root}"

    @property
    def authority(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def hints(self) -> str:
        """Where hints are heard."""
        return f"{'wss' if self.tls else 'ws'}://{self.authority}{self.root}/rpc/hints"

    @property
    def headers(self) -> dict[str, str]:
        """What opens the door."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    @property
    def whose(self) -> str:
        """The key in words, without what opens the door."""
        return "no key" if self.key is None else f"the key {self.key[:SHOWN]}…"
