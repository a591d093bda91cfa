"""A hub and a worker of different releases: they agree on a protocol, or say clearly which is to be upgraded."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from headrace.core.query import Ledger
from headrace.engine import Setting, wire
from headrace.engine.wire import MIN_PROTOCOL, PROTOCOL, VERBS, Hello, common, encode
from headrace.errors import ConfigError, NotSupported
from tests.engines.remote.near import Peer, answering, far, opened
from tests.hub.serving import serving

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def said(oldest: int, newest: int) -> Hello:
    return msgspec.convert(Peer(oldest=oldest, newest=newest).hello, Hello)


def test_both_speak_the_newest_that_both_know() -> None:
    assert common(said(MIN_PROTOCOL, PROTOCOL)) == PROTOCOL
    assert common(said(PROTOCOL, PROTOCOL + 1)) == PROTOCOL
    assert common(said(PROTOCOL + 1, PROTOCOL + 2)) is None
    assert common(said(MIN_PROTOCOL - 1, MIN_PROTOCOL - 1)) is None
    assert common(said(MIN_PROTOCOL - 1, MIN_PROTOCOL)) == MIN_PROTOCOL


async def test_a_hub_one_release_ahead_is_spoken_to_as_before() -> None:
    peer = Peer(oldest=PROTOCOL, newest=PROTOCOL + 1, something_new={"a": 1})
    async with answering(peer) as port, opened(port) as engine:
        ledger = dict.fromkeys(Ledger.__struct_fields__, 7)
        peer.answer = (200, "application/msgpack", encode({**ledger, "a_new_field": [1]}))
        assert await engine.records.ledger() == Ledger(**ledger)
        assert b"X-Headrace-Protocol: %d\r\n" % PROTOCOL in peer.asked[-1]


@pytest.mark.parametrize(
    ("oldest", "newest", "who"),
    [(PROTOCOL + 1, PROTOCOL + 2, "upgrade headrace here"), (MIN_PROTOCOL - 1, MIN_PROTOCOL - 1, "upgrade the hub")],
)
async def test_a_hub_too_far_apart_is_not_spoken_to(oldest: int, newest: int, who: str) -> None:
    async with answering(Peer(oldest=oldest, newest=newest)) as port:
        with pytest.raises(ConfigError, match=rf"headrace 9\.9\) speaks protocols {oldest} to {newest}.*{who}"):
            await far(port).open()


async def test_a_worker_one_release_ahead_works_with_this_hub() -> None:
    """It speaks what this hub speaks; an argument that this hub does not know is sent only where it is used."""
    newer = msgspec.defstruct(
        "put_setting",
        [("key", str), ("value", str | None), ("expect", int), ("act", None, None), ("quietly", bool, False)],
        omit_defaults=True,
    )
    async with serving("memory://") as hub, opened(hub) as engine:
        verb = next(one for one in VERBS if one.path == "documents/put_setting")
        made = await engine._calls.call(verb, newer("queue:a", "{}", 0))
        assert isinstance(made, Setting)
        with pytest.raises(NotSupported, match="`quietly`"):
            await engine._calls.call(verb, newer("queue:b", "{}", 0, None, True))
        assert [one.key for one in await engine.documents.settings()] == ["queue:a"]


async def test_a_verb_that_the_hub_does_not_know_is_named() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        verb = msgspec.structs.replace(VERBS[0], name="paint")
        with pytest.raises(NotSupported, match="does not know session/paint"):
            await engine._calls.call(verb, verb.takes())


async def test_of_two_hubs_behind_one_address_the_older_decides() -> None:
    async with serving("memory://") as hub, opened(hub) as engine:
        engine._calls._protocol = PROTOCOL + 1  # as agreed with the newer one
        assert await engine.jobs.get([uuid4()]) == [None]
        assert engine._calls._protocol == MIN_PROTOCOL


async def test_a_hub_that_speaks_nothing_of_what_we_do_says_so() -> None:
    peer = Peer()
    async with answering(peer) as port, opened(port) as engine:
        said = b'{"type":"https://x/protocol","detail":"this hub speaks 7 to 8"}'
        peer.answer = (400, "application/problem+json", said)
        with pytest.raises(NotSupported, match="this hub speaks 7 to 8; upgrade the older"):
            await engine.jobs.get([uuid4()])


def test_everything_that_may_be_asked_again_is_a_verb() -> None:
    paths = {verb.path for verb in VERBS}
    assert paths >= wire.READS
    assert paths >= wire.LONG
    assert not wire.NEAR & paths
    assert {verb.role for verb in VERBS} == {
        "session", "jobs", "records", "entries", "families", "rollups", "workers", "documents",
    }  # fmt: skip
