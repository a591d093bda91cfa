"""Claims where something is limited: dealt as every engine deals, whatever keys are made of."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headrace.conformance.jobs.limits import rate
from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed, Event
from headrace.core.defaults import MAX_AUDIT_ENTRIES, Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import Status
from headrace.engine import Claimed, Engine
from headrace.engines.memory import MemoryEngine
from headrace.engines.postgres.jobs import key_rotation
from headrace.engines.postgres.jobs.key_rotation import Window, arrive, read
from headrace.engines.postgres.jobs.subqueues import Served
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.pool import COLD, HOT, Pool
from headrace.engines.sql.encoding import encode
from headrace.errors import Unavailable
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.engines.postgres.conftest import Connect
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import postgres_engine

KEYS = ["plain", 'quo"te', "back\\slash", "a,b", "{brace}", "NULL", "", " ", "line\nbreak", "tab\t", "ключ", "💧", "'"]
"""What the text of an array, or of a document, spells in its own way."""


async def play(engine: Engine, host: Host, rules: Rules, seed: int) -> list[list[str]]:
    """What claims give, round by round, while jobs come and go."""
    choose, lab = random.Random(seed), Lab(lambda: engine, host, rules)
    await lab.engine.open()
    for task, most in (("one", 1), ("two", 2)):  # and of "any", as many as there are
        rule = {"max_per_key": most, "max_concurrency": choose.choice([None, 2, 5])}
        assert await lab.engine.documents.put_setting(f"limit:{task}", encode(rule), 0) is not None
    worker, number = await lab.worker(), 0
    held, given = list[Job](), list[list[str]]()
    few = choose.randrange(len(KEYS))
    for _ in range(12):
        lab.later(choose.choice([0.0, 1.0]))
        jobs = list[Job]()
        for _ in range(choose.randrange(16)):
            number += 1
            task, key = choose.choice(["one", "two", "any"]), choose.choice([*KEYS[:3], *KEYS[:few], None])
            queue, priority = choose.choice(["here", "there"]), choose.choice([50, 50, 50, 80])
            until = choose.choice([None, None, None, 1.5])
            what = f'{{"n":{number}}}'
            jobs.append(
                lab.job(task, concurrency_key=key, queue=queue, priority=priority, payload=what, not_after=until)
            )
        if jobs:
            await lab.put_all(*jobs)
        taken = await lab.claim(worker, choose.choice([1, 3, 9, 40]), tasks=("one", "two", "any"))
        given.append([job.payload_text for job in taken])
        held += taken
        choose.shuffle(held)
        for job in [held.pop() for _ in range(choose.randrange(len(held) + 1))]:
            await lab.do(lab.end(job, Completed(), started_at=lab.now))
    await lab.engine.close()
    return given


@pytest.mark.parametrize("seed", range(12))
async def test_keys_are_dealt_as_in_memory(tmp_path: Path, seed: int) -> None:
    rules = Rules()
    one, other = Host(dice=SystemDice(7)), Host(dice=SystemDice(7))
    here = await play(postgres_engine(rules, one, tmp_path), one, rules, seed)
    assert here == await play(MemoryEngine(rules, other), other, rules, seed)
    assert sum(map(len, here)) > 10


async def test_turns_are_remembered_whatever_a_key_is_made_of(lab: Lab) -> None:
    worker = await lab.worker()
    for key in KEYS * 3:
        lab.later(1)
        await lab.put("work", concurrency_key=key)
    order: list[str | None] = []
    for _ in KEYS * 3:
        lab.later(1)
        [job] = await lab.claim(worker, 1)
        order.append(job.concurrency_key)
        await lab.do(lab.end(job, Completed(), started_at=lab.now))
    assert order == KEYS * 3


async def test_a_turn_is_that_of_one_task(lab: Lab) -> None:
    worker = await lab.worker()
    for task in ("a", "b"):
        for key in ("x", "y"):
            lab.later(1)
            await lab.put_all(*(lab.job(task, concurrency_key=key) for _ in range(3)))
    order: list[tuple[str, str | None]] = []
    for n in (4, 1, 1, 1, 1, 1):
        lab.later(1)
        order += [(job.task, job.concurrency_key) for job in await lab.claim(worker, n, tasks=("a", "b"))]
    once = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert order == once + once + [("a", "x")]


async def test_no_more_keys_are_read_than_may_be_given(lab: Lab, connect: Connect, schema: str) -> None:
    assert await lab.engine.documents.put_setting("limit:work", '{"max_per_key": 1}', 0) is not None
    await lab.put_all(*(lab.job("work", concurrency_key=f"k{number}") for number in range(500)))
    profiles = frozenset(one.id for one in (await lab.engine.documents.profiles()).profiles)
    connection, counts = await connect(), list[int]()
    pool = Pool(shared().url(), size=1, settings=HOT, pgbouncer=False)
    await pool.open()
    serving = await Served(pool, schema).of(ClaimRequest(n=1000, free=5, profiles=profiles))
    await pool.close()
    assert await arrive(connection, schema, serving, {"work"})
    for free in (5, 0, 400):
        window = Window.of(ClaimRequest(n=1000, free=free, profiles=profiles), serving, {"work"})
        counts.append(len((await read(connection, schema, serving, window, lab.now)).keys))
    assert counts == [13, 0, 408]


async def test_a_job_that_somebody_held_while_it_was_its_turn_is_given_later(
    lab: Lab, connect: Connect, schema: str
) -> None:
    worker, connection = await lab.worker(), await connect()
    assert await lab.engine.documents.put_setting("limit:work", '{"max_per_key": 1}', 0) is not None
    first, other = await lab.put_all(*(lab.job("work", concurrency_key=key) for key in "ab"))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"SELECT 1 FROM {schema}.jobs WHERE id = $1 FOR UPDATE", first.id)
    assert [job.id for job in await lab.claim(worker, 5)] == [other.id]
    await transaction.rollback()
    assert [job.id for job in await lab.claim(worker, 5)] == [first.id]


async def test_what_is_not_read_while_all_is_full_is_found_when_it_is_not(lab: Lab) -> None:
    worker = await lab.worker()
    assert await lab.engine.documents.put_setting("limit:work", '{"max_concurrency": 1}', 0) is not None
    jobs = await lab.put_all(*(lab.job("work", concurrency_key=key) for key in "abc"))
    for job in jobs:
        [taken] = await lab.claim(worker, 5)
        assert taken.id == job.id
        assert await lab.claim(worker, 5) == []
        await lab.do(lab.end(taken, Completed(), started_at=lab.now))


@pytest.mark.parametrize("keys", [1, 400, 0])
@pytest.mark.parametrize("document", [{}, {"max_concurrency": 300}, {"rates": ["api"]}], ids=str)
async def test_jobs_that_others_hold_locked_are_passed_over(
    lab: Lab, connect: Connect, schema: str, keys: int, document: dict[str, object]
) -> None:
    """However many of the first somebody holds; and they use up nothing."""
    await rate(lab, "api", 25, per=60, kind="fixed")
    assert await lab.engine.documents.put_setting("limit:work", encode(document), 0) is not None
    lab.now = lab.now.replace(second=1)
    key = [f"k{at % keys}" if keys else None for at in range(400)]
    jobs = await lab.put_all(*(lab.job("work", concurrency_key=one) for one in key))
    greedy, worker = await connect(), await lab.worker()
    async with greedy.transaction():
        await greedy.fetch(f"SELECT 1 FROM {schema}.jobs WHERE seq <= $1 FOR UPDATE", jobs[349].seq)
        for at in (350, 360):
            assert [job.id for job in await lab.claim(worker, 10)] == [job.id for job in jobs[at : at + 10]]
    taken = await lab.claim(worker, 5)
    assert [job.id for job in taken] == [job.id for job in jobs[:5]]


async def test_a_job_that_is_locked_for_long_is_not_asked_about_all_the_time(
    lab: Lab, connect: Connect, schema: str
) -> None:
    job, greedy, worker = await lab.put("work", concurrency_key="a"), await connect(), await lab.worker()
    async with greedy.transaction():
        await greedy.fetch(f"SELECT 1 FROM {schema}.jobs WHERE seq = $1 FOR UPDATE", job.seq)
        claimed = await lab.ask(worker, 1)
    assert isinstance(claimed, Claimed)
    assert claimed.next_due is not None
    assert (claimed.jobs, claimed.next_due > lab.now) == ((), True)


async def test_who_stops_in_the_middle_of_a_claim_keeps_the_others_waiting_only_for_a_moment(
    lab: Lab, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is paused or cut off, or a handler that blocks the loop."""
    for settings in (HOT, COLD):
        assert settings["idle_in_transaction_session_timeout"] != "0"
    monkeypatch.setitem(HOT, "idle_in_transaction_session_timeout", "300ms")
    worker = await lab.worker()
    await lab.put_all(*(lab.job("work", concurrency_key="a") for _ in range(2)))
    assert len(await lab.claim(worker, 1)) == 1
    stopped = Pool(shared().url(), size=1, settings=HOT, pgbouncer=False)
    await stopped.open()
    with pytest.raises(Unavailable):  # noqa: PT012
        async with stopped.transaction() as connection:
            [gate] = await connection.fetch(sql("gates", schema), ["task:work"], [], [])
            assert tuple(gate) == ("task:work", True)
            assert len(await lab.claim(worker, 1)) == 1
    await stopped.close()


async def test_behind_more_keys_than_are_ever_read_others_are_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rotation, "MAX_READ_JOBS", 100)
    await rate(lab, "api", 1, per=3600, keyed=True)
    assert await lab.engine.documents.put_setting("limit:work", encode({"rates": ["api"]}), 0) is not None
    worker = await lab.worker()
    await lab.put_all(*(lab.job("work", concurrency_key=f"k{at % 150}") for at in range(300)))
    given = 0
    while taken := await lab.claim(worker, 10):
        given += len(taken)
    lab.later(1)
    other = await lab.put("other")
    assert [job.id for job in await lab.claim(worker, 10)] == [other.id]
    assert given >= 100


async def test_a_job_that_is_moved_while_a_claim_deals_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be given from the queue that it was seen in, whatever the limit of the one it stands in now."""
    for queue in ("here", "there"):
        await lab.engine.documents.put_setting(f"queue:{queue}", '{"max_concurrency": 1}', 0)
    worker = await lab.worker()
    await lab.put(queue="there")
    assert len(await lab.claim(worker)) == 1
    job = await lab.put(queue="here")
    moves = [actions.move(job, "there", lab.now)]
    looked = key_rotation.read

    async def slowly(*terms: Any) -> key_rotation.Table:
        table = await looked(*terms)
        if moves:
            await lab.do(moves.pop())
        return table

    monkeypatch.setattr("headrace.engines.postgres.jobs.limited_claim.read", slowly)
    assert await lab.claim(worker) == []
    assert not moves
    assert (await lab.get(job)).status is Status.QUEUED


async def test_old_acts_on_settings_are_forgotten(lab: Lab, connect: Connect, schema: str) -> None:
    other = await connect()
    event = encode(Event("set", lab.now, "ann"))
    await other.execute(
        f"INSERT INTO {schema}.audit (key, data) SELECT 'queue:a', $1 FROM generate_series(1, {MAX_AUDIT_ENTRIES + 5})",
        event,
    )
    assert await lab.engine.documents.put_setting("queue:a", "{}", 0, Event("last", lab.now)) is not None
    kept = await lab.engine.documents.audit(2 * MAX_AUDIT_ENTRIES)
    assert (len(kept), kept[0].verb) == (MAX_AUDIT_ENTRIES, "last")
