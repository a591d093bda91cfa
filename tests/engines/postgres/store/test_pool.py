"""Connections: who waits for whom, for how long, and in what kind of transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.defaults import Rules
from headrace.engine import Inserted
from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store import pool
from headrace.engines.postgres.store.pool import COLD, Pool, _is_usable
from headrace.errors import ConfigError, Unavailable, Unstorable
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.engines.postgres.conftest import Connect
from tests.support.invariants import check_store
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import Server, shared
from tests.support.until import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that may be frozen."""
    server = Server.start(tmp_path, fsync="off")
    yield server
    server.thaw()
    server.stop()


async def test_no_write_waits_for_a_silent_server_longer_than_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_STATEMENT_TIMEOUT_SECONDS", 1.5)
    host = Host(dice=SystemDice(7))
    lab = Lab(lambda: PostgresEngine(server.url(), rules=Rules(), host=host), host, Rules())
    await lab.engine.open()
    job = await lab.put()
    await lab.put(dedup="warm")
    server.freeze()
    for write in (
        lab.insert(lab.job()),
        lab.insert(lab.job(dedup="k")),
        lab.insert(lab.job("another")),
        lab.cancel(job),
        lab.engine.documents.put_setting("queue:a", "{}", 0),
        lab.engine.workers.retire(lab.new_id()),
    ):
        with pytest.raises(Unavailable):
            async with asyncio.timeout(45):
                await write
    server.thaw()
    await lab.engine.close()


async def test_long_reads_keep_no_write_waiting(lab: Lab, schema: str, connect: Connect) -> None:
    worker = await lab.worker()
    job = await lab.running(worker)
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await user.execute(f"LOCK TABLE {schema}.events")
    reads = [asyncio.create_task(lab.engine.records.history(job.id)) for _ in range(4)]
    async with asyncio.timeout(45):
        assert isinstance((await lab.insert(lab.job(dedup="k")))[0], Inserted)
        assert isinstance((await lab.insert(lab.job("of a new profile")))[0], Inserted)
        await lab.finish(job)
        assert len(await lab.engine.workers.list()) == 1
    assert not any(read.done() for read in reads)
    await transaction.rollback()
    assert len({len((await read).attempts) for read in reads}) == 1
    await check_store(lab.engine)


def test_a_pool_too_small_for_every_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 6, not 5"):
        PostgresEngine(shared().url(), rules=Rules(), host=Host(), pool=5)


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_the_least_pool_is_enough_for_everything_at_once(lab: Lab, pgbouncer: bool, schema: str) -> None:
    engine = PostgresEngine(
        shared().url(), rules=Rules(), host=lab.host, schema=schema.strip('"'), pool=6, pgbouncer=pgbouncer
    )
    await engine.open()
    jobs = [lab.job(f"t{at % 3}", dedup=str(at) if at % 2 else None) for at in range(60)]
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(engine.jobs.insert([job], lab.now) for job in jobs),
            *(engine.records.count(lab.now) for _ in range(5)),
            *(engine.workers.list() for _ in range(5)),
        )
    await engine.close()
    assert (await lab.engine.records.ledger()).live == 60


async def test_a_pooler_in_session_mode_is_a_way_to_listen_too(tmp_path: Path) -> None:
    bouncer = PgBouncer.start(shared(), tmp_path, "session")
    url = bouncer.url(shared().create_database())
    host, rules = Host(dice=SystemDice(7)), Rules()
    lab = Lab(lambda: PostgresEngine(url, rules=rules, host=host, pgbouncer=True, listen_url=url), host, rules)
    await lab.engine.open()
    other = lab.engine.another_session()
    await other.open()
    heard: list[Hint] = []
    other.bus.listen(frozenset({Topic.READY}), heard.append)
    # Whoever begins to listen is told to look, and then of each submit.
    await until(lambda: Hint(Topic.READY) in heard)
    await lab.put(queue="here", dedup="k")
    lab.engine.bus.send(Hint(Topic.READY, ("here",)))
    await until(lambda: Hint(Topic.READY, ("here",)) in heard)
    await other.close()
    await lab.engine.close()
    unsaid = PostgresEngine(url, rules=rules, host=host)
    await unsaid.open()
    with pytest.raises(ConfigError, match="pgbouncer=1"):
        await unsaid.jobs.insert([lab.job()], lab.now)
    await unsaid.close()
    bouncer.stop()


@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_other_defaults_of_the_database_change_nothing(level: str, pgbouncer: bool) -> None:
    database = shared().create_database()
    shared().execute(f"ALTER DATABASE \"{database}\" SET default_transaction_isolation = '{level}'")
    shared().execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    host, rules = Host(dice=SystemDice(7)), Rules()
    lab = Lab(lambda: PostgresEngine(shared().url(database), rules=rules, host=host, pgbouncer=pgbouncer), host, rules)
    await lab.engine.open()
    others = [lab.engine.another_session() for _ in range(3)]
    for other in others:
        await other.open()
    worker = await lab.worker()

    async def busy(at: int) -> None:
        engine = others[at % 3]
        for n in range(10):
            told = await engine.jobs.insert([lab.job(), lab.job(dedup=f"{at}:{n}")], lab.now)
            assert all(isinstance(answer, Inserted) for answer in told)
            await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in await lab.claim(worker, 2)))

    await asyncio.gather(*(busy(at) for at in range(6)))
    for other in others:
        await other.close()
    await check_store(lab.engine)
    await lab.engine.close()


# Connections at hand

_PID = "SELECT pg_backend_pid()"


async def opened(size: int) -> Pool:
    found = Pool(shared().url(), size=size, settings=COLD, pgbouncer=False)
    await found.open()
    return found


def prompt(one: Pool) -> bool:
    """Whether a connection is at hand, which is not used then."""
    return any(map(_is_usable, one._at_hand))


async def pid_of(one: Pool) -> int:
    [(pid,)] = await one.fetch(_PID)
    return int(pid)


async def test_the_next_statement_takes_the_connection_of_the_last_one() -> None:
    one = await opened(4)
    pids = {await pid_of(one) for _ in range(5)}
    async with one.transaction() as connection:
        pids.add(await connection.fetchval(_PID))
    assert len(pids) == 1
    assert prompt(one)
    await one.close()
    assert not prompt(one)


async def test_whoever_waits_for_a_connection_gets_the_one_that_is_given_back() -> None:
    one = await opened(2)
    async with asyncio.timeout(45):
        pids = await asyncio.gather(*(pid_of(one) for _ in range(40)))
        async with one.connection(), one.connection():
            waiting = [asyncio.create_task(pid_of(one)) for _ in range(4)]
            await asyncio.sleep(0)
        assert {*pids, *[await each for each in waiting]} <= set(pids)
    assert len(set(pids)) <= 2
    await one.close()


async def test_a_connection_that_was_cut_at_hand_is_not_used(connect: Connect) -> None:
    one, user = await opened(1), await connect()
    pid = await pid_of(one)
    assert prompt(one)
    await user.execute("SELECT pg_terminate_backend($1, 45000)", pid)
    await until(lambda: not prompt(one))
    other = await pid_of(one)
    assert other != pid
    # The driver may not have noticed yet: then the statement says so, and the next is fine.
    await user.execute("SELECT pg_terminate_backend($1, 45000)", other)
    with contextlib.suppress(Unavailable):
        await one.fetch(_PID)
    assert await pid_of(one) != other
    await one.close()


async def test_connections_that_are_not_needed_are_closed(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setattr(pool, "_UNUSED_SECONDS", 0.05)
    one, user = await opened(3), await connect()
    async with one.connection() as first, one.connection() as second:
        pids = [await each.fetchval(_PID) for each in (first, second)]
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)"
    await until(lambda: _is_none(user.fetchval(alive, pids)))
    assert not prompt(one)
    assert await pid_of(one) not in pids
    await one.close()


async def _is_none(asked: Awaitable[int]) -> bool:
    return await asked == 0


async def test_after_an_error_the_connection_goes_back_to_the_pool() -> None:
    one = await opened(1)
    pid = await pid_of(one)
    ends: list[tuple[list[Any], Exception | None]] = []

    def begin(one: Pool, divisor: int) -> None:
        connection = one.at_hand()
        assert connection is not None
        one.begin(connection, "SELECT 1 / $1::integer", [divisor], lambda *end: ends.append(end))

    begin(one, 0)
    assert not prompt(one)
    await until(lambda: ends)
    assert isinstance(ends[0][1], Unstorable)
    assert await pid_of(one) == pid
    begin(one, 1)
    await until(lambda: len(ends) == 2)
    assert [tuple(row) for row in ends[1][0]] == [(1,)]
    assert ends[1][1] is None
    assert prompt(one)
    await one.close()


async def test_a_statement_without_a_task_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_STATEMENT_TIMEOUT_SECONDS", 0.3)
    one = await opened(1)
    pid = await pid_of(one)
    ends: list[tuple[list[Any], Exception | None]] = []

    async def run(seconds: float) -> Exception | None:
        connection, before = one.at_hand(), len(ends)
        assert connection is not None
        one.begin(connection, _SLEEP, [seconds], lambda *end: ends.append(end))
        await until(lambda: len(ends) > before)
        return ends[-1][1]

    assert await run(0.0) is None  # it is prepared
    assert await run(0.0) is None
    error = await run(60.0)
    assert isinstance(error, Unavailable)
    assert error.outcome == "unknown"
    assert isinstance(error.__cause__, TimeoutError)
    assert await pid_of(one) != pid  # that connection still waits for its answer
    assert len(ends) == 3
    assert not one._begun
    await one.close()


_SLEEP = "SELECT pg_sleep($1)"
