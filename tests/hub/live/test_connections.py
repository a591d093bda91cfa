"""Who is let go: when the hub drains, when a key is revoked, and when somebody takes nothing any more."""

from __future__ import annotations

import asyncio
import socket as sockets
from pathlib import Path
from typing import Any

import pytest
import websockets

from headrace.hub import HubOptions
from tests.hub.live.doing import Doing
from tests.hub.live.listening import connected, listening
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until


@pytest.fixture
def doing(tmp_path: Path) -> Doing:
    return Doing(url_of("sqlite", tmp_path))


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


# Draining


async def test_streams_and_sockets_are_told_that_the_hub_goes_away(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        async with (
            listening(hub, f"/api/jobs/{job.id}/events") as stream,
            listening(hub, "/api/events") as feed,
            connected(hub) as socket,
        ):
            await stream.next()
            await socket.ask("subscribe_job", job_id=str(job.id))
            hub.hub.draining.set()
            for one in (stream, feed):
                last = (await one.rest())[-1]
                assert (last.name, last.data["status"]) == ("error", 503)
            assert (await socket.until("error"))["problem"]["status"] == 503
            assert await socket.closed() == 1012
        await until(lambda: not len(hub.hub.live.connections))
        assert (await hub.client.get(f"/api/jobs/{job.id}/events")).status_code == 503
        with pytest.raises(websockets.InvalidStatus):
            async with connected(hub):
                pass


async def test_what_comes_while_the_hub_drains_is_resumed_at_another(tmp_path: Path) -> None:
    one, two = (Doing(url_of("sqlite", tmp_path)) for _ in range(2))
    async with serving(one.app) as first, serving(two.app) as second:
        job = await one.work.submit(1)
        path = f"/api/jobs/{job.id}/events"
        async with listening(first, path) as stream:
            seen = await stream.next()
            first.hub.draining.set()
            await stream.rest()
        assert seen is not None
        assert seen.id is not None
        async with listening(second, path, last_event_id=seen.id) as stream:
            await stream.until("snapshot")
            await one.app.jobs.handle(job.id).cancel()
            await stream.until("status", status="cancelled")


# Keys


async def test_what_a_revoked_key_has_open_is_closed(doing: Doing) -> None:
    async with doing.app:
        key, other = [await doing.app.keys.create(name, ["read"]) for name in ("shop", "other")]
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        path = f"/api/jobs/{job.id}/events"
        async with (
            listening(hub, path, **bearer(key.text)) as stream,
            connected(hub, additional_headers=bearer(key.text)) as socket,
            connected(hub) as later,
            connected(hub, additional_headers=bearer(other.text)) as stays,
        ):
            await stream.next()
            assert (await later.ask("subscribe_job", job_id=str(job.id)))["problem"]["status"] == 401
            assert (await later.ask("authenticate", key=key.text))["name"] == "shop"
            assert (await later.ask("subscribe_job", job_id=str(job.id)))["type"] == "job_status"
            await doing.app.keys.revoke("shop")
            last = (await stream.rest())[-1]
            assert (last.name, last.data["status"]) == ("error", 401)
            assert last.data["type"].endswith("/problems/key")  # as over HTTP
            for one in (socket, later):
                assert (await one.until("error"))["problem"]["status"] == 401
                assert await one.closed() == 1008
            assert (await stays.ask("subscribe_job", job_id=str(job.id)))["type"] == "job_status"


async def test_a_stream_that_is_opened_while_its_key_is_revoked_is_closed(
    doing: Doing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with doing.app:
        key = await doing.app.keys.create("shop", ["read"])
        await doing.app.keys.create("other", ["read"])
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        caller, paths = hub.hub.authenticator.authenticate(key.text), (f"/api/jobs/{job.id}/events", "/api/events")
        let_in = list[None]()

        async def revoke() -> None:
            """Between the door and the stream: whoever asks was let in, and has nothing open yet."""
            let_in.append(None)
            if len(let_in) == len(paths):
                await doing.app.keys.revoke("shop")
            await until(lambda: not hub.hub.authenticator.knows(caller))

        follow, join = doing.app.jobs.follow, hub.hub.live.feed.join

        async def followed(*of: Any, **options: Any) -> Any:
            await revoke()
            return await follow(*of, **options)

        async def joined(*of: Any, **options: Any) -> Any:
            await revoke()
            return await join(*of, **options)

        monkeypatch.setattr(doing.app.jobs, "follow", followed)
        monkeypatch.setattr(hub.hub.live.feed, "join", joined)

        async def opened(path: str) -> None:
            async with listening(hub, path, **bearer(key.text)) as stream:
                [last] = await stream.rest()
            assert (last.name, last.data["status"]) == ("error", 401), path

        await asyncio.gather(*map(opened, paths))
        await until(lambda: not len(hub.hub.live.connections))
        assert not len(doing.app.session.followers)


async def test_who_a_socket_is_is_said_once(doing: Doing) -> None:
    async with doing.app:
        ann = await doing.app.keys.create("ann", ["read"], customer="ann")
        bob = await doing.app.keys.create("bob", ["read"], customer="bob")
    async with serving(doing.app) as hub:
        of = {name: await doing.work._with_options({"customer": name}).submit(1) for name in ("ann", "bob")}
        async with (
            connected(hub) as said,
            connected(hub, additional_headers=bearer(ann.text)) as known,
        ):
            await said.ask("authenticate", key=ann.text)
            for socket in (said, known):
                assert (await socket.ask("subscribe_job", job_id=str(of["ann"].id)))["type"] == "job_status"
                for text in (bob.text, ann.text, "hr_wrong"):
                    assert (await socket.ask("authenticate", key=text))["problem"]["status"] == 409
                assert (await socket.ask("subscribe_job", job_id=str(of["bob"].id)))["problem"]["status"] == 404
            await doing.app.keys.revoke("bob")  # which is nothing to them
            await doing.app.jobs.handle(of["ann"].id).cancel()
            for socket in (said, known):
                await socket.until("job_status", status="cancelled")
            await doing.app.keys.revoke("ann")
            for socket in (said, known):
                assert await socket.closed() == 1008


async def test_a_wrong_key_closes_the_socket_after_the_answer(doing: Doing) -> None:
    async with doing.app:
        await doing.app.keys.create("shop", ["read"])
    async with serving(doing.app) as hub, connected(hub) as socket:
        assert (await socket.ask("authenticate", key="hr_wrong"))["problem"]["status"] == 401
        assert await socket.closed() == 1008


async def test_who_does_not_say_who_they_are_is_closed(doing: Doing) -> None:
    async with doing.app:
        await doing.app.keys.create("shop", ["read"])
    async with serving(doing.app, HubOptions(read_timeout=0.05)) as hub, connected(hub) as socket:
        assert await socket.closed() == 1000


# Customers


async def test_a_foreign_job_is_answered_like_one_that_is_not_there(doing: Doing) -> None:
    async with doing.app:
        ann = await doing.app.keys.create("ann", ["read"], customer="ann")
    async with serving(doing.app) as hub:
        own = await doing.work._with_options({"customer": "ann"}).submit(1)
        foreign = await doing.work._with_options({"customer": "bob"}).submit(1)
        answer = await hub.client.get(f"/api/jobs/{foreign.id}/events", headers=bearer(ann.text))
        assert answer.status_code == 404
        async with connected(hub, additional_headers=bearer(ann.text)) as socket:
            assert (await socket.ask("subscribe_job", job_id=str(foreign.id)))["problem"]["status"] == 404
            assert (await socket.ask("subscribe_stats"))["problem"]["status"] == 403
            assert (await socket.ask("subscribe_job", job_id=str(own.id)))["type"] == "job_status"
        answer = await hub.client.get("/api/events?customer=bob", headers=bearer(ann.text))
        assert answer.status_code == 403
        async with listening(hub, "/api/events", **bearer(ann.text)) as feed:
            await doing.app.jobs.handle(foreign.id).cancel()
            await doing.app.jobs.handle(own.id).cancel()
            assert (await feed.until("job")).data["id"] == str(own.id)


# Who takes nothing


async def stuck(hub: Served, request: bytes) -> sockets.socket:
    """A connection that sends this, and reads nothing."""
    connection = sockets.socket()
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    connection.setblocking(False)
    host, port = hub.address.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, int(port)))
    await loop.sock_sendall(connection, request)
    return connection


async def test_a_reader_that_takes_nothing_is_cut_off_and_holds_nobody_up(doing: Doing) -> None:
    async with serving(doing.app, HubOptions(read_timeout=0.5)) as hub, doing.app.worker():
        job = await doing.flood.submit(400)
        path = f"/api/jobs/{job.id}/events"
        connection = await stuck(hub, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        try:
            async with listening(hub, path) as stream:  # hears all of it meanwhile
                items = [one for one in await stream.rest() if one.name == "item"]
            assert len(items) == 400
            await until(lambda: not len(hub.hub.live.connections), what="the other one was cut off")
        finally:
            connection.close()


async def test_a_socket_that_takes_nothing_is_cut_off(doing: Doing) -> None:
    async with serving(doing.app, HubOptions(read_timeout=0.5)) as hub:
        head = (
            "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        connection = await stuck(hub, head.encode())
        try:
            await until(lambda: len(hub.hub.live.connections) == 1)
            ping = b'{"type": "ping", "id": "' + b"x" * 200 + b'"}'
            frame = b"\x81" + bytes([0x80 | 126]) + len(ping).to_bytes(2, "big") + b"\x00" * 4 + ping

            async def flood() -> None:
                while True:
                    await asyncio.get_running_loop().sock_sendall(connection, frame * 100)

            with pytest.raises(ConnectionError):  # it is cut off in the middle of it
                await asyncio.wait_for(flood(), 30)
            await until(lambda: not len(hub.hub.live.connections))
        finally:
            connection.close()


async def test_a_half_closed_connection_is_let_go(doing: Doing) -> None:
    async with serving(doing.app) as hub:
        job = await doing.work.submit(1)
        request = f"GET /api/jobs/{job.id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        connection = await stuck(hub, request.encode())
        try:
            await until(lambda: len(hub.hub.live.connections) == 1)
            connection.shutdown(sockets.SHUT_WR)
            await until(lambda: not len(hub.hub.live.connections))
            assert not len(doing.app.session.followers)
        finally:
            connection.close()
