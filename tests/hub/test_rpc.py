"""Calls of remote engines, as the hub takes them: whatever comes is understood or refused, and nothing is a fault."""

from __future__ import annotations

import logging

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import App
from headrace.engine.wire import MIN_PROTOCOL, PROTOCOL, VERBS, Hello, encode
from headrace.hub.openapi.document import document
from headrace.hub.operations import ENGINE, OPERATIONS
from tests.hub.serving import Served, serving

HEADERS = {"content-type": "application/msgpack", "x-headrace-protocol": str(PROTOCOL)}
PATHS = [f"/rpc/{verb.path}" for verb in VERBS]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def test_every_verb_is_an_operation_that_is_for_engines_alone_and_in_no_document() -> None:
    assert {one.path for one in ENGINE} == {*PATHS, "/rpc/hello"}
    assert {one.scope for one in ENGINE} == {"engine"}
    assert {one.bounded for one in ENGINE} == {"operator"}
    assert not [path for path in document(OPERATIONS)["paths"] if path.startswith("/rpc")]


@pytest.mark.timeout(300)
async def test_whatever_is_sent_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with serving("memory://") as hub:
        bodies = list[bytes]()

        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(ODD | st.binary(max_size=40))
        def draw(value: object) -> None:
            bodies.append(value if isinstance(value, bytes) else encode(value))

        draw()
        deep = b"\x91" * 100_000 + b"\xc0"
        for n, body in enumerate([*bodies, b"", b"\x81\xa2\xff\xfe\x01", deep, b'{"limit": 1}']):
            path = PATHS[n % len(PATHS)]
            answer = await hub.client.post(path, content=body, headers=HEADERS)
            assert answer.status_code in (200, 400), f"{path} {body[:50]!r}: {answer.status_code} {answer.text}"
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_what_an_argument_lacks_is_named() -> None:
    async with serving("memory://") as hub:
        for body, word in (({}, "`now`"), ({"now": 7}, "now"), ({"now": None, "colour": 1}, "now")):
            answer = await hub.client.post("/rpc/jobs/promote", content=msgspec.msgpack.encode(body), headers=HEADERS)
            assert answer.status_code == 400
            assert word in answer.json()["detail"]


@pytest.mark.parametrize("number", [None, str(MIN_PROTOCOL - 1), str(PROTOCOL + 1), "x"])
async def test_another_protocol_is_refused_before_anything_is_read(number: str | None) -> None:
    async with serving("memory://") as hub:
        headers = {"content-type": "application/msgpack"} | ({} if number is None else {"x-headrace-protocol": number})
        answer = await hub.client.post("/rpc/session/time", content=encode({}), headers=headers)
        assert answer.status_code == 400
        assert answer.json()["type"].endswith("/protocol")
        assert f"protocols {MIN_PROTOCOL} to {PROTOCOL}" in answer.json()["detail"]


async def test_json_is_no_call() -> None:
    async with serving("memory://") as hub:
        answer = await hub.client.post(
            "/rpc/session/time", content=b"{}", headers=HEADERS | {"content-type": "text/plain"}
        )
        assert answer.status_code == 415


async def test_a_hub_says_what_it_speaks() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("far", ["engine"])).text
        async with serving(app) as hub:
            said = await hub.client.get("/rpc/hello", headers={"authorization": f"Bearer {key}"})
            hello = msgspec.json.decode(said.content, type=Hello)
            assert (hello.oldest, hello.newest, hello.store) == (MIN_PROTOCOL, PROTOCOL, "memory")


async def test_a_web_page_cannot_call_a_hub_without_keys() -> None:
    async with serving("memory://") as hub:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
            answer = await hub.client.post("/rpc/session/time", content=encode({}), headers=HEADERS | headers)
            assert answer.status_code == 403


async def test_calls_are_counted_and_told_only_where_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.hub.access")

    async def called(hub: Served, number: str) -> None:
        await hub.client.post(
            "/rpc/session/time", content=encode({}), headers=HEADERS | {"x-headrace-protocol": number}
        )

    async with serving("memory://") as hub:
        await called(hub, str(PROTOCOL))
        await called(hub, "x")
        counted = {status: counts[0] for (name, status), counts in hub.hub.access.answered.items() if "rpc" in name}
        assert counted == {200: 1, 400: 1}
        assert [one.message.split()[2] for one in caplog.records if "/rpc/" in one.message] == ["400"]
