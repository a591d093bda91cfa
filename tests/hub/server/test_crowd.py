"""A thousand idle connections and hundreds of slow ones: the hub answers others, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from tests.hub.process import Running, started
from tests.hub.timing import Waits, asked

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="a process has fewer sockets there"),
    pytest.mark.timeout(240),
]

IDLE, SLOW = 1000, 200
MOST = 64 * 1024
"""Bytes of memory that a connection may cost the hub; measured are 8 KiB for HTTP, 30 for a WebSocket."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Running]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with started(tmp_path, "hub", "--url", url, "--no-webhooks", "--no-access-log") as made:
        yield made


@asynccontextmanager
async def crowd(hub: Running, size: int, say: bytes, *, eof: bool = False) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say this, and nothing more."""
    port, made = int(hub.address.rpartition(":")[2]), list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    try:
        for _ in range(0, size, 50):
            made += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(50)))
            for _, writer in made[-50:]:
                writer.write(say)
                if eof:
                    writer.write_eof()
        yield [reader for reader, _ in made]
    finally:
        for _, writer in made:
            writer.transport.abort()


ASKED = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = b"GET /api/version HTTP/1.1\r\nHost: localho"
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BODY = (
    b"POST /api/keys HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
)


def test_answers_that_take_long_are_noticed() -> None:
    usual = Waits([0.01] * 50)
    Waits([0.9] * 49 + [4.9]).as_usual(usual)
    with pytest.raises(AssertionError, match="the slowest took"):
        Waits([0.01] * 49 + [5.1]).as_usual(usual)
    with pytest.raises(AssertionError, match="half of them took"):
        Waits([1.1] * 50).as_usual(usual)
    Waits([1.1] * 50).as_usual(Waits([0.1] * 50))  # where everything is slow


async def test_others_are_answered_and_memory_is_bounded(hub: Running) -> None:
    process = psutil.Process(hub.process.pid)
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=20) as client:
        usual = await asked(client.get)
        before = process.memory_info().rss
        async with crowd(hub, IDLE, ASKED) as idle, crowd(hub, SLOW, HALF), crowd(hub, SLOW, BODY):
            for reader in idle:
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            async with crowd(hub, SLOW, BODY, eof=True) as closed:
                (await asked(client.get)).as_usual(usual)
                for reader in closed:
                    await reader.read()  # the hub has let go of it
            grown = process.memory_info().rss - before
            assert grown < MOST * (IDLE + 3 * SLOW)
        assert (await client.get("/readyz")).status_code == 200


async def test_a_thousand_idle_sockets_cost_little_and_are_told_when_it_stops(hub: Running) -> None:
    process = psutil.Process(hub.process.pid)
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=20) as client:
        usual = await asked(client.get)
        async with crowd(hub, 50, UPGRADE) as few:
            for reader in few:
                assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        before = process.memory_info().rss
        async with crowd(hub, IDLE, UPGRADE) as sockets:
            for reader in sockets:
                await reader.readuntil(b"\r\n\r\n")
            (await asked(client.get)).as_usual(usual)
            assert process.memory_info().rss - before < MOST * IDLE
            hub.process.terminate()
            for reader in sockets:
                said = await reader.read()
                assert b'"error"' in said
                assert b"\x88" in said, "a frame that closes it"
    assert await asyncio.to_thread(hub.process.wait, 60) == 0


async def test_a_storm_of_connections_leaves_nothing(hub: Running) -> None:
    process = psutil.Process(hub.process.pid)
    async with crowd(hub, 200, ASKED):
        pass
    before = process.num_fds()
    for say in (b"", b"\x16\x03\x01\x02\x00\x01", HALF, BODY, ASKED * 20, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 5000):
        async with crowd(hub, 200, say):
            pass
    deadline = asyncio.get_running_loop().time() + 45
    while process.num_fds() > before + 5:
        assert asyncio.get_running_loop().time() < deadline, process.num_fds()
        await asyncio.sleep(0.05)
    hub.until_ready()
