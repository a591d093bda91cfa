"""The rule of where webhooks may go: over https to public addresses, and elsewhere only if the operator allows it.

Subscriptions are checked by it when they are made, and addresses before each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from headrace.errors import ConfigError

__all__ = ["PUBLIC", "Address", "AddressRule", "Forbidden"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

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
_LOCAL = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


class Forbidden(Exception):
    """An address that nothing is sent to; the text gives the reason, and how to allow it."""

    by_name = False
    """Whether a name resolved to it: customers must not learn what names in the operator's network resolve to."""


class AddressRule:
    """Decides whether webhooks may go to an address."""

    def __init__(self, allow: Sequence[str] = (), *, http: bool = False) -> None:
        """``allow``: private networks that may be called; ``http``: also allow URLs without encryption.

        :raises ConfigError: an entry is not a network
        """
        self._http = http
        self._allow: list[Network] = []
        for text in allow:
            try:
                self._allow.append(ip_network(text, strict=False))
            except ValueError:
                message = f"webhook_allow: {text!r} is no network, as 10.0.0.0/8 is one"
                raise ConfigError(message) from None

    def test_url(self, url: str) -> None:
        """Test a URL as far as it shows where it leads: the address of another name is tested before each message.

        :raises Forbidden: it may not be called
        """
        host = self.host(url)
        if host == "localhost" or host.endswith(".localhost"):
            if not any(self._allows(one) for one in _LOCAL):
                raise Forbidden(f"{host} is this machine; --webhook-allow 127.0.0.1 would allow it")
            return
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return
        self.test(address)

    def host(self, url: str) -> str:
        """Return the host of the URL; :raises Forbidden: it must be called with encryption"""
        parts = urlsplit(url)
        if parts.scheme != "https" and not self._http:
            raise Forbidden("webhooks go to https:// only; --webhook-http lets them go to http://, too")
        return parts.hostname or ""

    def test(self, address: Address) -> None:
        """Test an address; :raises Forbidden: nothing may be sent there"""
        plain = _meant(address)
        if self._allows(address) or self._allows(plain):
            return
        shut = plain == _WIRE or (isinstance(plain, IPv6Address) and any(plain in network for network in _NEVER))
        if shut or not plain.is_global or plain.is_multicast or plain.is_reserved or plain.is_unspecified:
            raise Forbidden(f"{address} is a private or special address; --webhook-allow {address} would allow it")

    def _allows(self, address: Address) -> bool:
        return any(address in network for network in self._allow if address.version == network.version)


PUBLIC = AddressRule()
"""The rule of a hub that is started without options for it."""


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
