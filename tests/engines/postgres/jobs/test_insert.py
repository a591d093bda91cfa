"""Insert: repeated, at once with others, after a lost reply, into lines that another session has collected."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.defaults import Retention
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.limits import profiles
from headrace.core.matching.customers import Customers
from headrace.core.query import Filter
from headrace.core.status import Status
from headrace.engine import Duplicated, Engine, Inserted, InsertsOne, Refused
from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store.connection import Connection
from headrace.engines.sql.encoding import is_at_once
from headrace.errors import ConfigError, Unavailable
from headrace.runtime.writes.writer import Writer
from tests.engines.postgres.conftest import Connect
from tests.support.faults import LosesReplies
from tests.support.invariants import check_store
from tests.support.servers.postgres import shared
from tests.support.servers.proxy import Proxy
from tests.support.servers.schemas import schema_of, url_of
from tests.support.until import until


async def test_a_batch_with_an_id_that_is_here_stores_the_others_and_answers_it_as_it_stands(lab: Lab) -> None:
    first = await lab.put()
    await lab.cancel(first)
    fresh = [lab.job() for _ in range(3)]
    answers = await lab.insert(fresh[0], replace(first, status=Status.QUEUED), *fresh[1:])
    assert all(isinstance(answer, Inserted) for answer in answers)
    jobs = [answer.job for answer in answers if isinstance(answer, Inserted)]
    assert [job.id for job in jobs] == [fresh[0].id, first.id, fresh[1].id, fresh[2].id]
    assert jobs[1] == await lab.get(first)
    assert jobs[1].status is Status.CANCELLED
    assert (await lab.engine.records.ledger()).accepted == 4
    await check_store(lab.engine)


async def test_the_same_jobs_inserted_by_several_sessions_at_once_are_stored_once(lab: Lab) -> None:
    others = [lab.engine.another_session() for _ in range(3)]
    for other in others:
        await other.open()
    for dedup in (None, "k"):
        jobs = [lab.job(dedup=None if dedup is None else f"{dedup}{at}") for at in range(50)]

        async def insert(engine: Engine, jobs: list[Job] = jobs) -> list[UUID]:
            while True:
                try:
                    answers = await engine.jobs.insert(jobs, lab.now)
                except Unavailable:
                    continue
                assert all(isinstance(answer, Inserted) for answer in answers)
                return [answer.job.id for answer in answers if isinstance(answer, Inserted)]

        told = await asyncio.gather(*(insert(engine) for engine in (lab.engine, *others)))
        assert told == [[job.id for job in jobs]] * 4
    for other in others:
        await other.close()
    assert (await lab.engine.records.ledger()).accepted == 100
    await check_store(lab.engine)


async def test_one_key_wanted_by_many_sessions_at_once_is_given_to_one(lab: Lab) -> None:
    others = [lab.engine.another_session() for _ in range(3)]
    for other in others:
        await other.open()
    writer = [Writer(engine, lab.host) for engine in (lab.engine, *others)]
    for at in range(10):
        wishes = [(lane, lab.job(dedup=f"k{at}")) for lane in writer for _ in range(5)]
        answers = await asyncio.gather(*(lane.inserts.insert(job) for lane, job in wishes))
        winners = {answer.job.id for answer in answers if isinstance(answer, Inserted)}
        assert len(winners) == 1
        assert {answer.job.id for answer in answers} == winners
        assert sum(isinstance(answer, Duplicated) for answer in answers) == 19
    for lane in writer:
        await lane.close()
    for other in others:
        await other.close()
    await check_store(lab.engine)


async def test_submits_whose_replies_are_lost_are_repeated_and_stored_once(lab: Lab) -> None:
    faulty = LosesReplies(lab.engine, {"insert": 2})
    writer = Writer(faulty, lab.host)
    jobs = [lab.job(dedup=f"k{at}" if at % 3 == 0 else None) for at in range(60)]
    answers = []
    for start in range(0, 60, 10):
        answers += await asyncio.gather(*(writer.inserts.insert(job) for job in jobs[start : start + 10]))
    await writer.close()
    assert faulty.dropped["insert"] >= 3
    assert [(type(answer), answer.job.id) for answer in answers] == [(Inserted, job.id) for job in jobs]
    assert (await lab.engine.records.ledger()).accepted == 60
    await check_store(lab.engine)


async def test_order_numbers_follow_the_order_within_a_batch(lab: Lab) -> None:
    plain = await lab.put_all(*(lab.job() for _ in range(300)))
    keyed = await lab.put_all(*(lab.job(dedup=str(at)) for at in range(300)))
    seqs = [job.seq for job in (*plain, *keyed)]
    assert seqs == sorted(seqs)
    assert [job.id for job in await lab.claim(await lab.worker())] == [job.id for job in (*plain, *keyed)]


# Lines that were collected


async def empty(lab: Lab, engine: Engine) -> None:
    """End and prune every job."""
    worker = await lab.worker()
    held = await lab.claim(worker)
    await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in held))
    await engine.jobs.delete(Retention(completed=0.0, failed=0.0, cancelled=0.0).cutoffs(lab.now))
    assert (await engine.records.find(Filter(), lab.now)).items == ()


@pytest.mark.parametrize("dedup", [None, "k"])
async def test_a_line_that_another_session_collected_is_made_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, dedup: str | None
) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 3)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 3)
    other = lab.engine.another_session()
    await other.open()
    await lab.put("mine", dedup=dedup)
    await empty(lab, lab.engine)
    before = (await lab.engine.documents.profiles()).profiles
    # As many as there is room for: what no job needs any more is forgotten.
    assert all(isinstance(answer, Inserted) for answer in await other.jobs.insert([lab.job(t) for t in "abc"], lab.now))
    after = (await other.documents.profiles()).profiles
    assert not {profile.id for profile in before} & {profile.id for profile in after}
    [refused] = await lab.insert(lab.job("mine", dedup=dedup))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ConfigError)
    await empty(lab, other)
    again = await lab.put("mine", dedup=dedup)
    assert [job.id for job in await lab.claim(await lab.worker())] == [again.id]
    await other.close()
    await check_store(lab.engine)


async def test_steps_made_before_a_collection_do_not_store_into_lines_that_are_gone(
    lab: Lab, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 3)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 3)
    other = lab.engine.another_session()
    await other.open()
    steps = await lab.transactions.inserting([lab.job("mine")], lab.now)
    assert all(isinstance(answer, Inserted) for answer in await other.jobs.insert([lab.job(t) for t in "abc"], lab.now))
    await empty(lab, other)
    user = await connect()
    async with user.transaction():
        with pytest.raises(Unavailable, match="again"):
            await lab.transactions.enlist(user).run(steps)
        assert await user.fetchval("SELECT 1") == 1  # the user's transaction is as it was
    async with user.transaction():
        [answer] = await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job("mine")], lab.now))
    assert isinstance(answer, Inserted)
    assert [job.id for job in await lab.claim(await lab.worker())] == [answer.job.id]
    await other.close()


async def test_lines_are_not_collected_under_a_transaction_that_stores_into_them(
    lab: Lab, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 3)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 3)
    other = lab.engine.another_session()
    await other.open()
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    [answer] = await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job("mine")], lab.now))
    assert isinstance(answer, Inserted)
    told = await other.jobs.insert([lab.job(task) for task in "abc"], lab.now)
    assert [type(one) for one in told] == [Inserted, Inserted, Refused]  # the third would need the place of "mine"
    await transaction.commit()
    assert answer.job.id in {job.id for job in await lab.claim(await lab.worker())}
    await other.close()


# Processed by the commit


@pytest.fixture
async def heard(lab: Lab) -> AsyncIterator[list[str]]:
    """The queues of which this session hears that there is something to claim."""
    assert isinstance(lab.engine, PostgresEngine)
    listener, names = lab.engine._bus._listener, list[str]()
    assert listener is not None

    def hear(hint: Hint) -> None:
        names.extend(hint.names)

    unlisten = lab.engine.bus.listen(frozenset({Topic.READY}), hear)
    await until(lambda: listener.hears and listener._missing is None)
    yield names
    unlisten()


SUBMITS = {
    "one": "await work.options(queue='mail').submit()",
    "many": "await work.options(queue='mail').map([()] * 5)",
    "batch": """
        async with app.batch() as batch:
            batch.add(work.options(queue='mail').draft())""",
    "graph": """
        first = work.options(queue='mail').draft()
        await app.submit_many([first, work.options(after=[first]).draft()])""",
    "in a transaction of one's own": """
        mine = await asyncpg.connect(server)
        async with mine.transaction():
            await work.options(queue='mail', connection=mine).submit()""",
}


@pytest.mark.parametrize("how", SUBMITS)
async def test_a_submit_is_heard_as_ready_by_the_session_of_another_process(
    tmp_path: Path, heard: list[str], how: str
) -> None:
    program = f"""
import asyncio, asyncpg, os
from headrace import App

app, server = App({url_of(tmp_path)!r}), {shared().url()!r}

@app.task
async def work() -> None: ...

async def main() -> None:
    async with app:
        {SUBMITS[how]}
        os._exit(0)  # acknowledged, and not another word

asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await child.wait() == 0
    await until(lambda: "mail" in heard)


async def test_a_queue_that_was_set_by_customer_by_a_process_that_died_then(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting is stored, and nobody was told: the next who realigns tells all sessions."""
    await lab.put(customer="a")  # this session knows the common line
    other = lab.engine.another_session()
    await other.open()
    documents: Any = other.documents
    fetch = documents._cold.fetch

    async def dies(text: str, *args: Any) -> Any:
        if "nextval" in text:
            raise ConnectionError("killed here")
        return await fetch(text, *args)

    monkeypatch.setattr(documents._cold, "fetch", dies)
    with pytest.raises(ConnectionError):
        await other.documents.put_setting("queue:default", '{"by_customer":true}', 0)
    await lab.put(customer="a")
    await lab.put(customer="b")
    assert [await lab.engine.jobs.realign() for _ in range(2)] == [3, 0]
    await lab.put(customer="b")
    assert await lab.engine.jobs.realign() == 0, "this session knows of it now"
    worker = await lab.worker()
    taken = await lab.claim(worker, queues=("default",), customers=Customers(strict=True))
    assert [job.customer for job in taken] == ["a", "a"]
    await other.close()


# The short way of one job that comes alone


def short_way(engine: Engine) -> InsertsOne:
    assert isinstance(engine.jobs, InsertsOne)
    return engine.jobs


async def insert_one(lab: Lab, job: Job) -> Any:
    """What the short way answers; it must be open."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    assert short_way(lab.engine).insert_one(job, lab.now, answer.set_result)
    return await answer


def at_once(lab: Lab, **spec: Any) -> Job:
    """A job as programs submit most: all its moments are one."""
    return submit(lab.new_id(), Spec(task="work", created_at=lab.now, **spec), "{}", lab.now)


async def rows_of(connection: Connection, schema: str, job: Job) -> dict[str, list[tuple[Any, ...]]]:
    """All that is stored of a job but its id, its order number, and what counts on from that."""
    found = {}
    for table, where in {
        "jobs": "seq = $1",
        "bodies": "seq = $1",
        "labels": "seq = $1",
        "arrivals": "seq = $1",
    }.items():
        rows = await connection.fetch(f"SELECT * FROM {schema}.{table} WHERE {where}", job.seq)
        found[table] = [tuple(value for name, value in row.items() if name not in ("id", "seq")) for row in rows]
    tables = f"{schema}.subqueue_blocks b JOIN {schema}.jobs j USING (subqueue)"
    blocks = f"SELECT count(*) FROM {tables} WHERE b.block = j.seq >> 10"
    found["found by line"] = [(await connection.fetchval(f"{blocks} AND j.seq = $1", job.seq) > 0,)]
    times = f"SELECT count(*) FROM {schema}.time_blocks t JOIN {schema}.bodies b ON b.created_at >> 29 = t.bucket"
    found["found by time"] = [
        (await connection.fetchval(f"{times} WHERE t.block = b.seq >> 13 AND b.seq = $1", job.seq) > 0,)
    ]
    return found


async def test_the_short_way_stores_what_the_long_one_stores(lab: Lab, schema: str, connect: Connect) -> None:
    await lab.put()
    connection = await connect()
    each: list[dict[str, Any]] = [
        {},
        {"queue": "default", "priority": 90},
        {"metadata": {"a": ["\u00e9", None]}, "trace": {"traceparent": "00-1"}},
        {"delay": 60.0},
        {"not_after": 60.0},
    ]
    jobs = [*(lab.job(**options) for options in each), *(at_once(lab, **options) for options in each[:3])]
    assert [is_at_once(job) for job in jobs] == [False] * 5 + [True] * 3
    for job in jobs:
        [stored] = await lab.put_all(job)
        answer = await insert_one(lab, replace(job, id=lab.new_id()))
        assert isinstance(answer, Inserted)
        assert answer.job == replace(stored, id=answer.job.id, seq=answer.job.seq) == await lab.get(answer.job)
        assert answer.job.seq > stored.seq
        assert await rows_of(connection, schema, answer.job) == await rows_of(connection, schema, stored)
    ledger = await lab.engine.records.ledger()
    assert (ledger.accepted, ledger.live) == (17, 17)
    await check_store(lab.engine)


async def test_what_comes_the_short_way_is_found_by_its_time_and_its_line(
    lab: Lab, schema: str, connect: Connect
) -> None:
    """Also where the numbers of a block are used up, and where one span of time follows another within a block."""
    await lab.put()
    connection = await connect()
    spans = 20
    for number in range(spans):
        for _ in range(2):
            answer = await insert_one(lab, at_once(lab))
            found = await rows_of(connection, schema, answer.job)
            assert (found["found by time"], found["found by line"]) == ([(True,)], [(True,)])
        lab.later(300.0 * (number % 3))
    entries = await connection.fetchval(f"SELECT count(*) FROM {schema}.time_blocks")
    assert entries < 2 * spans, "what is listed is not listed again"
    await check_store(lab.engine)


async def test_what_needs_more_than_one_row_does_not_take_the_short_way(lab: Lab) -> None:
    parent = await lab.put()
    for job in (
        lab.job("another task"),
        lab.job(dedup="k"),
        lab.job(request_key="r"),
        lab.job(concurrency_key="c"),
        lab.job(tags=("t",)),
        lab.job(customer="c"),
        lab.job(parent=parent.id, root=parent.id),
        lab.job(after=(parent.id,), waits=1),
        replace(lab.job(), attempt=1),
        replace(lab.job(), payload_text='"\0"'),
        lab.job(metadata={"half": "\ud800"}),
    ):
        assert not short_way(lab.engine).insert_one(job, lab.now, lambda answer: None)
    assert (await lab.engine.records.ledger()).accepted == 1


async def test_an_id_that_is_here_goes_the_long_way_and_is_answered_as_it_stands(lab: Lab) -> None:
    job = await lab.put()
    assert await insert_one(lab, replace(job, seq=0)) is None
    await lab.cancel(job)
    writer = Writer(lab.engine, lab.host)
    answer = await writer.inserts.insert(replace(job, seq=0))
    await writer.close()
    assert isinstance(answer, Inserted)
    assert answer.job.status is Status.CANCELLED
    assert (await lab.engine.records.ledger()).accepted == 1


async def test_one_job_is_one_round_trip(lab: Lab, tmp_path: Path) -> None:
    async with Proxy(shared().url()) as proxy:
        engine = PostgresEngine(proxy.url, rules=lab.rules, host=lab.host, schema=schema_of(tmp_path))
        await engine.open()
        writer = Writer(engine, lab.host)
        for _ in range(2):  # the first learns the line, and the second how the statement is called
            await writer.inserts.insert(lab.job())
        before = proxy.asked
        for _ in range(5):
            await writer.inserts.insert(lab.job())
        assert proxy.asked - before == 5
        await writer.close()
        await engine.close()


async def test_the_hint_of_one_job_comes_with_its_commit(lab: Lab) -> None:
    await lab.put()
    other = lab.engine.another_session()
    await other.open()
    heard: list[Hint] = []
    other.bus.listen(frozenset({Topic.READY}), heard.append)
    await until(lambda: Hint(Topic.READY) in heard)
    assert isinstance(await insert_one(lab, lab.job()), Inserted)
    await until(lambda: Hint(Topic.READY, ("default",)) in heard)
    await other.close()


async def test_a_caller_cancelled_in_the_middle_leaves_at_once_and_the_job_is_stored(
    lab: Lab, schema: str, connect: Connect
) -> None:
    writer = Writer(lab.engine, lab.host)
    for _ in range(2):
        await writer.inserts.insert(lab.job())
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await user.execute(f"LOCK TABLE {schema}.ledger IN EXCLUSIVE MODE")
    jobs = [lab.job() for _ in range(4)]
    first = asyncio.create_task(writer.inserts.insert(jobs[0]))
    await until(lambda: _waits(user))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    # What comes meanwhile waits for that write, and is then written together.
    rest = [asyncio.create_task(writer.inserts.insert(job)) for job in jobs[1:]]
    await asyncio.sleep(0)
    assert await _waits(user) <= 1
    await transaction.rollback()
    answers = await asyncio.gather(*rest)
    assert [answer.job.id for answer in answers] == [job.id for job in jobs[1:]]
    assert (await lab.get(jobs[0])).status is Status.QUEUED
    await writer.close()
    assert (await lab.engine.records.ledger()).accepted == 6


async def test_lanes_that_are_closed_in_the_middle_wait_for_the_job(lab: Lab) -> None:
    writer = Writer(lab.engine, lab.host)
    for _ in range(2):
        await writer.inserts.insert(lab.job())
    inserting = asyncio.create_task(writer.inserts.insert(lab.job()))
    await asyncio.sleep(0)  # now it is on its way
    await writer.close()
    assert inserting.done() or isinstance(await inserting, Inserted)
    assert (await lab.engine.records.ledger()).accepted == 3


async def test_a_connection_that_is_cut_in_the_middle_costs_no_job_and_stores_none_twice(
    lab: Lab, schema: str, connect: Connect
) -> None:
    writer = Writer(lab.engine, lab.host)
    for _ in range(2):
        await writer.inserts.insert(lab.job())
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await user.execute(f"LOCK TABLE {schema}.ledger IN EXCLUSIVE MODE")
    job = lab.job()
    inserting = asyncio.create_task(writer.inserts.insert(job))
    await until(lambda: _waits(user))
    await user.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {_WAITING}", user.get_server_pid()
    )
    await transaction.rollback()
    answer = await inserting
    assert isinstance(answer, Inserted)
    assert answer.job.id == job.id
    await writer.close()
    assert (await lab.engine.records.ledger()).accepted == 3
    await check_store(lab.engine)


_WAITING = "$1 = ANY (pg_blocking_pids(pid))"


async def _waits(user: Connection) -> int:
    """How many wait for a lock of this one."""
    count: int = await user.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE {_WAITING}", user.get_server_pid())
    return count
