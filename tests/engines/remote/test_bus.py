"""Hints over the socket: heard once, also one's own; after a gap everybody looks; told who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace import App
from headrace.engine import Hint, Topic
from headrace.engine.wire import Hints, encode
from headrace.hub import HubOptions
from tests.engines.remote.near import opened
from tests.hub.serving import Served, serving
from tests.support.until import until

READY = frozenset({Topic.READY})


def sockets(hub: Served) -> int:
    return len(hub.hub.live.connections)


async def heard_by(hub: Served, engine: Any, topics: frozenset[Topic] = READY) -> list[Hint]:
    """What it hears from now on, once the hub knows that it listens."""
    heard, there = list[Hint](), hub.app.session.engine.bus._local._listeners  # type: ignore[attr-defined]
    before = len(there)
    engine.bus.listen(topics, heard.append)
    await until(lambda: len(there) > before)
    return heard


async def test_a_hint_reaches_everybody_once_also_whoever_sent_it() -> None:
    async with serving("memory://") as hub, opened(hub) as one, opened(hub) as other:
        mine, theirs = await heard_by(hub, one), await heard_by(hub, other)
        await until(lambda: sockets(hub) == 2)
        there = list[Hint]()
        hub.app.session.engine.bus.listen(READY, there.append)
        for n in range(50):
            one.bus.send(Hint(Topic.READY, (str(n),)))
        hub.app.session.engine.bus.send(Hint(Topic.READY, ("last",)))
        one.bus.send(Hint(Topic.READY, ("end",)))
        for heard in (mine, theirs, there):
            await until(lambda: Hint(Topic.READY, ("end",)) in heard)  # noqa: B023 - it is waited for here
            assert len(heard) == 52, "each of them once"
            assert {hint.names[0] for hint in heard} == {*map(str, range(50)), "last", "end"}


async def test_a_hint_that_cannot_be_written_is_lost_and_those_after_it_are_not() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = await heard_by(hub, one)
        one.bus.send(Hint(Topic.READY, ("\ud800",)))
        await until(lambda: not one.bus._outbox)  # type: ignore[attr-defined]
        one.bus.send(Hint(Topic.READY, ("after",)))
        await until(lambda: Hint(Topic.READY, ("after",)) in heard)


async def test_other_topics_are_not_heard_and_what_is_no_longer_listened_for() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = await heard_by(hub, one)
        ended = list[Hint]()
        stop = one.bus.listen(frozenset({Topic.ENDED}), ended.append)
        await until(lambda: hub.app.session.engine.bus.wanted(Topic.ENDED))
        hub.app.session.engine.bus.send(Hint(Topic.CANCEL, ("x",)))
        hub.app.session.engine.bus.send(Hint(Topic.ENDED, ("x",)))
        await until(lambda: ended)
        stop()
        hub.app.session.engine.bus.send(Hint(Topic.ENDED, ("y",)))
        hub.app.session.engine.bus.send(Hint(Topic.READY, ("q",)))
        await until(lambda: heard)
        assert (heard, ended) == ([Hint(Topic.READY, ("q",))], [Hint(Topic.ENDED, ("x",))])


async def test_the_hub_is_told_later_that_nobody_listens_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engines.remote.bus._LINGER_SECONDS", 0.05)
    async with serving("memory://") as hub, opened(hub) as one:
        stop = one.bus.listen(frozenset({Topic.ENDED}), lambda _: None)
        await until(lambda: hub.app.session.engine.bus.wanted(Topic.ENDED))
        stop()
        await until(lambda: not hub.app.session.engine.bus.wanted(Topic.ENDED))


async def test_whether_anybody_listens_is_told_and_true_while_unknown() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        assert one.bus.wanted(Topic.ENDED)
        await heard_by(hub, one)
        await until(lambda: not one.bus.wanted(Topic.ENDED))
        assert one.bus.wanted(Topic.READY)
        async with opened(hub) as other:
            stop = other.bus.listen(frozenset({Topic.ENDED}), lambda _: None)
            await until(lambda: one.bus.wanted(Topic.ENDED))
            stop()
        await until(lambda: not one.bus.wanted(Topic.ENDED))
        stop = hub.app.session.engine.bus.listen(frozenset({Topic.PROGRESS}), lambda _: None)
        await until(lambda: one.bus.wanted(Topic.PROGRESS))


async def test_after_a_gap_everybody_looks() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = await heard_by(hub, one, frozenset({Topic.READY, Topic.CANCEL}))
        await until(lambda: sockets(hub) == 1)
        assert heard == []
        for connection in list(hub.server.server_state.connections):
            connection.transport.abort()
        await until(lambda: len(heard) == 2)
        assert set(heard) == {Hint(Topic.READY), Hint(Topic.CANCEL)}
        hub.app.session.engine.bus.send(Hint(Topic.READY, ("q",)))
        await until(lambda: Hint(Topic.READY, ("q",)) in heard)


async def test_what_is_sent_just_before_the_end_still_goes_out() -> None:
    async with serving("memory://") as hub:
        heard = list[Hint]()
        hub.app.session.engine.bus.listen(READY, heard.append)
        async with opened(hub) as one:
            one.bus.send(Hint(Topic.READY, ("q",)))
        await until(lambda: heard == [Hint(Topic.READY, ("q",))])


async def test_nobody_connects_without_need() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        assert await one.records.count(hub.app.host.clock.now()) == []
        assert sockets(hub) == 0


async def test_nobody_comes_back_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engines.remote.bus._LINGER_SECONDS", 0.0)
    async with serving("memory://") as hub, opened(hub) as one, opened(hub) as other:
        stop = one.bus.listen(READY, lambda _: None)
        heard = await heard_by(hub, other)
        await until(lambda: sockets(hub) == 2)
        stop()
        await until(lambda: one._bus._told == frozenset())
        for connection in list(hub.server.server_state.connections):
            connection.transport.abort()
        await until(lambda: heard, what="the other one is back")
        assert sockets(hub) == 1
        one.bus.send(Hint(Topic.READY, ("q",)))
        await until(lambda: Hint(Topic.READY, ("q",)) in heard)


async def test_from_another_thread() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = await heard_by(hub, one)
        await asyncio.to_thread(one.bus.send, Hint(Topic.READY, ("q",)))
        await until(lambda: heard == [Hint(Topic.READY, ("q",))])


async def test_what_is_not_understood_makes_everybody_look() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = await heard_by(hub, one)
        one._bus._hear(encode({"hints": [{"topic": "of_a_later_version", "names": ["x"]}]}))
        assert heard == [Hint(Topic.READY)]
        one._bus._hear(encode(Hints(hints=(Hint(Topic.READY, ("q",)),))))
        assert heard[1:] == [Hint(Topic.READY, ("q",))]


async def test_too_many_hints_become_few() -> None:
    async with serving("memory://") as hub, opened(hub) as one:
        heard = list[Hint]()
        hub.app.session.engine.bus.listen(frozenset({Topic.READY, Topic.CANCEL}), heard.append)
        for n in range(2500):  # before there is a connection
            one.bus.send(Hint(Topic.READY if n else Topic.CANCEL, (str(n),)))
        await until(lambda: Hint(Topic.READY, ("2499",)) in heard)
        assert {Hint(Topic.READY), Hint(Topic.CANCEL)} <= set(heard)
        assert len(heard) <= 1001


@pytest.mark.parametrize(("key", "status"), [("none", 401), ("ci", 403), ("hr_wrong567890", 401)])
async def test_hints_are_for_engines_alone(key: str, status: int) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    async with App("memory://") as app:
        texts = {"ci": (await app.keys.create("ci", ["read", "submit", "work", "act", "admin"])).text, "none": ""}
        async with serving(app) as hub:
            text = texts.get(key, key)
            headers = {"Authorization": f"Bearer {text}"} if text else {}
            with pytest.raises(InvalidStatus) as caught:
                async with connect(f"ws{hub.address[4:]}/rpc/hints", additional_headers=headers):
                    pass
            assert caught.value.response.status_code == status


@pytest.mark.parametrize("ending", ["drained", "revoked"])
async def test_the_socket_ends_with_its_key_and_with_its_hub(ending: str) -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("far", ["engine"])).text
        await app.keys.create("another", ["read"])
        async with serving(app, HubOptions(grace=5, maintenance=False, webhooks=False)) as hub, opened(hub, key) as one:
            await heard_by(hub, one)
            await until(lambda: sockets(hub) == 1)
            end: Callable[[], Any] = hub.server.stop if ending == "drained" else lambda: app.keys.revoke("far")
            if (ended := end()) is not None:
                await ended
            await until(lambda: sockets(hub) == 0)
