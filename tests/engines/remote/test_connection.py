"""HTTP/1.1 as a client reads it: whole answers, however they come, and no half ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from headrace.engines.remote.connection import MAX_HEAD_BYTES, Address, Lost, NotSent, Pool, Reading

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack; x=y\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
UNCHANGED = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
LAST = b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nhello"
UNTIL_THE_END = b"HTTP/1.1 200 OK\r\n\r\nhello"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"
TWO = PLAIN + b"more"
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize(
    ("data", "body", "keeps"),
    [
        (PLAIN, b"hello", True),
        (CHUNKED, b"hello", True),
        (EMPTY, b"", True),
        (UNCHANGED, b"", True),
        (UNCHANGED.replace(b"ETag", b"Content-Length: 5\r\nETag"), b"", True),
        (EMPTY.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), b"", True),
        (EARLY, b"hello", True),
        (LAST, b"hello", False),
        (OLD, b"hello", False),
    ],
)
def test_an_answer_is_whole_however_it_comes(data: bytes, body: bytes, keeps: bool, step: int) -> None:
    reading = Reading()
    *before, last = [data[n : n + step] for n in range(0, len(data), step)]
    assert not any(reading.feed(part) for part in before)
    assert reading.feed(last)
    assert (reading.answer.body, reading.keeps) == (body, keeps)
    assert reading.answer.status == int(data.rpartition(b"HTTP/1.")[2][2:5])


def test_its_type_is_told_without_what_follows_it() -> None:
    reading = Reading()
    assert reading.feed(PLAIN)
    assert reading.answer.kind == b"application/msgpack"


def test_what_has_no_length_ends_with_the_connection() -> None:
    reading = Reading()
    assert not reading.feed(UNTIL_THE_END)
    assert reading.end()
    assert (reading.answer.body, reading.keeps) == (b"hello", False)


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
def test_half_an_answer_is_none(cut: int) -> None:
    reading = Reading()
    assert not reading.feed(CHUNKED[:cut])
    assert not reading.end()
    assert reading.begun


def test_after_more_than_was_asked_for_the_connection_is_not_used_again() -> None:
    reading = Reading()
    assert reading.feed(TWO)
    assert reading.answer.body == b"hello"
    assert not reading.keeps


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no answer"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "no answer"),
        (b"HTTP/1.1 2xx OK\r\n\r\n", "no answer"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "no answer"),
        (OK + b"Content-Length: -1\r\n\r\n", "content-length b'-1'"),
        (OK + b"Content-Length: 1, 1\r\n\r\n", "content-length b'1, 1'"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "b'gzip, chunked' is unknown"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nhello\r\n", "the size b'hello'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", "the size b'-5'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", "the size b'0x5'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n", "not as long as it says"),
        (b"x" * (MAX_HEAD_BYTES + 1), "has no end"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * (MAX_HEAD_BYTES + 1), "has no size"),
    ],
)
def test_what_is_no_http_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Reading().feed(data)


# -- over real connections

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def pool_of(serve: Serve) -> AsyncIterator[Pool]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    pool = Pool(Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1]))
    try:
        yield pool
    finally:
        await pool.close()
        server.close()


async def test_a_connection_is_used_again() -> None:
    connections = list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        while await reader.read(100):
            connections[-1] += 1
            writer.write(PLAIN)

    async with pool_of(serve) as pool:
        for _ in range(3):
            assert (await pool.ask(b"?", 30)).body == b"hello"
        assert connections == [3]
        await asyncio.gather(*(pool.ask(b"?", 30) for _ in range(4)))
        assert sum(connections) == 7
        assert (await pool.ask(b"?", 30, fresh=True)).body == b"hello"
        assert connections[-1] == 1


async def test_a_kept_connection_that_was_closed_meanwhile_is_told_apart() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(PLAIN)
        await reader.read(100)  # and closes without a word

    async with pool_of(serve) as pool:
        await pool.ask(b"?", 30)
        with pytest.raises(Lost) as caught:
            await pool.ask(b"?", 30)
        assert caught.value.untouched


@pytest.mark.parametrize("said", [b"", PLAIN[:20], CHUNKED[:-5]])
async def test_an_answer_that_breaks_off_is_lost(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)

    async with pool_of(serve) as pool:
        with pytest.raises(Lost, match="the connection was lost") as caught:
            await pool.ask(b"?", 30)
        assert not caught.value.untouched, "it was a new connection"


async def test_what_is_no_http_is_lost() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"SSH-2.0\r\n\r\n")
        await reader.read()

    async with pool_of(serve) as pool:
        with pytest.raises(Lost, match="not understood"):
            await pool.ask(b"?", 30)


async def test_who_does_not_answer_is_not_waited_for_and_not_asked_again() -> None:
    silent, connections = asyncio.Event(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(100)
        if connections == 1:
            await silent.wait()
        writer.write(PLAIN)
        await reader.read()

    async with pool_of(serve) as pool:
        with pytest.raises(Lost, match=r"did not answer within 0\.05 s"):
            await pool.ask(b"?", 0.05)
        assert (await pool.ask(b"?", 30)).body == b"hello"
        assert connections == 2
        silent.set()


async def test_a_call_that_was_given_up_leaves_no_answer_for_the_next() -> None:
    begun = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(100):
            begun.set()
            if asked != b"never":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(asked), asked))

    async with pool_of(serve) as pool:
        task = asyncio.create_task(pool.ask(b"never", 30))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        assert (await pool.ask(b"next", 30)).body == b"next"


async def test_nobody_there_is_not_sent() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(NotSent, match=r"^connection refused$"):
        await Pool(Address(host="127.0.0.1", port=port)).ask(b"?", 30)
