"""Claim in SQL equals the core's: the same jobs, whatever mixture of lines, priorities, fragile and expired jobs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, order, pick
from headrace.core.matching.match import serves
from headrace.core.query import as_seen
from headrace.core.status import Status
from headrace.engine import Claimed
from headrace.engines.sqlite import SqliteEngine

PRIORITIES = {"a": 5, "b": 0, "c": -3, "d": 0}


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


@pytest.mark.parametrize("seed", range(12))
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


async def test_many_fragile_jobs_that_expired_do_not_shorten_a_claim(lab: Lab) -> None:
    worker = await lab.worker()
    gone = [replace(lab.job(not_after=1, priority=90), unstarted_losses=5) for _ in range(30)]
    await lab.put_all(*gone, *(lab.job() for _ in range(10)))
    lab.later(10)
    assert len(await lab.claim(worker, 10, free=10)) == 10


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
    await lab.put_all(*(lab.job(queue=f"q{at}") for at in range(150)))
    for _ in range(2):
        for at in range(150):
            assert len(await lab.claim(worker, 1, queues=(f"q{at}",))) in (0, 1)
    assert (await lab.engine.records.ledger()).live == 150
    assert await lab.claim(worker) == []


@asynccontextmanager
async def steps_of(lab: Lab) -> AsyncIterator[list[int]]:
    """How many steps of SQLite's machine writing takes, in tens: they do not depend on how busy this one is."""
    engine, steps = lab.engine, [0]
    assert isinstance(engine, SqliteEngine)

    def count() -> bool:
        steps[0] += 1
        return False

    await engine._writer.run(lambda connection: connection.set_progress_handler(count, 10))
    yield steps
    await engine._writer.run(lambda connection: connection.set_progress_handler(None, 10))


@pytest.mark.parametrize("lines", [1, 4])
async def test_a_claim_costs_the_same_behind_a_long_history(lab: Lab, lines: int) -> None:
    worker = await lab.worker()

    async def cost() -> int:
        await lab.put_all(*(lab.job(f"mine{at % lines}") for at in range(40)))
        async with steps_of(lab) as steps:
            assert len(await lab.claim(worker, 20, tasks=tuple(f"mine{at}" for at in range(lines)))) == 20
        for job in await lab.claim(worker):  # nothing of this round is left for the next
            assert job is not None
        return steps[0]

    before = await cost()
    for _ in range(5):
        done = await lab.put_all(*(lab.job("old") for _ in range(300)))
        held = await lab.claim(worker, tasks=("old",))
        assert len(held) == len(done)
        await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in held))
    await lab.put_all(*(lab.job("not mine", delay=at % 2 * 900) for at in range(1000)))
    # A tenth more for deeper trees.
    assert await cost() < before * 1.1 + 50


async def test_a_claim_of_several_lines_costs_the_same_in_front_of_a_long_queue(lab: Lab) -> None:
    worker = await lab.worker()

    async def cost() -> int:
        async with steps_of(lab) as steps:
            assert len(await lab.claim(worker, 10)) == 10
        return steps[0]

    await lab.put_all(*(lab.job(task) for task in "abc" for _ in range(20)))
    await cost()  # finds out which lines there are
    before = await cost()
    for task in "abc":
        await lab.put_all(*(lab.job(task) for _ in range(1000)))
    assert await cost() < before * 1.1 + 50


async def test_jobs_that_a_worker_cannot_take_cost_it_nothing(lab: Lab) -> None:
    """However many jobs that need 24 GB stand in front."""
    worker, tasks = await lab.worker(), frozenset({"work"})
    large: dict[str, Any] = {"requires": {"gpu_memory_gb": 24}, "priority": 90}
    await lab.put_all(
        *(lab.job(**large) for _ in range(10)), *(lab.job(requires={"gpu_memory_gb": 8}) for _ in range(60))
    )
    known = (await lab.engine.documents.profiles()).profiles
    served = frozenset(one.id for one in known if serves(one, tasks, {"gpu_memory_gb": 8}))
    assert len(served) == 1

    async def cost(request: int) -> int:
        async with steps_of(lab) as steps:
            answer = await lab.engine.jobs.claim(worker, ClaimRequest(n=20, free=20, profiles=served), request, lab.now)
        assert isinstance(answer, Claimed)
        assert [job.requires for job in answer.jobs] == [{"gpu_memory_gb": 8}] * 20
        return steps[0]

    await cost(1)  # finds out which lines there are
    before = await cost(2)
    for _ in range(5):
        await lab.put_all(*(lab.job(**large) for _ in range(1000)))
    assert await cost(3) < before * 1.1 + 50


FULL: dict[str, dict[str, Any]] = {
    "paused": {"queue:crowd": {"paused": True}},
    "a full queue": {"queue:crowd": {"max_concurrency": 1}},
    "a full task": {"limit:crowd": {"max_concurrency": 1}},
    "a spent rate": {
        "limit:crowd": {"rates": ["api"]},
        "rate:api": {"limit": 1, "per": 9e3, "kind": "fixed", "keyed": False},
    },
}


@pytest.mark.parametrize("why", FULL)
async def test_keys_of_a_line_that_nothing_is_given_of_cost_others_nothing(lab: Lab, why: str) -> None:
    worker = await lab.worker()
    for key, rule in FULL[why].items():
        await lab.engine.documents.put_setting(key, msgspec.json.encode(rule).decode(), 0)
    await lab.put_all(lab.job("crowd", queue="crowd"), *(lab.job("mine") for _ in range(60)))
    assert len(await lab.claim(worker, tasks=("crowd",))) == (why != "paused")

    async def cost() -> int:
        async with steps_of(lab) as steps:
            assert len(await lab.claim(worker, 20)) == 20
        return steps[0]

    await lab.put_all(*(lab.job("crowd", queue="crowd", concurrency_key=f"k{number}") for number in range(50)))
    await cost()  # finds out which lines there are
    before = await cost()
    await lab.put_all(*(lab.job("crowd", queue="crowd", concurrency_key=f"c{number}") for number in range(1000)))
    assert await cost() < before * 1.1 + 50


async def test_what_is_set_while_a_claim_waits_for_the_file_holds_for_it(lab: Lab) -> None:
    worker, other, engine = await lab.worker(), lab.make(), lab.engine
    assert isinstance(engine, SqliteEngine)
    await lab.engine.documents.put_setting("limit:work", '{"max_concurrency": 9}', 0)
    await lab.put_all(*(lab.job() for _ in range(5)))
    await other.open()
    loop, todo = asyncio.get_running_loop(), [("queue:default", '{"paused": true}')]

    def trace(_: object, text: str, __: object) -> bool:
        if todo and text == "BEGIN IMMEDIATE":
            asyncio.run_coroutine_threadsafe(other.documents.put_setting(*todo.pop(), 0), loop).result()
        return True

    await engine._writer.run(lambda connection: setattr(connection, "exec_trace", trace))
    assert await lab.claim(worker) == []
    assert todo == []
    await other.close()
