"""Where webhooks may go, and where not, however the address is spelled."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.hub.webhooks.addresses import Forbidden, Guard, resolve
from tests.hub.webhooks.receiving import Names

PRIVATE = [
    "127.0.0.1",
    "127.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # metadata of clouds
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "100.64.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a00:1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001::1",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata, by IPv6
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
async def test_private_and_special_addresses_are_refused(address: str) -> None:
    guard = Guard(resolve=Names([address]))
    with pytest.raises(Forbidden, match="--webhook-allow"):
        await guard.addresses("https://innocent.example/")


@pytest.mark.parametrize("address", PUBLIC)
async def test_others_are_not(address: str) -> None:
    [found] = await Guard(resolve=Names([address])).addresses("https://some.example/")
    assert str(found) == address or address.startswith("::ffff")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:0:0:1]",
    ],
)
async def test_other_spellings_of_this_machine_are_refused_by_the_system_that_reads_them(host: str) -> None:
    """By the resolver that is used: what it makes of the spelling is what is tested."""
    with pytest.raises(Forbidden):
        await Guard().addresses(f"https://{host}/")


async def test_of_several_addresses_those_are_used_that_may_be() -> None:
    guard = Guard(resolve=Names(["10.0.0.1", "8.8.8.8", "nonsense"]))
    assert [str(one) for one in await guard.addresses("https://both.example/")] == ["8.8.8.8"]
    with pytest.raises(Forbidden, match="leads to no address"):
        await Guard(resolve=Names([])).addresses("https://none.example/")


async def test_networks_can_be_allowed() -> None:
    guard = Guard(["10.0.0.0/8", "fd00::/8"], resolve=Names(["10.1.2.3", "192.168.0.1", "fd12::1", "::ffff:10.0.0.9"]))
    found = [str(one) for one in await guard.addresses("https://mine.example/")]
    assert found == ["10.1.2.3", "fd12::1", "::ffff:a00:9"]
    with pytest.raises(ConfigError, match="no network"):
        Guard(["mine"])


async def test_plain_http_must_be_allowed() -> None:
    with pytest.raises(Forbidden, match="--webhook-http"):
        await Guard(resolve=Names(["8.8.8.8"])).addresses("http://some.example/")
    assert await Guard(http=True, resolve=Names(["8.8.8.8"])).addresses("http://some.example/")


def test_what_can_be_seen_from_an_address_is_refused_before_it_is_kept() -> None:
    guard = Guard()
    assert guard.check("https://some.example/") == "https://some.example/"
    for url in ("https://10.0.0.1/", "https://[::1]/", "http://some.example/", "ftp://some.example/", "nowhere"):
        with pytest.raises(ConfigError, match="url"):
            guard.check(url)
    assert Guard(["10.0.0.0/8"], http=True).check("http://10.0.0.1/") == "http://10.0.0.1/"


async def test_what_a_name_leads_to_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def inner(host: str, port: int) -> list[str]:
        return ["10.20.30.40"]

    with caplog.at_level(logging.INFO, "headrace.webhooks"), pytest.raises(Forbidden) as told:
        await Guard(resolve=inner).addresses("https://db.internal/")
    assert "db.internal" in str(told.value)
    assert "10.20.30.40" not in str(told.value), "customers read it"
    assert "10.20.30.40" in caplog.text, "the operator's log says it"


async def test_names_that_nobody_answers_for_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def ask(host: str, port: int, **_: Any) -> list[Any]:
        if host == "dead.example":
            answered.wait()
        return [(None, None, None, "", ("93.184.216.34", port))]

    monkeypatch.setattr("socket.getaddrinfo", ask)
    dead = [asyncio.create_task(resolve("dead.example", 443)) for _ in range(40)]
    try:
        async with asyncio.timeout(30):
            assert await resolve("alive.example", 443) == ["93.184.216.34"]
        assert not any(one.done() for one in dead)
    finally:
        answered.set()
        await asyncio.gather(*dead)
