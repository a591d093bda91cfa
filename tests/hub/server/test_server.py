"""A hub on its port: stopping in good order, and connections that are slow, silent, or too many."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace import App
from headrace.http.problems import PAGE
from headrace.hub import HubOptions
from headrace.hub import health as about_module
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest
from headrace.hub.server.server import listen, room_for
from tests.hub.serving import Served, serving
from tests.support.until import until


def quiet(**more: Any) -> HubOptions:
    """Without what runs beside the requests."""
    return HubOptions(maintenance=False, webhooks=False, **more)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


class Gate:
    """A request that is answered when the test says so."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, ask: OperationRequest) -> OperationReply:
        self.entered.set()
        await self.opened.wait()
        return OperationReply({"done": True})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    slow = Operation(
        name="slow", method="GET", path="/slow", summary="", scope=None, bounded="nothing", do=made, gives={200: None}
    )
    monkeypatch.setattr("headrace.hub.hub.OPERATIONS", (*about_module.OPERATIONS, *_health(), slow))
    return made


def _health() -> tuple[Operation, ...]:
    from headrace.hub.health import OPERATIONS

    return OPERATIONS


@asynccontextmanager
async def connected(hub: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.address.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_small_answers_are_sent_at_once(url: str) -> None:
    async with serving(url, quiet()) as hub:
        assert (await hub.client.get("/api/version")).status_code == 200
        [connection] = hub.server.server_state.connections
        at_once = connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert at_once, "the body of an answer would wait for the client to acknowledge the head: 40 ms"


async def test_a_request_under_way_is_finished_and_a_new_one_is_not_let_in(url: str, gate: Gate) -> None:
    async with serving(url, quiet()) as hub:
        under_way = asyncio.create_task(hub.client.get("/slow"))
        await gate.entered.wait()
        hub.server.stop()
        await until(lambda: not hub.server.servers[0].is_serving())
        with pytest.raises(httpx2.ConnectError):
            async with httpx2.AsyncClient(trust_env=False) as other:
                await other.get(f"{hub.address}/api/version")
        gate.opened.set()
        assert (await under_way).json() == {"done": True}


async def test_while_it_lingers_new_requests_are_answered_and_readyz_says_no(url: str) -> None:
    async with serving(url, quiet(linger=600)) as hub:
        hub.server.stop()
        answer = await hub.client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "draining")
        assert (await hub.client.get("/api/version")).status_code == 200


async def test_what_is_not_finished_in_time_is_told_to_ask_again(url: str, gate: Gate) -> None:
    async with serving(url, quiet(grace=0.1)) as hub:
        under_way = asyncio.create_task(hub.client.get("/slow"))
        await gate.entered.wait()
        hub.server.stop()
        answer = await under_way
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["title"] == "The hub stops"
        assert answer.json()["type"] == PAGE + "draining", "as whoever else is told so"


async def test_told_twice_it_stops_at_once(url: str, gate: Gate) -> None:
    async with serving(url, quiet(grace=600, linger=600)) as hub:
        under_way = asyncio.create_task(hub.client.get("/slow"))
        await gate.entered.wait()
        hub.server.stop()
        hub.server.stop()
        assert (await under_way).status_code == 503


async def test_an_idle_connection_does_not_hold_up_the_end(url: str) -> None:
    async with serving(url, quiet(grace=600)) as hub, connected(hub) as (reader, writer):
        writer.write(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"}")
        hub.server.stop()
        assert await reader.read() == b"", "closed by the hub"


async def test_a_head_that_does_not_come_is_not_waited_for(url: str) -> None:
    async with serving(url, quiet(read_timeout=0.2)) as hub, connected(hub) as (reader, writer):
        writer.write(b"GET /api/version HTTP/1.1\r\nHost: local")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in answer


async def test_silence_is_not_waited_for(url: str) -> None:
    async with serving(url, quiet(read_timeout=0.2)) as hub, connected(hub) as (reader, _):
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_a_second_head_that_does_not_come_is_not_waited_for_either(url: str) -> None:
    async with serving(url, quiet(read_timeout=0.5)) as hub, connected(hub) as (reader, writer):
        writer.write(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET /api/vers")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_a_slow_answer_is_no_slow_request(url: str, gate: Gate) -> None:
    async with serving(url, quiet(read_timeout=0.1)) as hub, connected(hub) as (reader, writer):
        writer.write(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await gate.entered.wait()
        async with connected(hub) as (other, _):
            assert (await other.read()).startswith(b"HTTP/1.1 408 "), "the time is over for those who say nothing"
        gate.opened.set()
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")


async def test_a_half_closed_connection_is_let_go_of(url: str) -> None:
    async with serving(url, quiet()) as hub, connected(hub) as (reader, writer):
        writer.write(b"POST /api/version HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        writer.write_eof()
        await reader.read()
        await until(lambda: not hub.server.server_state.connections)


async def test_a_reader_that_reads_nothing_is_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def much(ask: OperationRequest) -> OperationReply:
        return OperationReply("x" * 50_000_000)

    large = Operation(name="much", method="GET", path="/much", summary="", scope=None, bounded="nothing", do=much)
    monkeypatch.setattr("headrace.hub.hub.OPERATIONS", (*about_module.OPERATIONS, large))
    async with serving(url, quiet(read_timeout=0.3)) as hub:
        deaf = socket.create_connection(("127.0.0.1", int(hub.address.rpartition(":")[2])))
        try:
            deaf.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: hub.hub.access.answered.get(("much", 200)) is not None)
            await until(lambda: not hub.server.server_state.connections)
        finally:
            deaf.close()


async def test_a_reader_that_reads_slowly_is_not_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Line:
        """A connection of which a tenth is read between two looks."""

        left, aborted = 1000, False

        def get_write_buffer_size(self) -> int:
            return self.left

        def abort(self) -> None:
            self.aborted = True

    async with serving(url, quiet(read_timeout=60)) as hub, connected(hub) as (_, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: bool(hub.server.server_state.connections))
        (protocol,) = hub.server.server_state.connections
        line = Line()
        monkeypatch.setattr(protocol, "transport", line)
        protocol.pause_writing()
        for _ in range(10):
            line.left -= 100
            protocol._look()  # type: ignore[union-attr]
            assert not line.aborted
        protocol._look()  # type: ignore[union-attr]
        assert line.aborted, "nothing was read between these two"
        monkeypatch.undo()


async def test_two_lengths_end_the_connection(url: str) -> None:
    async with serving(url, quiet()) as hub, connected(hub) as (reader, writer):
        writer.write(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"0\r\n\r\nGET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "said",
    [
        b"GET /api/version HTTP/1.1\r\nX-Long: " + b"x" * 100_000,
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["too long", "TLS", "no host"],
)
async def test_what_is_no_request_is_a_problem(said: bytes, url: str) -> None:
    async with serving(url, quiet()) as hub, connected(hub) as (reader, writer):
        writer.write(said)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in answer


async def test_too_many_connections_are_refused_in_words(url: str) -> None:
    async with serving(url, quiet(sockets=3)) as hub:
        async with connected(hub), connected(hub), connected(hub):
            await until(lambda: len(hub.server.server_state.connections) == 3)
            async with connected(hub) as (reader, _):
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 5" in answer
        await until(lambda: not hub.server.server_state.connections)
        assert (await hub.client.get("/api/version")).status_code == 200


async def test_the_server_does_not_say_what_it_is(url: str) -> None:
    async with serving(url) as hub:
        headers = (await hub.client.get("/api/version")).headers
        assert "server" not in headers
        assert headers["date"].endswith("GMT")


@pytest.mark.parametrize(("believed", "client"), [(True, "203.0.113.9"), (False, "127.0.0.1")])
async def test_a_proxy_says_who_asks(believed: bool, client: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with App(url) as app:
        key = await app.keys.create("ci", scopes={"read"})
    headers = {"X-Forwarded-For": "203.0.113.9", "Authorization": f"Bearer {key.text}"}
    with caplog.at_level(logging.INFO, "headrace.hub.access"):
        async with serving(url, quiet(proxy_headers=believed)) as hub:
            assert (await hub.client.get("/api/version", headers=headers)).status_code == 200
    (line,) = [vars(one) for one in caplog.records if one.name == "headrace.hub.access"]
    assert (line["client"], line["key"]) == (client, "ci")


async def test_a_root_path_is_taken_off(url: str) -> None:
    async with serving(url, quiet(root_path="/jobs")) as hub:
        assert (await hub.client.get("/api/version")).status_code == 200


def test_room_is_made_for_sockets() -> None:
    assert room_for(100) == 100


def test_a_port_can_be_listened_on_once() -> None:
    with listen("127.0.0.1", 0) as one, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", one.getsockname()[1])
