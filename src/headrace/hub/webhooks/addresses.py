"""Where webhooks of this hub may go: the rule of the core, with the hub's options, on the addresses of names.

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
from ipaddress import ip_address
from urllib.parse import urlsplit

from headrace.core.webhooks.addresses import Address, AddressRule, Forbidden
from headrace.core.webhooks.subscription import checked_url
from headrace.errors import ConfigError
from headrace.hub.options import HubOptions

__all__ = ["Address", "Forbidden", "Guard", "Resolve", "guard_of", "resolve"]

_log = logging.getLogger("headrace.webhooks")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a name to its addresses, as texts."""

_MAX_LOOKUP_THREADS = 128
"""Names that are resolved at once: for three times as many messages as are sent at once."""


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
        self.rule = AddressRule(allow, http=http)
        self._resolve = resolve

    def check(self, url: str) -> str:
        """Return the URL if it may be called, as far as the URL itself shows.

        :raises ConfigError: it may not
        """
        checked_url(url)
        try:
            self.rule.test_url(url)
        except Forbidden as why:
            raise ConfigError(f"url: {why}") from None
        return url

    async def addresses(self, url: str) -> list[Address]:
        """Return the addresses that a request to this URL may go to, in the order to try them; at least one.

        :raises Forbidden: there is none
        :raises OSError: the name is unknown
        """
        host, parts = self.rule.host(url), urlsplit(url)
        found = await self._resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        good, why = list[Address](), Forbidden(f"{host} leads to no address")
        for text in found:
            try:
                address = ip_address(text.partition("%")[0])
                self.rule.test(address)
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


@cache
def guard_of(options: HubOptions) -> Guard:
    """Return the guard of a hub."""
    return Guard(options.webhook_allow, http=options.webhook_http)
