"""Sending a message over real connections: to the address that was tested, under the name that was asked for."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from headrace.hub.webhooks.addresses import Forbidden, Guard
from headrace.hub.webhooks.sender import Undelivered, send
from tests.hub.webhooks.receiving import Names, receiving

HERE = Path(__file__).parent
LOOPBACK = ["127.0.0.0/8", "::1/128"]
HEADERS = {"webhook-id": "msg_1", "authorization": "Bearer tok"}


def guard(*answers: list[str], allow: list[str] | None = None) -> tuple[Guard, Names]:
    names = Names(*(answers or (["127.0.0.1"],)))
    return Guard(LOOPBACK if allow is None else allow, http=True, resolve=names), names


async def test_a_message_is_posted() -> None:
    async with receiving("202 Accepted") as receiver:
        authenticator, names = guard()
        assert await send(authenticator, f"http://hooks.example:{receiver.port}/a?b=c", b'{"x":1}', HEADERS) == 202
        [request] = receiver.requests
        assert request.line == "POST /a?b=c HTTP/1.1"
        assert request.body == b'{"x":1}'
        assert request.headers["host"] == f"hooks.example:{receiver.port}", "the name stays, whatever it leads to"
        assert request.headers["webhook-id"] == "msg_1"
        assert names.asked == ["hooks.example"]


async def test_a_name_that_leads_elsewhere_the_second_time_gains_nothing() -> None:
    """The receiver on this machine stands for a service of the operator's. The name is first a harmless address."""
    async with receiving() as inner, receiving(host="127.0.0.2") as harmless:
        # Only the harmless one is allowed; whoever asks again is led to the other.
        authenticator, names = guard(["127.0.0.2"], ["127.0.0.1"], allow=["127.0.0.2/32"])
        await send(authenticator, f"http://rebind.example:{harmless.port}/", b"{}", HEADERS)
        assert (len(harmless.requests), inner.connections) == (1, 0)
        assert names.asked == ["rebind.example"], "it is asked for once, and the answer is what is connected to"
        with pytest.raises(Forbidden):
            await send(authenticator, f"http://rebind.example:{inner.port}/", b"{}", HEADERS)
        assert inner.connections == 0


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_a_failure_and_is_not_followed(status: str) -> None:
    async with receiving() as inner:
        async with receiving(f"{status}\r\nlocation: http://127.0.0.1:{inner.port}/") as outer:
            authenticator, _ = guard()
            with pytest.raises(Undelivered, match="redirects are not followed"):
                await send(authenticator, f"http://hooks.example:{outer.port}/", b"{}", HEADERS)
        assert inner.connections == 0


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "500 Oops", "503 Later"])
async def test_every_other_answer_but_2xx_is_a_failure(status: str) -> None:
    async with receiving(status) as receiver:
        authenticator, _ = guard()
        with pytest.raises(Undelivered, match=f"HTTP {status[:3]}") as told:
            await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS)
        assert told.value.status == int(status[:3])


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        authenticator, _ = guard()
        await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS)
        assert (proxy.connections, len(receiver.requests)) == (0, 1)


async def test_one_that_does_not_answer_is_given_up() -> None:
    async with receiving() as receiver:
        receiver.silent = True
        authenticator, _ = guard()
        with pytest.raises(Undelivered, match="no answer within"):
            await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS, patience=0.05)


async def test_a_resolver_that_does_not_answer_is_given_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(Undelivered, match="no answer within"):
        await send(Guard(resolve=never), "https://hooks.example/", b"{}", HEADERS, patience=0.05)


async def test_where_nobody_listens_the_next_address_is_tried() -> None:
    async with receiving(host="127.0.0.2") as receiver:
        authenticator, _ = guard(["127.0.0.1", "127.0.0.2"])
        assert await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS) == 204
    authenticator, _ = guard(["127.0.0.1"])
    with pytest.raises(Undelivered, match="no connection"):
        await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS)


async def test_an_unknown_name_is_a_failure() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(Undelivered, match="not known"):
        await send(Guard(resolve=unknown), "https://hooks.example/", b"{}", HEADERS)


async def test_ipv6_is_called_too() -> None:
    async with receiving(host="::1") as receiver:
        authenticator, _ = guard(["::1"])
        assert await send(authenticator, f"http://hooks.example:{receiver.port}/", b"{}", HEADERS) == 204


async def test_tls_is_for_the_name_and_goes_to_the_address() -> None:
    seen = list[str | None]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(HERE / "certificate.pem", HERE / "key.pem")
    context.sni_callback = lambda _, name, __: seen.append(name)
    trust = ssl.create_default_context(cafile=str(HERE / "certificate.pem"))
    async with receiving(context=context) as receiver:
        authenticator, _ = guard()
        url = f"https://hooks.example:{receiver.port}/"
        assert await send(authenticator, url, b"{}", HEADERS, trust=trust) == 204
        assert seen == ["hooks.example"]
        with pytest.raises(Undelivered, match="certificate is not valid"):
            await send(authenticator, f"https://other.example:{receiver.port}/", b"{}", HEADERS, trust=trust)
        with pytest.raises(Undelivered, match="certificate is not valid"):
            await send(authenticator, url, b"{}", HEADERS)
        assert len(receiver.requests) == 1, "nothing was sent to the others"


async def test_what_went_wrong_does_not_repeat_what_was_sent() -> None:
    async with receiving("not http at all") as receiver:
        authenticator, _ = guard()
        with pytest.raises(Undelivered) as told:
            await send(authenticator, f"http://hooks.example:{receiver.port}/?token=abc", b"{}", HEADERS)
        assert "tok" not in str(told.value)


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "\u00ad.example"])
async def test_a_name_that_no_resolver_takes_is_a_failure(host: str) -> None:
    with pytest.raises(Undelivered):
        await send(Guard(http=True), f"http://{host}/", b"{}", HEADERS)
