"""Where webhooks may go: to public addresses, and to private ones only if the operator allows them.

Names are not tested: a name is resolved, its address is tested, and the connection goes to the very address that was
tested. A name that resolves to another address the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from headrace.core.webhooks.subscription import checked_url
from headrace.errors import ConfigError
from headrace.hub.options import HubOptions

__all__ = ["Forbidden", "Guard", "Resolve", "guard_of", "resolve"]

_log = logging.getLogger("headrace.webhooks")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a name to its addresses, as texts."""

_NAT64, _SIX_TO_FOUR = IPv6Network("64:ff9b::/96"), IPv6Network("2002::/16")
_WIRE = IPv4Address("168.63.129.16")
"""Azure's metadata service for its machines; no other cloud has it at a public address."""
_NEVER = tuple(
    IPv6Network(text)
    for text in (
        "::/96",  # addresses of IPv4 in their old form
        "64:ff9b:1::/48",  # translated within a network
        "2001::/32",  # tunnels, which hide their destination
        "fec0::/10",  # of a site
    )
)


_MAX_LOOKUP_THREADS = 128
"""Names that are resolved at once: for three times as many messages as are sent at once."""


class Forbidden(Exception):
    """An address that nothing is sent to; the text gives the reason, and how to allow it."""

    by_name = False
    """Whether a name resolved to it: customers must not learn what names in the operator's network resolve to."""


@cache
def _resolvers() -> ThreadPoolExecutor:
    """Return threads of their own: a name without a reply keeps one busy long after the message was given up, and the
    few threads of a loop would be missing for other names."""
    return ThreadPoolExecutor(_MAX_LOOKUP_THREADS, "headrace-names")


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name with the system."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Guard:
    """Decides whether webhooks may go to an address."""

    def __init__(self, allow: Sequence[str] = (), *, http: bool = False, resolve: Resolve = resolve) -> None:
        """``allow``: private networks that may be called; ``http``: also allow URLs without encryption.

        :raises ConfigError: an entry is not a network
        """
        self._http, self._resolve = http, resolve
        self._allow: list[Network] = []
        for text in allow:
            try:
                self._allow.append(ip_network(text, strict=False))
            except ValueError:
                message = f"webhook_allow: {text!r} is no network, as 10.0.0.0/8 is one"
                raise ConfigError(message) from None

    def check(self, url: str) -> str:
        """Return the URL if it may be called, as far as the URL itself shows.

        :raises ConfigError: it may not
        """
        checked_url(url)
        try:
            host = self._scheme(url)
            self._test(ip_address(host.partition("%")[0]))
        except ValueError:
            return url  # a name: its address is tested before each message
        except Forbidden as why:
            raise ConfigError(f"url: {why}") from None
        return url

    async def addresses(self, url: str) -> list[Address]:
        """Return the addresses that a request to this URL may go to, in the order to try them; at least one.

        :raises Forbidden: there is none
        :raises OSError: the name is unknown
        """
        host, parts = self._scheme(url), urlsplit(url)
        found = await self._resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        good, why = list[Address](), Forbidden(f"{host} leads to no address")
        for text in found:
            try:
                address = ip_address(text.partition("%")[0])
                self._test(address)
                good.append(address)
            except ValueError:
                continue
            except Forbidden as refusal:
                why = Forbidden(f"{host} leads to a private or special address; --webhook-allow would allow it")
                _log.info("%s: %s", host, refusal)
        if not good:
            why.by_name = host not in found
            raise why
        return good

    def _scheme(self, url: str) -> str:
        """Return the host of the URL; :raises Forbidden: it must be called with encryption"""
        parts = urlsplit(url)
        if parts.scheme != "https" and not self._http:
            raise Forbidden("webhooks go to https:// only; --webhook-http lets them go to http://, too")
        return parts.hostname or ""

    def _test(self, address: Address) -> None:
        plain = _meant(address)
        if any(one in network for network in self._allow for one in (address, plain) if one.version == network.version):
            return
        shut = plain == _WIRE or (isinstance(plain, IPv6Address) and any(plain in network for network in _NEVER))
        if shut or not plain.is_global or plain.is_multicast or plain.is_reserved or plain.is_unspecified:
            raise Forbidden(f"{address} is a private or special address; --webhook-allow {address} would allow it")


@cache
def guard_of(options: HubOptions) -> Guard:
    """Return the guard of a hub."""
    return Guard(options.webhook_allow, http=options.webhook_http)


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if any."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(address.packed[12:])
    if address in _SIX_TO_FOUR:
        return IPv4Address(address.packed[2:6])
    return address
