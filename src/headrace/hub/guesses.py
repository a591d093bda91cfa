"""Wrong keys at the login, counted by address: after a few, nobody there is heard for a while."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

__all__ = ["Guesses"]

AT_ONCE = 5
"""Wrong keys before one has to wait."""
EVERY = 12.0
"""Seconds after which one of them is forgotten: five a minute."""
ADDRESSES = 10_000
"""Addresses that are remembered at once; beyond that, those that have guessed least are forgotten."""


class Guesses:
    """Says how long an address has to wait before another key is looked at, right or wrong.

    Whoever guessed right meanwhile would else be told so. All moments are monotonic seconds.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """When all wrong keys of an address are forgotten; each adds ``EVERY`` seconds."""

    def wait(self, address: str | None, now: float) -> float:
        """Seconds until a key from this address is looked at; 0: at once."""
        return max(0.0, self._until.get(_whose(address), now) - now - (AT_ONCE - 1) * EVERY)

    def wrong(self, address: str | None, now: float) -> None:
        """Count a wrong key."""
        whose = _whose(address)
        self._until[whose] = max(self._until.get(whose, now), now) + EVERY
        if len(self._until) > ADDRESSES:
            kept = sorted(((until, one) for one, until in self._until.items() if until > now), reverse=True)
            self._until = {one: until for until, one in kept[: ADDRESSES // 2]}


def _whose(address: str | None) -> str:
    """By what one sender is known: of IPv6, everybody has a whole network of addresses."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return address or ""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))
    return str(found)
