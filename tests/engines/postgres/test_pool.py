"""Connections: who waits for whom, for how long, and in what kind of transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.core.outcome import Completed
from headrace.engine import Inserted
from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres import PostgresEngine, pool
from headrace.errors import ConfigError, Unavailable
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.engines.postgres.conftest import Connect
from tests.support.invariants import check_store
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres import Server, shared
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
    monkeypatch.setattr(pool, "_PATIENCE", 1.5)
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
