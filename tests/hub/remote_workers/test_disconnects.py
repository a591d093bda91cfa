"""Connections of workers that end: which ends tell that the worker may have died, and to whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace import App
from headrace.core.defaults import Rules
from headrace.engine import Beat, Hint, Topic, WorkerInfo, WorkerRow
from headrace.engine.bus import PARTED
from headrace.engines.remote import RemoteEngine
from headrace.engines.remote.connection import Address
from headrace.hub import HubOptions
from headrace.hub.remote_workers.peers import SocketPeer
from headrace.runtime.host import Host
from tests.engines.remote.near import far
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import said, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.servers.proxy import Proxy
from tests.support.until import until

ME: dict[str, Any] = {"worker_id": "w", "tasks": ["work"]}
OPTIONS = HubOptions(maintenance=False, webhooks=False, worker_grace=17.0)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture
async def hub(url: str) -> AsyncIterator[Served]:
    """A hub beside which nobody sweeps: what is on record stays as it is."""
    async with serving(url, OPTIONS) as hub:
        yield hub


async def row_of(app: App, id: str | UUID) -> WorkerRow:
    [row] = [row for row in await app.session.engine.workers.list() if str(row.info.id) == str(id)]
    return row


async def is_cut_off(app: App, id: str | UUID) -> bool:
    return (await row_of(app, id)).grace == OPTIONS.worker_grace


async def has_beaten(app: App, id: str | UUID, number: int) -> bool:
    return (await row_of(app, id)).beats > number


async def test_a_socket_that_ends_without_a_goodbye_is_on_record_until_the_worker_is_heard(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))
    assert (await work(hub.client, "heartbeat", token=known["token"]))["registered"]
    assert (await row_of(hub.app, known["worker"])).grace is None


@pytest.mark.parametrize("code", [1000, 1005])
async def test_a_goodbye_is_none_of_its_death(hub: Served, code: int) -> None:
    async with connected(hub) as socket, connected(hub) as other:
        known, control = await socket.ask("register_worker", **ME), await other.ask("register_worker", **ME)
        if code == 1005:
            socket.connection.protocol.send_close()
            socket.connection.send_data()
            await socket.connection.wait_closed()
        else:
            await socket.connection.close(code)
        other.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, control["worker"]))
        assert (await row_of(hub.app, known["worker"])).grace is None


async def test_going_away_is_no_goodbye(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        await socket.connection.close(1001)
        await until(lambda: is_cut_off(hub.app, known["worker"]))


async def test_who_does_not_answer_pings_is_cut_off(hub: Served) -> None:
    hub.server.config.ws_ping_interval = hub.server.config.ws_ping_timeout = 0.2
    async with Proxy(hub.address) as proxy:
        way = Served(hub.hub, hub.app, proxy.url, hub.client, hub.server)
        async with connected(way) as socket:
            known = await socket.ask("register_worker", **ME)
            proxy.silence()
            await until(lambda: is_cut_off(hub.app, known["worker"]))
            socket.connection.transport.abort()


async def test_that_a_hub_stops_says_nothing_about_its_workers(url: str) -> None:
    async with App(url) as app:
        async with serving(url, OPTIONS) as hub, connected(hub) as socket, connected(hub) as other:
            known, second = await socket.ask("register_worker", **ME), await other.ask("register_worker", **ME)
            hub.server.stop()
            assert await socket.closed() == 1012
            other.connection.transport.abort()
        for one in (known, second):
            assert (await row_of(app, one["worker"])).grace is None


async def test_of_two_sockets_the_last_one_counts(hub: Served) -> None:
    async with connected(hub) as one, connected(hub) as two:
        known = await one.ask("register_worker", **ME)
        await two.ask("register_worker", **ME, token=known["token"])
        two.connection.transport.abort()
        worker = hub.hub.fleet.workers[UUID(known["worker"])]
        await until(lambda: len(worker._links) == 1)
        assert not worker.parted
        assert (await one.ask("claim_job", **ME))["type"] == "no_job"
        one.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))


async def test_what_it_said_before_its_end_is_no_sign_of_life_after_it(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        worker = hub.hub.fleet.workers[UUID(known["worker"])]
        [peer] = worker._links
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))
        peer.hears(worker)  # type: ignore[attr-defined]
        await hub.hub.fleet.beats.beat()
        assert await is_cut_off(hub.app, known["worker"])


async def test_who_comes_to_another_hub_is_heard_of_at_once(hub: Served, url: str) -> None:
    async with connected(hub) as socket, serving(url, OPTIONS) as other:
        known = await socket.ask("register_worker", **ME)
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))
        number = (await row_of(hub.app, known["worker"])).beats
        async with connected(other) as again:
            await again.ask("register_worker", **ME, token=known["token"])
            # Long before this hub would have beaten for it.
            await until(lambda: has_beaten(hub.app, known["worker"], number), within=4)


async def test_a_hub_that_has_a_socket_of_it_contradicts(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        number = (await row_of(hub.app, known["worker"])).beats
        hub.app.session.engine.bus.send(Hint(Topic.SETTINGS, (f"{PARTED}{known['worker']}", f"{PARTED}nobody")))
        await until(lambda: has_beaten(hub.app, known["worker"], number), within=4)


async def test_a_hub_that_is_not_the_only_one_to_speak_for_it_says_nothing(hub: Served) -> None:
    async with connected(hub) as socket, connected(hub) as control:
        known, second = await socket.ask("register_worker", **ME), await control.ask("register_worker", **ME)
        for _ in range(2):
            await socket.ask("heartbeat")
            await hub.app.session.engine.workers.beat(UUID(known["worker"]), Beat(), hub.app.host.clock.now())
        await socket.ask("heartbeat")
        socket.connection.transport.abort()
        worker = hub.hub.fleet.workers[UUID(known["worker"])]
        await until(lambda: worker.parted)
        control.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, second["worker"]))
        assert (await row_of(hub.app, known["worker"])).grace is None


async def test_a_hub_that_froze_before_its_first_beat_for_a_worker_says_nothing_of_it(hub: Served, url: str) -> None:
    async with serving(url, OPTIONS) as frozen, connected(frozen) as socket, connected(frozen) as control:
        known = await work(hub.client, "register_worker", **ME)
        beats = frozen.hub.fleet.beats
        async with beats._beating:  # it is stopped between the two
            await socket.ask("register_worker", **ME, token=known["token"])
            await work(hub.client, "heartbeat", token=known["token"])  # it roamed
        await beats.beat()
        socket.connection.transport.abort()
        worker = frozen.hub.fleet.workers[UUID(known["worker"])]
        await until(lambda: worker.parted)
        second = await control.ask("register_worker", **ME)
        control.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, second["worker"]))
        assert (await row_of(hub.app, known["worker"])).grace is None


async def test_who_came_to_another_hub_and_is_cut_off_there_is_on_record(hub: Served, url: str) -> None:
    async with serving(url, OPTIONS) as other, connected(other) as socket:
        known = await work(hub.client, "register_worker", **ME)
        await socket.ask("register_worker", **ME, token=known["token"])
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))


async def test_a_socket_that_ended_while_it_registered_tells_nothing_of_the_next(
    hub: Served, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(url, OPTIONS) as other, connected(other) as one, connected(other) as two:
        known = await work(hub.client, "register_worker", **ME)
        fleet, went_on, asked, told = other.hub.fleet, asyncio.Event(), list[Any](), list[Any]()
        look_for, near, close, closed = fleet.leaving.look_for, fleet.parting.near, SocketPeer.close, list[Any]()

        async def slow(worker: Any) -> None:
            asked.append(worker)
            await went_on.wait()
            await look_for(worker)

        def heard(worker: Any) -> None:
            near(worker)
            told.append(worker)

        def ended(peer: SocketPeer, cut_off: bool) -> None:
            close(peer, cut_off)
            closed.append(peer)

        monkeypatch.setattr(SocketPeer, "close", ended)
        monkeypatch.setattr(fleet.leaving, "look_for", slow)
        monkeypatch.setattr(fleet.parting, "near", heard)
        await one.send("register_worker", **ME, token=known["token"])
        await until(lambda: asked)
        one.connection.transport.abort()
        await until(lambda: closed)
        await two.ask("register_worker", **ME, token=known["token"])
        went_on.set()
        await until(lambda: told)
        [worker] = told
        assert worker.link is not None
        assert not worker.parted
        number = (await row_of(hub.app, known["worker"])).beats
        hub.app.session.engine.bus.send(Hint(Topic.SETTINGS, (f"{PARTED}{known['worker']}",)))
        await until(lambda: has_beaten(hub.app, known["worker"], number))


async def test_who_waits_for_a_job_over_http_is_there(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        worker, fleet = hub.hub.fleet.workers[UUID(known["worker"])], hub.hub.fleet
        claim = asyncio.create_task(said(hub.client, "claim_job", worker_id="w", token=known["token"], wait=20))
        await until(lambda: fleet.claims.waits(worker))
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))
        await fleet.beats.beat()
        assert (await row_of(hub.app, known["worker"])).grace is None
        claim.cancel()


async def test_a_claim_over_the_socket_that_was_cut_off_is_no_sign_of_life(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        worker, fleet = hub.hub.fleet.workers[UUID(known["worker"])], hub.hub.fleet
        jobs, asked, went_on = hub.app.session.engine.jobs, list[Any](), asyncio.Event()
        claim = jobs.claim

        async def slow(*args: Any) -> Any:
            asked.append(args)
            await went_on.wait()
            return await claim(*args)

        monkeypatch.setattr(jobs, "claim", slow)
        await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})
        await socket.send("claim_job", **ME, wait=20)
        await until(lambda: asked)
        socket.connection.transport.abort()
        try:
            await until(lambda: is_cut_off(hub.app, known["worker"]))
            assert worker.given, "the store is still being asked"
            await fleet.beats.beat()
            assert await is_cut_off(hub.app, known["worker"])
        finally:
            went_on.set()


@pytest.mark.parametrize(("lease", "cadence", "patience"), [(60.0, 10.0, 12.5), (120.0, 15.0, 18.5)])
async def test_nobody_is_given_less_than_its_next_heartbeat_takes(
    url: str, lease: float, cadence: float, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BEAT", "15s")
    hasty = HubOptions(maintenance=False, webhooks=False, worker_grace=0.1, worker_lease=lease)
    async with serving(url, hasty) as hub, connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        assert known["heartbeat_seconds"] == cadence
        socket.connection.transport.abort()
        await until(lambda: graces(hub.app, known["worker"], patience))


async def graces(app: App, id: str | UUID, seconds: float) -> bool:
    return (await row_of(app, id)).grace == seconds


async def test_who_was_buried_meanwhile_is_told_so(hub: Served) -> None:
    async with connected(hub) as socket:
        known = await socket.ask("register_worker", **ME)
        socket.connection.transport.abort()
        await until(lambda: is_cut_off(hub.app, known["worker"]))
    row = await row_of(hub.app, known["worker"])
    assert await hub.app.session.engine.workers.bury(row.info.id, row.beats)
    assert (await said(hub.client, "register_worker", **ME, token=known["token"])).status_code == 410


# -- remote engines


async def registered(hub: Served, engine: Any) -> tuple[UUID, str]:
    """A worker of a remote engine, and its proof."""
    id, now = uuid4(), hub.app.host.clock.now()
    attended = await engine.workers.attend(id)
    assert attended is not None
    info = WorkerInfo(id=id, host="far", pid=1, started_at=now, concurrency=1, lease=60.0, proof=attended.proof)
    await engine.workers.register(info, now)
    return id, attended.proof


async def cut(hub: Served, proxy: Proxy, engine: Any, id: UUID) -> None:
    proxy.cut()
    await until(lambda: is_cut_off(hub.app, id))


async def test_a_remote_engine_that_is_cut_off_is_on_record_until_its_next_beat(hub: Served) -> None:
    async with Proxy(hub.address) as proxy:
        engine = far(int(proxy.url.rpartition(":")[2]))
        await engine.open()
        try:
            id, proof = await registered(hub, engine)
            await cut(hub, proxy, engine, id)

            async def again() -> bool:
                attended = await engine.workers.attend(id)
                return attended is not None and attended.proof != proof  # so its worker beats at once

            await until(again)
            attended = await engine.workers.attend(id)
            assert attended is not None
            await engine.workers.beat(id, Beat(proof=attended.proof), hub.app.host.clock.now())
            assert (await row_of(hub.app, id)).grace is None
        finally:
            await engine.close()


@pytest.mark.parametrize(("beat", "seconds"), [(15.0, 18.5), (10.0, 12.5), (float("nan"), 12.5), (float("inf"), 12.5)])
async def test_a_remote_engine_has_the_time_of_one_of_its_own_beats(url: str, beat: float, seconds: float) -> None:
    hasty = HubOptions(maintenance=False, webhooks=False, worker_grace=0.1)
    async with serving(url, hasty) as hub, Proxy(hub.address) as proxy:
        there = Address(host="127.0.0.1", port=int(proxy.url.rpartition(":")[2]))
        engine = RemoteEngine(there, rules=Rules(beat=beat), host=Host())
        await engine.open()
        try:
            id, _ = await registered(hub, engine)
            proxy.cut()
            await until(lambda: graces(hub.app, id, seconds))
        finally:
            await engine.close()


async def test_the_end_of_a_connection_counts_only_while_the_worker_names_it(hub: Served) -> None:
    async with Proxy(hub.address) as proxy:
        engine, control = far(int(proxy.url.rpartition(":")[2])), far(int(proxy.url.rpartition(":")[2]))
        await engine.open()
        await control.open()
        try:
            (id, _), (other, _) = await registered(hub, engine), await registered(hub, control)
            # It has another connection by now, to whichever hub, and this one learns late that its own has ended.
            await hub.app.session.engine.workers.beat(id, Beat(proof="hub another"), hub.app.host.clock.now())
            await cut(hub, proxy, control, other)
            assert (await row_of(hub.app, id)).grace is None
        finally:
            await engine.close()
            await control.close()


async def test_a_remote_engine_that_is_closed_says_goodbye(hub: Served) -> None:
    async with Proxy(hub.address) as proxy:
        engine, control = far(hub), far(int(proxy.url.rpartition(":")[2]))
        await engine.open()
        await control.open()
        try:
            (id, _), (other, _) = await registered(hub, engine), await registered(hub, control)
            await engine.close()
            await cut(hub, proxy, control, other)
            assert (await row_of(hub.app, id)).grace is None
        finally:
            await control.close()
