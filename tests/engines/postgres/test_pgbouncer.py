"""Behind PgBouncer in transaction mode: everything works, with hints by a way of their own or with none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from headrace import App, Context, Status
from headrace.conformance.lab import Lab
from headrace.core.batch import Batch
from headrace.core.change import BatchTally
from headrace.core.defaults import Rules
from headrace.engine import Inserted
from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store.pool import HOT
from headrace.runtime.host import Host
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import shared
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

app = App("memory://")


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task(dedup="key:{key}")
async def keyed(key: str) -> str:
    return key


@app.task
async def reports(ctx: Context) -> str:
    ctx.progress(50, "half")
    await ctx.flush()
    return "done"


@pytest.fixture(scope="module")
def bouncer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgBouncer]:
    bouncer = PgBouncer.start(shared(), tmp_path_factory.mktemp("pgbouncer"))
    yield bouncer
    bouncer.stop()


Url = Callable[[], str]


@pytest.fixture(params=["polling", "listening"])
def url(request: pytest.FixtureRequest, bouncer: PgBouncer) -> str:
    """An empty database through the pooler, without and with a direct way for hints."""
    database = shared().create_database()
    direct = {} if request.param == "polling" else {"listen_url": shared().url(database)}
    return bouncer.url(database, pgbouncer="1", **direct)


@pytest.fixture
async def opened(url: str) -> AsyncIterator[App]:
    with app.override(url=url):
        async with app:
            yield app


async def test_a_thousand_jobs_are_submitted_and_run(opened: App) -> None:
    async with opened.worker(concurrency=50):
        one = await add.submit(1, 2)
        many = await add.map([(n, n) for n in range(500)])
        single = await asyncio.gather(*(add.submit(n, 1) for n in range(499)))
        results = await asyncio.gather(*(handle.result(timeout=150) for handle in (one, *many, *single)))
    assert results == [3, *(n + n for n in range(500)), *(n + 1 for n in range(499))]
    assert (await opened.stats.counts()).statuses == {Status.COMPLETED: 1000}
    await check_store(opened.session.engine)


async def test_keys_progress_cancels_and_transactions_work_too(opened: App) -> None:
    first, second = await keyed.submit("k"), await keyed.submit("k")
    assert (second.duplicate, second.id) == (True, first.id)
    assert (await first.cancel()).status is Status.CANCELLED
    assert not (await keyed.submit("k")).duplicate
    later = await add.options(delay=3600).submit(1, 1)
    assert (await later.cancel()).status is Status.CANCELLED
    async with opened.worker():
        handle = await reports.submit()
        assert await handle.result(timeout=150) == "done"
    job = await handle.refresh()
    assert job.progress is not None
    await check_store(opened.session.engine)


async def test_submitting_within_a_transaction_through_the_pooler(opened: App, url: str) -> None:
    connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
    transaction = connection.transaction()
    await transaction.start()
    handle = await add.options(connection=connection).submit(2, 2)
    assert (await opened.stats.counts()).statuses == {}
    await transaction.commit()
    await connection.close()
    async with opened.worker():
        assert await handle.result(timeout=150) == 4


async def test_families_and_batches_are_told_through_the_pooler(bouncer: PgBouncer) -> None:
    host, rules, database = Host(), Rules(), shared().create_database()
    lab = Lab(lambda: PostgresEngine(bouncer.url(database), rules=rules, host=host, pgbouncer=True), host, rules)
    await lab.engine.open()
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now, sealed=True)
    parent = await lab.running(await lab.worker(), "parent")
    related: dict[str, Any] = {"parent": parent.id, "root": parent.id, "batch": batch.id}
    waits = lab.job("waits", waits=1, after=(parent.id,))
    answers = await lab.engine.jobs.insert([waits, *(lab.job("child", **related) for _ in range(20))], lab.now, batch)
    assert all(isinstance(answer, Inserted) for answer in answers)
    await lab.cancel(parent)
    changes = await lab.process_notes()
    assert {change.job.status for change in changes} == {Status.CANCELLED}
    assert len(changes) == 20
    [over] = (await lab.engine.families.process_notes(lab.now)).over
    assert over.tally == BatchTally(20, 0, 0, 20)
    await lab.finish(await lab.get(parent))
    assert [change.job.id for change in await lab.process_notes()] == [waits.id]
    await lab.engine.close()


async def test_worker_processes_through_the_pooler_share_the_work(url: str, tmp_path: Path) -> None:
    from tests.crash.app import app as other
    from tests.crash.app import work

    with other.override(url=url), crew(url, tmp_path, beat=2.0, lease=20.0) as workers:
        async with other:
            for _ in range(2):
                workers.hire("--concurrency", "10")
            handles = await work.map([(0.0,)] * 300)
            results = await asyncio.gather(*(handle.result(timeout=150) for handle in handles))
            assert len(results) == 300
            histories = await check_store(other.session.engine)
            assert all(len(history.attempts) == 1 for history in histories.values())


# What must not leak into sessions that others share


async def test_the_settings_of_the_hot_path_hold_for_each_statement_and_stay_behind_nowhere(bouncer: PgBouncer) -> None:
    engine = PostgresEngine(bouncer.url(shared().create_database()), rules=Rules(), host=Host(), pgbouncer=True)
    await engine.open()
    shown = await engine._hot.fetch("SELECT name, setting FROM pg_settings WHERE name = ANY ($1)", sorted(HOT))
    assert {row[0]: row[1] for row in shown} == HOT | {
        "lock_timeout": "1000",
        "idle_in_transaction_session_timeout": "5000",
    }
    after = await asyncpg.connect(bouncer.url(), statement_cache_size=0)
    assert await after.fetchval("SHOW enable_seqscan") == "on"
    await after.close()
    await engine.close()


async def test_a_hint_goes_by_the_direct_way_and_none_without_it(bouncer: PgBouncer) -> None:
    database = shared().create_database()
    direct = shared().url(database)
    listening, polling = (
        PostgresEngine(bouncer.url(database), rules=Rules(), host=Host(), pgbouncer=True, listen_url=way)
        for way in (direct, None)
    )
    heard: dict[str, list[Hint]] = {"listening": [], "polling": []}
    for engine in (listening, polling):
        await engine.open()
    listening.bus.listen(frozenset({Topic.READY}), heard["listening"].append)
    polling.bus.listen(frozenset({Topic.READY}), heard["polling"].append)
    sender = PostgresEngine(direct, rules=Rules(), host=Host())
    await sender.open()

    def send() -> bool:
        sender.bus.send(Hint(Topic.READY, ("here",)))
        return bool(heard["listening"])

    await until(send)
    assert heard["polling"] == []
    for engine in (sender, listening, polling):
        await engine.close()


def test_a_direct_way_is_given_escaped() -> None:
    engine = App(f"postgresql://localhost/x?pgbouncer=1&listen_url={quote('postgresql://u:p@h/db?sslmode=require')}")
    made = engine._new_engine()
    assert isinstance(made, PostgresEngine)
    assert made._listen_url == "postgresql://u:p@h/db?sslmode=require"
