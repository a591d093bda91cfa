"""What no honest client sends: heads, bodies and frames that are broken in every way, slow ones, and half-closed ones.

Each is answered as the client's mistake or cut off, others are answered as usual meanwhile, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from headrace.hub import HubOptions
from headrace.hub.live.messages import MESSAGES
from headrace.hub.openapi.document import problems_of
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.operation import Operation
from tests.cli.patience import until_sync
from tests.hub.process import Running, started
from tests.hub.serving import Served, serving
from tests.hub.timing import Waits, asked
from tests.hub.walking import path_of
from tests.support.seed import examples

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

# The same examples in every run: a test that fails once in a while says nothing.
SETTINGS = settings(
    max_examples=examples(150), derandomize=True, database=None, suppress_health_check=list(HealthCheck), deadline=None
)

MOST = 32 * 1024 * 1024
"""Bytes by which the memory of a hub may grow meanwhile: its caches fill, and no more."""

READS = 30.0
"""Seconds for an answer."""

QUIET = ("--no-webhooks", "--no-access-log", "--submit-rate", "0")


class Besieged:
    """A hub, and a client that behaves."""

    def __init__(self, running: Running) -> None:
        self.running, self.port = running, int(running.address.rpartition(":")[2])
        self.client = httpx2.Client(base_url=running.address, trust_env=False, timeout=READS)
        self._process = psutil.Process(running.process.pid)
        self._waits = Waits()

    def close(self) -> None:
        """Leave."""
        self.client.close()

    def check(self) -> None:
        """Others are answered."""
        with self._waits.one():
            answer = self.client.get("/api/version")
        assert answer.status_code == 200

    def say(self, *parts: bytes, stay: bool = False) -> bytes:
        """Say this over a connection of its own, and no more; all that is answered until the hub closes it. ``stay``:
        leave the closing to the hub alone."""
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=READS)) as made:
            try:
                for part in parts:
                    made.sendall(part)
                if not stay:
                    made.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it was cut off already: what it answered can be read
            return read(made)

    def unharmed(self) -> Iterator[Besieged]:
        """Itself; what came of it all is looked at then."""
        for _ in range(50):
            self.check()
        usual, self._waits = self._waits, Waits()
        memory, files = self._process.memory_info().rss, self._process.num_fds()
        yield self
        self.check()
        self._waits.as_usual(usual)
        until_sync(lambda: self._process.num_fds() <= files + 3)
        assert self._process.memory_info().rss - memory < MOST


def read(made: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    heard = b""
    try:
        while part := made.recv(65536):
            heard += part
    except ConnectionResetError:
        pass
    return heard


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Besieged]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with started(tmp_path, "hub", "--url", url, *QUIET) as running:
        with closing(Besieged(running)) as made:
            yield from made.unharmed()
        assert running.end() == 0
        assert "Traceback" not in running.log


def statuses(answers: bytes) -> list[int]:
    """Those of all answers on a connection."""
    return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


# -- heads

TOKEN = st.binary(min_size=0, max_size=40)
NAMES = st.one_of(
    st.sampled_from(
        b"Host,Content-Length,Transfer-Encoding,Content-Type,Authorization,Origin,Connection,Upgrade,Expect,Cookie,"
        b"Idempotency-Key,If-None-Match,Last-Event-ID,Accept,Content-Encoding,X-Request-ID,X-Forwarded-For,"
        b"Sec-WebSocket-Key,Sec-WebSocket-Version,Sec-Fetch-Site,Range,TE,Trailer".split(b",")
    ),
    TOKEN,
)
VALUES = st.one_of(
    st.sampled_from(
        [
            b"localhost",
            b"127.0.0.1",
            b"",
            b"0",
            b"-1",
            b"1e3",
            b"99999999999999999999",
            b"chunked",
            b"gzip, chunked",
            b"identity",
            b"application/json",
            b"application/x-ndjson; charset=\xff",
            b"Bearer ",
            b"Bearer hr_" + b"x" * 5000,
            b"100-continue",
            b"Upgrade, close",
            b"websocket",
            b"h2c",
            b"*/*;q=nan",
            b"bytes=0-",
            b'W/"\xe9"',
            b"a" * 9000,
        ]
    ),
    TOKEN,
)
TARGETS = st.one_of(
    st.sampled_from([one.path.encode() for one in OPERATIONS if not one.live] + [b"/ws", b"*", b"http://a/", b"//"]),
    st.binary(max_size=60).map(lambda some: b"/api/jobs/" + some),
    st.binary(max_size=60).map(lambda some: b"/api/jobs?" + some),
    TOKEN,
)
METHODS = st.one_of(st.sampled_from(b"GET,POST,PUT,PATCH,DELETE,OPTIONS,HEAD,TRACE,CONNECT,get".split(b",")), TOKEN)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """What looks like a request, more or less."""
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 ", b""]))
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=12))
    host = [(b"Host", b"localhost")] if draw(st.booleans()) else []
    end = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\r"]))
    lines = [b" ".join((draw(METHODS), draw(TARGETS), version))]
    lines += [name + b": " + value for name, value in (*host, *headers)]
    return end.join(lines) + end * 2 + draw(st.binary(max_size=200))


@SETTINGS
@given(said=requests())
def _ask_anything(hub: Besieged, said: bytes) -> None:
    answers = hub.say(said)
    assert all(one < 500 for one in statuses(answers)), (said, answers)
    hub.check()


def test_heads_of_all_kinds_are_answered_or_refused(hub: Besieged) -> None:
    _ask_anything(hub)


def head(*lines: bytes) -> bytes:
    return b"\r\n".join(
        (b"POST /api/jobs HTTP/1.1", b"Host: localhost", b"Content-Type: application/json", *lines, b"", b"")
    )


SECOND = b"GET /api/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""What one who stands in front of the hub would take for a part of the body."""

WHOLE = b'1c\r\n{"task": "a", "payload":{} }\r\n0\r\n\r\n'
"""A job, as the one chunk of a body."""

SMUGGLED = {
    "both, the length first": head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + WHOLE + SECOND,
    "both, the coding first": head(b"Transfer-Encoding: chunked", b"Content-Length: 5") + WHOLE + SECOND,
    "two lengths": head(b"Content-Length: 2", b"Content-Length: 50") + b"{}" + SECOND,
    "a list of lengths": head(b"Content-Length: 2, 50") + b"{}" + SECOND,
    "a signed length": head(b"Content-Length: +2") + b"{}" + SECOND,
    "a negative length": head(b"Content-Length: -2") + b"{}" + SECOND,
    "a length in other digits": head("Content-Length: ٢".encode()) + b"{}" + SECOND,
    "an unknown coding": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n" + SECOND,
    "two codings": head(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n" + SECOND,
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SECOND,
    "a space before the colon": head(b"Transfer-Encoding : chunked") + b"0\r\n\r\n" + SECOND,
    "a tab in the coding": head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n" + SECOND,
    "chunks of no size": head(b"Transfer-Encoding: chunked") + b"x\r\n{}\r\n0\r\n\r\n" + SECOND,
    "chunks of a negative size": head(b"Transfer-Encoding: chunked") + b"-2\r\n{}\r\n0\r\n\r\n" + SECOND,
    "chunks of a huge size": head(b"Transfer-Encoding: chunked") + b"f" * 30 + b"\r\n{}" + SECOND,
    "a chunk that is longer": head(b"Transfer-Encoding: chunked") + b"2\r\n{}xx\r\n0\r\n\r\n" + SECOND,
    "HTTP/1.0 in chunks": head(b"Transfer-Encoding: chunked").replace(b"1.1", b"1.0", 1) + b"0\r\n\r\n" + SECOND,
}


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    folder = tmp_path_factory.mktemp("smuggled")
    url = f"sqlite:///{folder}/jobs.db"
    with started(folder, "hub", "--url", url, *QUIET) as running, closing(Besieged(running)) as made:
        yield made


@pytest.mark.xdist_group("smuggled")
@pytest.mark.parametrize("shape", SMUGGLED)
def test_no_second_request_is_smuggled_in(one_hub: Besieged, shape: str) -> None:
    answers = one_hub.say(SMUGGLED[shape], stay=True)
    assert len(statuses(answers)) == 1, answers
    if not shape.startswith("both"):  # the chunks count then, and nothing after them is listened to
        assert 400 <= statuses(answers)[0] < 500
    assert b'"keys"' not in answers
    one_hub.check()


# -- bodies

DEEP = b'{"a":' * 20_000 + b"1" + b"}" * 20_000

BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"\\ud800"',
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b"\x1f\x8b\x08\x00",
    b"{}{}",
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a": %s}' % (b"9" * 5000),
    b'{"\\u0000": 1}',
    b'{"task": "a", "task": "b", "payload": {}}',
    DEEP,
    b"[" * 100_000,
    b'{"task": "' + b"x" * 200_000 + b'"}',
    b'{"filter": ' + DEEP + b"}",
]

TAKING = [one for one in OPERATIONS if one.body is not None or one.raw]


@pytest.mark.parametrize("operation", TAKING, ids=lambda operation: operation.name)
@pytest.mark.xdist_group("smuggled")
def test_broken_bodies_are_refused_as_the_document_says(one_hub: Besieged, operation: Operation) -> None:
    known = {*problems_of(operation), *operation.gives}
    kinds = ["application/json", *(["application/x-ndjson"] if operation.lines and operation.lines[0] else [])]
    for kind in kinds:
        for body in (*BROKEN, *mutants(operation.example)):
            headers = {"content-type": kind}
            answer = one_hub.client.request(operation.method, path_of(operation), content=body, headers=headers)
            assert answer.status_code in known, (body[:100], answer.text)
            assert answer.status_code < 500, (body[:100], answer.text)


def mutants(example: Any) -> Iterator[bytes]:
    """The example with each of its bytes missing or wrong, some of them."""
    text = json.dumps(example).encode()
    for place in range(0, len(text), max(1, len(text) // 20)):
        yield text[:place]
        yield text[:place] + text[place + 1 :]
        yield text[:place] + bytes([text[place] ^ 0x80]) + text[place + 1 :]


# -- frames

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + b64encode(b"0123456789abcdef") + b"\r\n\r\n"
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame, mostly wrong in one way: bits that nobody agreed on, kinds that are not, lengths that do not fit."""
    data = draw(st.one_of(st.binary(max_size=150), MESSAGE.map(lambda one: json.dumps(one).encode())))
    first = draw(st.one_of(st.sampled_from([0x81, 0x81, 0x81, 0x82, 0x88, 0x89, 0x01, 0x00]), st.integers(0, 255)))
    masked = draw(st.sampled_from([0x80, 0x80, 0x80, 0]))
    length = draw(st.sampled_from([len(data), len(data), len(data), len(data) + 7, 2**31, 2**63 - 1]))
    size = bytes([masked | length]) if length < 126 else bytes([masked | 127]) + struct.pack(">Q", length)
    mask = draw(st.binary(min_size=4, max_size=4)) if masked else b""
    body = bytes(one ^ mask[place % 4] for place, one in enumerate(data)) if masked else data
    return bytes([first]) + size + mask + body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from([one.name for one in MESSAGES]) | JSON},
    optional={"job_id": JSON, "key": JSON, "id": JSON, "more": JSON},
)


@SETTINGS
@given(said=st.lists(frames(), min_size=1, max_size=6))
def _frame_anything(hub: Besieged, said: list[bytes]) -> None:
    answers = hub.say(UPGRADE, *said)
    assert statuses(answers) == [101]
    assert b'"status":500' not in answers, (said, answers)
    hub.check()


def test_frames_of_all_kinds_are_answered_or_cut_off(hub: Besieged) -> None:
    _frame_anything(hub)


@SETTINGS
@given(message=MESSAGE)
def _tell_anything(hub: Besieged, message: dict[str, Any]) -> None:
    with connect(hub.running.address.replace("http", "ws") + "/ws", proxy=None) as socket:
        socket.send(json.dumps(message))
        answer = json.loads(socket.recv(timeout=READS))
    assert answer["type"] in ANSWERS, (message, answer)
    assert answer.get("problem", {}).get("status", 0) < 500, (message, answer)


ANSWERS = {"authenticated", "job_status", "unsubscribed", "stats", "pong", "error"}


def test_every_message_is_answered(hub: Besieged) -> None:
    _tell_anything(hub)


def masked(first: int, data: bytes = b"") -> bytes:
    """A short frame as a client sends it."""
    return bytes([first, 0x80 | len(data)]) + bytes(4) + data


FLOODS = {
    "empty pings": masked(0x89),
    "pings": masked(0x89, b"x" * 125),
    "pongs": masked(0x8A),
    "empty pieces": masked(0x00),
    "messages that are none": masked(0x81, b"1"),
    "messages": masked(0x81, b'{"type":"ping"}'),
}


def test_a_flood_of_small_frames_holds_nobody_up(hub: Besieged) -> None:
    for what, one in FLOODS.items():
        with closing(socket.create_connection(("127.0.0.1", hub.port), timeout=READS)) as made:
            made.sendall(UPGRADE + (masked(0x01, b"{") if what == "empty pieces" else b""))
            assert made.recv(4096).startswith(b"HTTP/1.1 101 ")
            over = threading.Event()
            sides = [threading.Thread(target=side, args=(made, one, over)) for side in (flood, drain)]
            for side in sides:
                side.start()
            try:
                for _ in range(20):
                    hub.check()
            finally:
                over.set()
                with suppress(OSError):  # it was cut off
                    made.shutdown(socket.SHUT_RDWR)
                for side in sides:
                    side.join()


def flood(made: socket.socket, one: bytes, over: threading.Event) -> None:
    much = one * (64 * 1024 // len(one))
    with suppress(OSError):
        while not over.is_set():
            made.sendall(much)


def drain(made: socket.socket, one: bytes, over: threading.Event) -> None:
    with suppress(OSError):
        while made.recv(1024 * 1024):
            pass


# -- slow


DRIPPED = {
    "a head": b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 5000,
    "a body": head(b"Content-Length: 5000") + b"{" + b" " * 5000,
    "a body in chunks": head(b"Transfer-Encoding: chunked") + b"1\r\n \r\n" * 1000,
}


@pytest.mark.parametrize("what", DRIPPED)
async def test_who_sends_a_byte_at_a_time_is_not_waited_for(what: str, tmp_path: Path) -> None:
    options = HubOptions(read_timeout=0.5, maintenance=False, webhooks=False)
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as hub:
        usual, meanwhile = await asked(hub.client.get, "/api/version"), Waits()
        dripping = [asyncio.create_task(drip(hub, DRIPPED[what])) for _ in range(20)]
        while not all(one.done() for one in dripping):
            meanwhile.spans += (await asked(hub.client.get, "/api/version", 1)).spans
        meanwhile.as_usual(usual)
        for answer in await asyncio.gather(*dripping):
            # Once, or not at all if what it sends on makes its own system throw the answer away.
            assert statuses(answer) in ([408], [])


async def test_what_was_answered_is_not_answered_again_when_the_rest_is_slow(tmp_path: Path) -> None:
    options = HubOptions(read_timeout=0.5, maintenance=False, webhooks=False)
    refused = head(b"Origin: http://evil.example", b"Content-Length: 5000") + b" " * 5000
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as hub:
        assert statuses(await drip(hub, refused)) == [403]


async def drip(hub: Served, said: bytes) -> bytes:
    """Say this, but for its first lines so slowly that it does not end by itself; what is answered until it is cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.address.rpartition(":")[2]))
    answer, whole = asyncio.create_task(heard(reader)), max(said.find(b"\r\n\r\n") + 4, 60)
    try:
        writer.write(said[:whole])
        for place in range(whole, len(said)):
            writer.write(said[place : place + 1])
            if (await asyncio.wait({answer}, timeout=0.05))[0]:
                return answer.result()
        raise AssertionError("it was listened to until the end")
    finally:
        writer.close()
        answer.cancel()


async def heard(reader: asyncio.StreamReader) -> bytes:
    parts = list[bytes]()
    try:
        while part := await reader.read(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
