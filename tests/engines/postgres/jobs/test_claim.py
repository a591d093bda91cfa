"""Claims: in order over any mixture of lines, each job to one worker, and never for a worker that is buried."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.conformance.jobs.limits import rule
from headrace.conformance.lab import BEGIN, Lab
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, order, pick
from headrace.core.matching.customers import Customers
from headrace.core.query import Filter, as_seen
from headrace.core.status import Status
from headrace.engine import Claimed, Dead, Engine
from headrace.engines.memory import MemoryEngine
from headrace.engines.postgres.jobs.claim import Claiming
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.engines.postgres.store.pool import HOT, Pool
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from tests.engines.postgres.conftest import Connect
from tests.support.seed import examples
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import postgres_engine
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

PRIORITIES = {"a": 5, "b": 0, "c": -3, "d": 0}


class Held(Pool):
    """Statements as an engine makes them, on one connection, whose transaction is for the test to end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__("", size=1, settings=HOT, pgbouncer=False)
        self.alone = connection

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        return await self.alone.fetch(text, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.alone.transaction():
            yield self.alone


class Interrupted(Held):
    """Lets something happen right after the first statement of a claim."""

    def __init__(self, connection: Connection, happen: Callable[[], Awaitable[object]]) -> None:
        super().__init__(connection)
        self._happen: Callable[[], Awaitable[object]] | None = happen

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        rows = await super().fetch(text, *args)
        if self._happen is not None and "alive FOR KEY SHARE" in text:
            happen, self._happen = self._happen, None
            await happen()
        return rows


async def everything(lab: Lab, n: int) -> ClaimRequest:
    """An ask of one who serves all profiles."""
    return ClaimRequest(
        n=n, free=n, profiles=frozenset(profile.id for profile in (await lab.engine.documents.profiles()).profiles)
    )


async def blocked_by(connection: Connection) -> bool:
    """Whether anybody waits for a lock that this connection holds."""
    found = shared().execute(
        f"SELECT 1 FROM pg_stat_activity WHERE {connection.get_server_pid()} = ANY (pg_blocking_pids(pid))"
    )
    return bool(found)


async def surely(lab: Lab, worker: UUID, n: int = 1) -> Claimed | Dead:
    """Claim again as long as the store says that it cannot just now."""
    while True:
        try:
            return await lab.ask(worker, n)
        except Unavailable:
            continue


# Buried workers


async def plain(lab: Lab) -> Job:
    return await lab.put()


async def of_a_limited_task(lab: Lab) -> Job:
    await rule(lab, "limit:work", max_concurrency=3)
    return await lab.put()


async def of_a_limited_queue(lab: Lab) -> Job:
    await rule(lab, "queue:default", max_concurrency=3)
    return await lab.put()


async def of_a_limited_key(lab: Lab) -> Job:
    await rule(lab, "limit:work", max_per_key=1)
    return await lab.put(concurrency_key="k")


async def with_a_key(lab: Lab) -> Job:
    return await lab.put(concurrency_key="k")


DIRECT = [plain, of_a_limited_task, of_a_limited_queue, of_a_limited_key]
"""What is claimed with the first statement that is made for it, or within the same transaction as that."""

Kind = Callable[[Lab], Awaitable[Job]]


@pytest.mark.parametrize("kind", [*DIRECT, with_a_key])
async def test_a_burial_waits_for_a_claim_under_way_and_leaves_no_orphan(
    lab: Lab, schema: str, connect: Connect, kind: Kind
) -> None:
    worker, job = await lab.worker(), await kind(lab)
    await lab.engine.jobs.claim(
        worker, replace(await everything(lab, 1), n=0), 0, lab.now
    )  # there are gates, if need be
    slow = await connect()
    transaction = slow.transaction()
    await transaction.start()
    claimed = await Claiming(Held(slow), schema, lab.rules).claim(worker, await everything(lab, 1), 1, lab.now)
    assert isinstance(claimed, Claimed)
    assert [one.id for one in claimed.jobs] == [job.id]
    burial = asyncio.create_task(lab.engine.workers.bury(worker, 0))
    await until(lambda: blocked_by(slow))
    assert not burial.done()
    assert [row.alive for row in await lab.engine.workers.list()] == [True]
    await transaction.commit()  # the claim lands first, so whoever sweeps after the burial sees it
    assert await burial is True
    [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
    assert (found.job.id, found.alive) == (job.id, False)
    assert (await lab.sweep(found)).status is Status.QUEUED


@pytest.mark.parametrize("kind", DIRECT)
async def test_a_claim_waits_for_a_burial_under_way_and_gets_nothing(
    lab: Lab, schema: str, connect: Connect, kind: Kind
) -> None:
    worker, job = await lab.worker(), await kind(lab)
    await lab.engine.jobs.claim(worker, replace(await everything(lab, 1), n=0), 1, lab.now)  # the lines are known
    digger = await connect()
    transaction = digger.transaction()
    await transaction.start()
    assert await digger.fetch(sql("bury", schema), worker, 0, False, None, None, 100)
    claim = asyncio.create_task(surely(lab, worker))
    await until(lambda: blocked_by(digger))
    await transaction.commit()
    assert await claim == Dead()
    assert (await lab.get(job)).status is Status.QUEUED
    assert (await lab.engine.jobs.overdue(lab.now)).jobs == ()


async def test_a_claim_that_turns_to_keys_waits_for_a_burial_begun_meanwhile(
    lab: Lab, schema: str, connect: Connect
) -> None:
    worker, job = await lab.worker(), await with_a_key(lab)
    digger, line = await connect(), await connect()
    transaction = digger.transaction()

    async def bury() -> None:
        await transaction.start()
        assert await digger.fetch(sql("bury", schema), worker, 0, False, None, None, 100)

    claiming = Claiming(Interrupted(line, bury), schema, lab.rules)
    claim = asyncio.create_task(claiming.claim(worker, await everything(lab, 1), 1, lab.now))
    await until(lambda: blocked_by(digger))
    await transaction.commit()
    assert await claim == Dead()
    assert (await lab.get(job)).status is Status.QUEUED


@pytest.mark.parametrize("kind", DIRECT)
async def test_a_burial_that_is_called_off_lets_the_claim_go_on(
    lab: Lab, schema: str, connect: Connect, kind: Kind
) -> None:
    worker, job = await lab.worker(), await kind(lab)
    digger = await connect()
    transaction = digger.transaction()
    await transaction.start()
    await digger.fetch(sql("bury", schema), worker, 0, False, None, None, 100)
    claim = asyncio.create_task(surely(lab, worker))
    await until(lambda: blocked_by(digger))
    await transaction.rollback()
    claimed = await claim
    assert isinstance(claimed, Claimed)
    assert [one.id for one in claimed.jobs] == [job.id]


# Repeated requests


async def of_customers(lab: Lab) -> Job:
    await rule(lab, "queue:default", by_customer=True)
    return await lab.put(customer="a")


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("kind", [*DIRECT, with_a_key, of_customers])
async def test_a_repeat_waits_for_the_same_request_under_way_and_gives_what_that_gave(
    lab: Lab, schema: str, connect: Connect, kind: Kind, slots: int, end: str
) -> None:
    worker, first = await lab.worker(), await kind(lab)
    await lab.put_all(*(replace(first, id=lab.new_id(), seq=0) for _ in range(4)))
    ask = await everything(lab, slots)
    if kind is of_customers:
        ask = replace(ask, queues=("default",), customers=Customers())
    await lab.engine.jobs.claim(worker, replace(ask, n=0), 0, lab.now)  # there are gates, if need be
    slow = await connect()
    transaction = slow.transaction()
    await transaction.start()
    given = await Claiming(Held(slow), schema, lab.rules).claim(worker, ask, 1, lab.now)
    assert isinstance(given, Claimed)
    assert given.jobs
    repeat = asyncio.create_task(lab.engine.jobs.claim(worker, ask, 1, lab.now))
    other = await lab.worker()
    await until(lambda: blocked_by(slow))
    if kind is plain:
        beside = await lab.engine.jobs.claim(worker, ask, 2, lab.now)
        assert isinstance(beside, Claimed)
        assert beside.jobs, "another request of the same worker does not wait"
        assert len(await lab.claim(other, 1, request=1)) == 1, "nor does another worker"
    await (transaction.commit() if end == "commit" else transaction.rollback())
    answer = await repeat
    assert isinstance(answer, Claimed)
    if end == "commit":
        assert [job.id for job in answer.jobs] == [job.id for job in given.jobs]
    held = (await lab.engine.records.find(Filter(worker=frozenset({worker})), lab.now)).items
    assert {job.id for job in held if job.claim == 1} == {job.id for job in answer.jobs}


async def test_a_repeat_whose_snapshot_is_older_than_the_end_of_the_first_is_no_second_claim(
    lab: Lab, schema: str, connect: Connect
) -> None:
    """As above, but all that the first holds is released in the middle of the statement of the second."""
    worker = await lab.worker()
    await lab.put_all(*(lab.job() for _ in range(3)))
    ask = await everything(lab, 1)
    claiming = Claiming(Held(await connect()), schema, lab.rules)
    await claiming.claim(worker, replace(ask, n=0), 0, lab.now)  # the lines are known
    late, keeper = await connect(), await connect()
    transaction = keeper.transaction()
    await transaction.start()
    await keeper.execute(f"SELECT 1 FROM {schema}.workers WHERE id = $1 FOR UPDATE", worker)
    repeat = asyncio.create_task(Claiming(Held(late), schema, lab.rules).claim(worker, ask, 1, lab.now))
    await until(lambda: blocked_by(keeper))  # its snapshot is taken, its look at what is held is not
    # What a claim of the other writes, and ends, within that time.
    [job] = await keeper.fetch(
        f"UPDATE {schema}.jobs SET stage = 3, status = 'assigned', worker = $1, claim = 1, rev = rev + 1 "
        f"WHERE seq = (SELECT min(seq) FROM {schema}.jobs) RETURNING id",
        worker,
    )
    await transaction.commit()
    answer = await repeat
    assert isinstance(answer, Claimed)
    assert [one.id for one in answer.jobs] == [job["id"]]
    held = (await lab.engine.records.find(Filter(worker=frozenset({worker})), lab.now)).items
    assert [one.id for one in held] == [job["id"]]


async def test_a_beat_does_not_wait_for_a_claim_nor_a_claim_for_a_beat(lab: Lab, schema: str, connect: Connect) -> None:
    worker = await lab.worker()
    await lab.put_all(lab.job(), lab.job())
    slow = await connect()
    async with slow.transaction():
        await Claiming(Held(slow), schema, lab.rules).claim(worker, await everything(lab, 1), 1, lab.now)
        assert await slow.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = pg_backend_pid()") == 0
        second = await (await connect()).execute(
            f"SET lock_timeout = 1; UPDATE {schema}.workers SET beats = beats + 1 WHERE id = '{worker}'"
        )
        assert second == "UPDATE 1"
        assert len(await lab.claim(worker, 1, request=2)) == 1


# Who gets what


@pytest.mark.parametrize("lines", [1, 40])
async def test_eight_at_once_are_given_every_job_and_none_twice(lab: Lab, lines: int) -> None:
    jobs = await lab.put_all(*(lab.job(f"task{at % lines}") for at in range(800)))
    ask = replace(await everything(lab, 7), free=7)
    taken: list[UUID] = []
    sessions: list[Engine] = [lab.engine, *(lab.engine.another_session() for _ in range(3))]
    for session in sessions[1:]:
        await session.open()

    async def claimer(session: Engine, worker: UUID) -> None:
        while len(taken) < len(jobs):
            claimed = await session.jobs.claim(worker, ask, lab.host.dice.token(), lab.now)
            assert isinstance(claimed, Claimed)
            taken.extend(job.id for job in claimed.jobs)

    workers = [await lab.worker() for _ in range(8)]
    await asyncio.gather(*(claimer(sessions[at % 4], worker) for at, worker in enumerate(workers)))
    for session in sessions[1:]:
        await session.close()
    assert Counter(taken) == Counter(job.id for job in jobs)


@pytest.mark.parametrize("n", [1, 20, 150])
async def test_a_claim_of_a_thousand_lines_locks_at_most_twice_what_it_takes(
    lab: Lab, schema: str, connect: Connect, n: int
) -> None:
    for _ in range(3):
        await lab.put_all(*(lab.job(f"task{at % 10}", queue=f"q{at // 10}") for at in range(1000)))
    worker, slow, beside = await lab.worker(), await connect(), await connect()
    async with slow.transaction():
        claimed = await Claiming(Held(slow), schema, lab.rules).claim(worker, await everything(lab, n), 1, lab.now)
        assert isinstance(claimed, Claimed)
        assert len(claimed.jobs) == n
        number = await slow.fetchval("SELECT pg_current_xact_id()::xid::text")
        # Seen from outside, a row that is locked or changed names the transaction that does so.
        locked = await beside.fetchval(f"SELECT count(*) FROM {schema}.jobs WHERE xmax = '{number}'::xid")
        assert n <= locked <= 2 * n
        # What it left, another gets meanwhile, beginning with the next in order.
        more = await lab.claim(await lab.worker(), 1)
        assert len(more) == 1
        assert more[0].seq == max(job.seq for job in claimed.jobs) + 1


# In which order


def odd_jobs(lab: Lab, dice: random.Random, count: int, tasks: int) -> list[Job]:
    jobs = []
    for _ in range(count):
        job = lab.job(
            f"task{dice.randrange(tasks)}",
            queue=dice.choice("abcd"),
            priority=dice.choice((10, 50, 50, 90)),
            not_after=dice.choice((None, None, None, 30.0, 90.0)),
            delay=dice.choice((0.0, 0.0, 20.0, 40.0, 500.0)),
        )
        jobs.append(replace(job, unstarted_losses=dice.choice((0, 0, 0, 0, 2, 3))))
    return jobs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tasks", [1, 6])
async def test_a_claim_is_what_the_core_picks(lab: Lab, seed: int, tasks: int) -> None:
    dice = random.Random(seed)
    worker = await lab.worker()
    for queue, priority in PRIORITIES.items():
        rule = msgspec.json.encode({"priority": priority, "paused": queue == "d"}).decode()
        await lab.engine.documents.put_setting(f"queue:{queue}", rule, 0)
    jobs = await lab.put_all(*odd_jobs(lab, dice, 80, tasks))
    now = lab.later(60)
    profiles = (await lab.engine.documents.profiles()).profiles
    served = frozenset(profile.id for profile in profiles if dice.random() < 0.8)
    tasks_served = {profile.task for profile in profiles if profile.id in served}
    queues = dice.choice((None, ("a", "b", "d"), ("c",)))
    ids = [job.id for job in jobs]
    for request in range(1, 8):
        n = dice.choice((0, 1, 5, 40))
        ask = ClaimRequest(n=n, free=dice.randrange(n + 2), profiles=served, queues=queues)
        stored = [as_seen(job, now) for job in await lab.engine.jobs.get(ids) if job is not None]
        line = [
            job
            for job in stored
            if job.status is Status.QUEUED
            and job.task in tasks_served
            and job.queue != "d"
            and (queues is None or job.queue in queues)
        ]
        line.sort(key=lambda job: order(job, PRIORITIES[job.queue]))
        expected = [job.id for job in pick(line, ask, now, lab.rules)]
        claimed = await lab.engine.jobs.claim(worker, ask, request, now)
        assert isinstance(claimed, Claimed)
        assert [job.id for job in claimed.jobs] == expected


async def test_one_consumer_is_given_strictly_by_priority_then_in_order_of_arrival(lab: Lab) -> None:
    dice = random.Random(3)
    for queue, priority in PRIORITIES.items():
        await lab.engine.documents.put_setting(f"queue:{queue}", f'{{"priority": {priority}}}', 0)
    jobs = []
    for _ in range(30):
        batch = [
            lab.job(f"task{dice.randrange(5)}", queue=dice.choice("abcd"), priority=dice.randrange(0, 100, 10))
            for _ in range(20)
        ]
        jobs += await lab.put_all(*batch)
        lab.later(dice.random())
    worker, given = await lab.worker(), list[UUID]()
    while taken := await lab.claim(worker, dice.choice((1, 3, 17, 90))):
        given += [job.id for job in taken]
    jobs.sort(key=lambda job: order(job, PRIORITIES[job.queue]))
    assert given == [job.id for job in jobs]


SIZES = (1, 1, 2, 15, 16, 17, 18, 40, 143, 144, 145, 146, 200)
"""Around the portions in which a claim of several lines reads each of them."""

BURSTS = st.lists(
    st.tuples(
        st.integers(0, 12),  # line
        st.sampled_from((10, 50, 90)),  # priority
        st.integers(0, 3),  # arrival of the first
        st.integers(0, 2),  # time between two
        st.sampled_from(SIZES),
    ),
    min_size=1,
    max_size=8,
)


@settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bursts=BURSTS, sizes=st.lists(st.sampled_from((1, 2, 9, 50, 170, 400)), min_size=1, max_size=3))
@pytest.mark.timeout(180)
def test_however_the_lines_are_filled_the_order_is_that_of_the_model(
    tmp_path: Path, bursts: list[tuple[int, int, int, int, int]], sizes: list[int]
) -> None:
    host, rules = Host(), Rules()

    async def play(engine: Engine) -> list[list[str]]:
        lab = Lab(lambda: engine, host, rules)
        await engine.open()
        mark = str(host.dice.token())  # the store is the same for all examples, the tasks are not
        jobs: list[Job] = []
        for line, priority, first, step, size in bursts:
            for at in range(size):
                lab.now = BEGIN + timedelta(seconds=first + at * step)
                jobs.append(
                    lab.job(f"{mark}-{line % 4}", queue=f"q{line // 4}", priority=priority, payload=str(len(jobs)))
                )
        for start in range(0, len(jobs), 1000):
            await lab.put_all(*jobs[start : start + 1000])
        worker = await lab.worker()
        served = tuple({job.task for job in jobs})
        given = [await lab.claim(worker, n, tasks=served) for n in sizes]
        given.append(await lab.claim(worker, 1000, tasks=served))
        await engine.close()
        return [[job.payload_text for job in jobs] for jobs in given]

    async def both() -> None:
        assert await play(postgres_engine(rules, host, tmp_path)) == await play(MemoryEngine(rules, host))

    asyncio.run(both())


# What a session remembers


async def test_lines_made_by_another_session_are_served_at_once(lab: Lab) -> None:
    worker = await lab.worker()
    await lab.put("work", queue="here")
    assert len(await lab.claim(worker)) == 1
    other = lab.engine.another_session()
    await other.open()
    await other.jobs.insert([lab.job("work", queue="there")], lab.now)
    # The same profile, so the ask is the same; only the line is new.
    assert [job.queue for job in await lab.claim(worker)] == ["there"]
    await other.close()


async def test_a_session_serves_any_number_of_asks(lab: Lab) -> None:
    worker = await lab.worker()
    await lab.put_all(*(lab.job(queue=f"q{at}") for at in range(100)))
    for count in (1, 0):
        for at in range(100):
            assert len(await lab.claim(worker, 1, queues=(f"q{at}",))) == count
    assert await lab.claim(worker) == []


async def test_a_queue_that_is_paused_or_ranked_elsewhere_is_known_at_the_next_claim(lab: Lab) -> None:
    worker = await lab.worker()
    await lab.put_all(*(lab.job(queue=queue) for queue in "abab"))
    other = lab.engine.another_session()
    await other.open()
    rule = await other.documents.put_setting("queue:b", '{"priority": 3}', 0)
    assert rule is not None
    assert [job.queue for job in await lab.claim(worker, 1)] == ["b"]
    await other.documents.put_setting("queue:b", '{"priority": 3, "paused": true}', rule.rev)
    assert [job.queue for job in await lab.claim(worker)] == ["a", "a"]
    await other.close()


async def test_jobs_that_others_hold_locked_are_passed_over(lab: Lab, schema: str, connect: Connect) -> None:
    """However many of the first are just being taken: all that a claim looks at, and more."""
    jobs = await lab.put_all(*(lab.job(f"task{at % 2}") for at in range(400)))
    greedy, worker = await connect(), await lab.worker()
    async with greedy.transaction():
        await greedy.fetch(f"SELECT 1 FROM {schema}.jobs WHERE seq <= $1 FOR UPDATE", jobs[349].seq)
        assert [job.id for job in await lab.claim(worker, 10)] == [job.id for job in jobs[350:360]]
        assert len(await lab.claim(worker, 100)) == 40
        assert await lab.claim(worker, 100) == []
    assert len(await lab.claim(worker, 1000)) == 350
