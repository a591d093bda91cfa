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
from headrace.core.customers import Customers
from headrace.core.defaults import Retention
from headrace.core.job import Job
from headrace.core.outcome import Completed
from headrace.core.query import Filter
from headrace.core.status import Status
from headrace.engine import Duplicated, Engine, Inserted, Refused
from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres import PostgresEngine, lines
from headrace.errors import ConfigError, Unavailable
from headrace.runtime.lanes import Lanes
from tests.engines.postgres.conftest import Connect
from tests.support.faults import LosesReplies
from tests.support.invariants import check_store
from tests.support.postgres import shared
from tests.support.schemas import url_of
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
    lanes = [Lanes(engine, lab.host) for engine in (lab.engine, *others)]
    for at in range(10):
        wishes = [(lane, lab.job(dedup=f"k{at}")) for lane in lanes for _ in range(5)]
        answers = await asyncio.gather(*(lane.insert(job) for lane, job in wishes))
        winners = {answer.job.id for answer in answers if isinstance(answer, Inserted)}
        assert len(winners) == 1
        assert {answer.job.id for answer in answers} == winners
        assert sum(isinstance(answer, Duplicated) for answer in answers) == 19
    for lane in lanes:
        await lane.close()
    for other in others:
        await other.close()
    await check_store(lab.engine)


async def test_submits_whose_replies_are_lost_are_repeated_and_stored_once(lab: Lab) -> None:
    faulty = LosesReplies(lab.engine, {"insert": 2})
    lanes = Lanes(faulty, lab.host)
    jobs = [lab.job(dedup=f"k{at}" if at % 3 == 0 else None) for at in range(60)]
    answers = []
    for start in range(0, 60, 10):
        answers += await asyncio.gather(*(lanes.insert(job) for job in jobs[start : start + 10]))
    await lanes.close()
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
    monkeypatch.setattr(lines, "MAX_PROFILES", 3)
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
    monkeypatch.setattr(lines, "MAX_PROFILES", 3)
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
    monkeypatch.setattr(lines, "MAX_PROFILES", 3)
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
