"""Lines of JSON, over connections that end early, wait for each answer, or do not read theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.hub import HubOptions
from headrace.hub.api.ndjson import Lines
from tests.hub.serving import Served, serving
from tests.support.apps import Sums
from tests.support.until import until


def cut(parts: list[bytes], most: int = 100) -> list[bytes | None]:
    lines = Lines(most)
    return [line for part in parts for line in lines.feed(part)] + lines.end()


@given(st.binary(), st.lists(st.integers(0, 50)), st.integers(0, 20))
def test_lines_are_the_same_wherever_the_bytes_are_cut(data: bytes, places: list[int], most: int) -> None:
    parts, rest = list[bytes](), data
    for place in places:
        parts.append(rest[:place])
        rest = rest[place:]
    expected = [None if len(line) > most else line.strip() for line in data.split(b"\n")]
    assert cut([*parts, rest], most) == [line for line in expected if line is None or line]


def test_of_a_line_that_is_too_long_nothing_is_kept() -> None:
    lines = Lines(10)
    for _ in range(1000):
        assert lines.feed(b"x" * 1000) == []
    assert sum(map(len, lines._parts)) == 0
    assert lines.feed(b"\nshort\n") == [None, b"short"]


# -- over a real connection


def options(**others: Any) -> HubOptions:
    return HubOptions(maintenance=False, webhooks=False, **others)


class Talk:
    """A request with lines, of which one is sent at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.rest = b""

    def say(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def line(self, a: object, **more: Any) -> None:
        self.say(json.dumps({"task": "add", "payload": {"a": a}, **more}).encode() + b"\n")

    def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    async def head(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 45)

    async def hear(self) -> dict[str, Any] | None:
        """The next line of the answer; None at its end."""
        while b"\n" not in self.rest:
            size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 45), 16)
            self.rest += (await asyncio.wait_for(self.reader.readexactly(size + 2), 45))[:-2]
            if size == 0:
                return None
        line, _, self.rest = self.rest.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard


@asynccontextmanager
async def talking(hub: Served, key: str = "none") -> AsyncIterator[Talk]:
    host, _, port = hub.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /api/jobs/bulk HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
        f"Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    try:
        yield Talk(reader, writer)
    finally:
        writer.close()


async def stored(hub: Served) -> int:
    return (await hub.app.session.engine.records.ledger()).accepted


async def test_each_line_is_answered_while_the_next_are_still_to_come() -> None:
    async with serving(Sums().app, options()) as hub, talking(hub) as talk:
        for number in range(5):
            talk.line(number)
            if number == 0:
                assert b" 200 " in await talk.head()
            heard = await talk.hear()
            assert heard is not None
            assert (heard["index"], heard["verdict"]) == (number, "created")
            assert (await hub.app.jobs.get(heard["job_id"])).payload == {"a": number}
        talk.end()
        assert await talk.hear() is None


async def test_a_client_that_hangs_up_in_the_middle_of_a_line() -> None:
    async with serving(Sums().app, options()) as hub:
        async with talking(hub) as talk:
            talk.line(1)
            await talk.head()
            assert await talk.hear() is not None
            talk.say(b'{"task":"add","payload":{"a":2}}')  # whole, but for its end
            await talk.writer.drain()
        await until(lambda: not any("NdjsonResponse" in repr(task) for task in asyncio.all_tasks()))
        assert await stored(hub) == 1, "what has no end was not said"
        assert (await hub.client.get("/api/version")).status_code == 200


async def test_a_line_that_is_too_long_is_refused_alone() -> None:
    async with serving(Sums().app, options(body_most=1000)) as hub, talking(hub) as talk:
        talk.line(1)
        talk.line(2, metadata={"x": "x" * 5000})
        talk.line(3)
        talk.end()
        await talk.head()
        found = [await talk.hear() for _ in range(4)]
        assert [one and one["verdict"] for one in found] == ["created", "refused", "created", None]
        assert found[1] is not None
        assert found[1]["problem"]["status"] == 413
        assert await stored(hub) == 2


async def test_who_reads_nothing_before_all_is_sent_hears_all_of_it() -> None:
    """As most clients do: their answers are kept for them, up to a limit."""
    async with serving(Sums().app, options()) as hub:
        count = 20_000
        body = b'{"task":"add","payload":{"a":1}}\n' * count
        async with talking(hub) as talk:
            for start in range(0, len(body), 65536):
                talk.say(body[start : start + 65536])
                await asyncio.wait_for(talk.writer.drain(), 45)  # and nothing is read
            talk.end()
            await talk.head()
            for number in range(count):
                heard = await talk.hear()
                assert heard is not None
                assert (heard["index"], heard["verdict"]) == (number, "created")
            assert await talk.hear() is None


async def test_beyond_that_no_more_is_read_until_it_reads() -> None:
    async with serving(Sums().app, options(bulk_most=10_000)) as hub, talking(hub) as talk:
        talk.reader._transport.pause_reading()  # type: ignore[attr-defined]
        line = b'{"task":"add","payload":{"a":1}}\n'
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                talk.say(line * 1000)
                await talk.writer.drain()
                sent += 1000

        sending = asyncio.create_task(send())
        # It goes on until everything between here and there is full, then it rests.
        counts = [-1, 0]
        while counts[-1] != counts[-2] or counts[-1] == 0:
            await asyncio.sleep(0.3)
            counts.append(await stored(hub))
            assert counts[-1] < 200_000, "it takes more and more from one who reads nothing"
        sending.cancel()
        assert (await hub.client.get("/api/version")).status_code == 200
        talk.reader._transport.resume_reading()  # type: ignore[attr-defined]
        await talk.head()
        for number in range(counts[-1]):
            heard = await talk.hear()
            assert heard is not None
            assert heard["index"] == number


async def test_nothing_more_comes() -> None:
    async with serving(Sums().app, options(read_timeout=0.2)) as hub, talking(hub) as talk:
        talk.line(1)
        await talk.head()
        first, last = await talk.hear(), await talk.hear()
        assert first is not None
        assert last is not None
        assert (first["verdict"], last["index"], last["problem"]["status"]) == ("created", 1, 408)
        assert await talk.hear() is None


async def test_a_hub_that_stops_answers_what_it_has_and_says_so() -> None:
    async with serving(Sums().app, options()) as hub, talking(hub) as talk:
        talk.line(1)
        await talk.head()
        assert await talk.hear() is not None
        hub.server.stop()
        last = await talk.hear()
        assert last is not None
        assert (last["index"], last["problem"]["status"]) == (1, 503)
        assert await talk.hear() is None


@pytest.mark.parametrize("body", [b"", b"\n\n", b" \r\n"])
async def test_no_lines_are_no_answers(body: bytes) -> None:
    async with serving(Sums().app, options()) as hub:
        kind = {"content-type": "application/x-ndjson"}
        answer = await hub.client.post("/api/jobs/bulk", content=body, headers=kind)
        assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("idle", [True, False])
async def test_lines_end_with_their_key(idle: bool) -> None:
    async with Sums().app as app:
        key = await app.keys.create("shop", ["submit"])
        async with serving(app, options()) as hub, talking(hub, key.text) as talk:
            talk.line(1)
            await talk.head()
            assert await talk.hear() is not None
            await app.keys.revoke("shop")
            await until(lambda: key.key.prefix not in hub.hub.authenticator._holders)
            if not idle:
                talk.line(2)
            last = await talk.hear()
            assert last is not None
            assert (last["index"], last["verdict"], last["problem"]["status"]) == (1, "refused", 401)
            assert await talk.hear() is None
            assert await stored(hub) == 1
