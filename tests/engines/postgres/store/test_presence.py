"""The lock that shows that a worker lives, held by a session of the server: what frees it, and what says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from headrace.core.defaults import Rules
from headrace.engine import Attended, Beat, WorkerInfo, WorkerRow
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store.connection import Connection
from headrace.engines.postgres.store.presence import Presence
from headrace.runtime.host import Host
from headrace.testing.clock import FakeClock
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import Server, shared
from tests.support.servers.proxy import Proxy
from tests.support.until import until

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row(worker: UUID, proof: str | None) -> WorkerRow:
    info = WorkerInfo(id=worker, host="here", pid=1, started_at=NOW, concurrency=1, proof=proof)
    return WorkerRow(info, Beat(), 0, NOW, True, 0)


class Pair:
    """One who holds and one who looks, each with connections of its own."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.url = url
        self.connections: list[Connection] = []
        host = Host(self.clock)
        self.holder = Presence(self._connect, host, 30.0)
        self.looker = Presence(self._connect, host, 30.0)

    async def _connect(self) -> Connection:
        self.connections.append(await asyncpg.connect(self.url))
        return self.connections[-1]

    async def held(self, worker: UUID) -> Attended:
        attended = await self.holder.attend(worker)
        assert attended is not None
        return attended

    async def gone(self, here: WorkerRow) -> bool:
        return here.info.id in (await self.looker.gone([here])).workers

    async def terminate(self, attended: Attended) -> None:
        """As an administrator may."""
        connection = await asyncpg.connect(shared().url())
        await connection.execute(f"SELECT pg_terminate_backend({attended.proof.split()[2]})")
        await connection.close()

    def close(self) -> None:
        self.holder.close()
        self.looker.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair(shared().url())
    yield pair
    pair.close()


async def test_it_is_held_until_the_session_ends(pair: Pair) -> None:
    worker = uuid4()
    here = row(worker, (await pair.held(worker)).proof)
    assert not await pair.gone(here)
    pair.holder.close()
    await until(lambda: pair.gone(here))
    assert await pair.gone(here)  # looking takes nothing away


async def test_a_connection_that_an_administrator_ended_is_replaced_at_once(pair: Pair) -> None:
    worker = uuid4()
    first = await pair.held(worker)
    await pair.terminate(first)
    await until(lambda: pair.gone(row(worker, first.proof)))
    await until(lambda: pair.connections[0].is_closed())
    await until(lambda: _is_held(pair, worker))
    second = await pair.held(worker)
    assert second.proof != first.proof
    assert not await pair.gone(row(worker, second.proof))


async def _is_held(pair: Pair, worker: UUID) -> bool:
    return await pair.holder.attend(worker) is not None


async def test_what_was_found_by_a_broken_session_is_marked(pair: Pair) -> None:
    worker = uuid4()
    here = row(worker, (await pair.held(worker)).proof)
    before = await pair.looker.gone([here])
    assert (await pair.looker.gone([here])).by == before.by
    pair.connections[-1].terminate()
    after = await pair.looker.gone([here])
    assert after.by > before.by
    assert after.workers == frozenset()


async def test_another_run_of_the_server_or_another_database_says_nothing(pair: Pair) -> None:
    worker = uuid4()
    started, database, pid, number = (await pair.held(worker)).proof.split()
    pair.holder.close()
    await until(lambda: pair.gone(row(worker, f"{started} {database} {pid} {number}")))
    rest = f"{pid} {number}"
    for proof in (f"{float(started) + 1} {database} {rest}", f"{started} {database}1 {rest}", f"{started} x", "", None):
        assert not await pair.gone(row(worker, proof))


async def test_whoever_goes_on_under_a_new_id_holds_that_one_alone(pair: Pair) -> None:
    one, two = uuid4(), uuid4()
    first, second = await pair.held(one), await pair.held(two)
    await until(lambda: pair.gone(row(one, first.proof)))
    assert not await pair.gone(row(two, second.proof))


async def test_the_next_connection_need_not_wait_until_the_server_has_missed_the_first() -> None:
    async with Proxy(shared().url()) as proxy:
        pair, worker = Pair(proxy.url), uuid4()
        first = await pair.held(worker)
        proxy.silence()  # the server knows nothing of it, and keeps the session
        pair.clock.advance(30)
        pair.connections[0].terminate()
        await until(lambda: _is_held(pair, worker))
        assert (await pair.held(worker)).proof != first.proof
        pair.close()


async def test_a_connection_on_which_nothing_arrives_is_found_out_within_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.engines.postgres.store.presence._STATEMENT_TIMEOUT_SECONDS", 0.5)
    async with Proxy(shared().url()) as proxy:
        pair, worker = Pair(proxy.url), uuid4()
        first = await pair.held(worker)
        proxy.silence()
        assert await pair.held(worker) == first  # not asked yet
        pair.clock.advance(30)
        await until(lambda: _is_held_anew(pair, worker, first))
        pair.close()


async def _is_held_anew(pair: Pair, worker: UUID, before: Attended) -> bool:
    held = await pair.holder.attend(worker)
    return held is not None and held.proof != before.proof


async def test_who_has_a_beat_to_send_does_not_wait_until_that_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy(shared().url()) as proxy:
        pair, worker = Pair(proxy.url), uuid4()
        first = await pair.held(worker)
        monkeypatch.setattr("headrace.engines.postgres.store.presence._STATEMENT_TIMEOUT_SECONDS", 3600.0)
        proxy.silence()
        pair.clock.advance(30)
        for _ in range(2):
            async with asyncio.timeout(30):
                assert await pair.held(worker) == first
        pair.close()


async def test_the_server_waits_two_leases_for_a_machine_that_is_cut_off(pair: Pair) -> None:
    await pair.held(uuid4())
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    found = [await pair.connections[0].fetchval(f"SHOW {name}") for name in names]
    assert found == ["60", "10", "3", "60000"]


async def test_many_who_look_at_once_find_the_same(pair: Pair) -> None:
    worker = uuid4()
    here = row(worker, (await pair.held(worker)).proof)
    others = [Presence(pair._connect, Host(), 30.0) for _ in range(4)]
    for expected in (frozenset[UUID](), frozenset({worker})):
        for _ in range(20):
            answers = await asyncio.gather(*(one.gone([here]) for one in others))
            assert [one.workers for one in answers] == [expected] * 4
        pair.holder.close()
        await until(lambda: pair.gone(here))
    for one in others:
        one.close()


async def test_two_workers_of_one_session_look_one_after_the_other(pair: Pair) -> None:
    worker = uuid4()
    here = row(worker, (await pair.held(worker)).proof)
    first = await pair.looker.gone([here])
    answers = await asyncio.gather(*(pair.looker.gone([here]) for _ in range(5)))
    assert {one.by for one in answers} == {first.by}
    assert len(pair.connections) == 2


async def test_behind_a_pooler_without_a_direct_way_nothing_is_held(tmp_path: Path) -> None:
    bouncer, worker = await asyncio.to_thread(PgBouncer.start, shared(), tmp_path), uuid4()
    database = await asyncio.to_thread(shared().create_database)
    try:
        engine = PostgresEngine(bouncer.url(database), rules=Rules(), host=Host(), pgbouncer=True)
        await engine.open()
        assert await engine.workers.attend(worker) is None
        assert (await engine.workers.gone([row(worker, "1 2 3")])).workers == frozenset()
        await engine.close()
        direct = shared().url(database)
        engine = PostgresEngine(bouncer.url(database), rules=Rules(), host=Host(), pgbouncer=True, listen_url=direct)
        await engine.open()
        attended = await engine.workers.attend(worker)
        assert attended is not None
        await asyncio.to_thread(bouncer.stop)
        assert await engine.workers.attend(worker) == attended  # it does not lead through the pooler
        await engine.close()
    finally:
        await asyncio.to_thread(bouncer.stop)


@pytest.mark.timeout(120)
async def test_a_restarted_server_says_nothing_about_who_was_held_for_before(tmp_path: Path) -> None:
    server = await asyncio.to_thread(Server.start, tmp_path)
    try:
        pair, worker = Pair(server.url()), uuid4()
        first = await pair.held(worker)
        assert not await pair.gone(row(worker, first.proof))
        await asyncio.to_thread(server.restart)
        for _ in range(3):
            assert not await pair.gone(row(worker, first.proof))
        await until(lambda: _is_held(pair, worker))
        second = await pair.held(worker)
        assert second.proof.split()[0] != first.proof.split()[0]
        assert not await pair.gone(row(worker, second.proof))
        pair.close()
    finally:
        await asyncio.to_thread(server.stop)
