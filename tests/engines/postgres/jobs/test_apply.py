"""Apply: late, twice, for a key that is taken, for a job that somebody's transaction holds."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from headrace.conformance.entries import items, of
from headrace.conformance.lab import OOPS, Lab
from headrace.core.attempt import Completed, Failed, Progress
from headrace.core.change import Applied, Change, Conflict, KeyEffect, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.status import Status
from headrace.engine import Engine, Inserted
from headrace.engines.postgres.store.connection import Connection
from headrace.errors import Duplicate, Unavailable
from headrace.runtime.writes.writer import Writer
from tests.engines.postgres.conftest import Connect
from tests.support.invariants import check_store
from tests.support.until import until


async def surely(engine: Engine, changes: list[Change], lab: Lab) -> list[Verdict]:
    """Apply as a lane does: again, for as long as the store says that it cannot just now."""
    while True:
        try:
            return await engine.jobs.apply(changes, lab.now)
        except Unavailable:
            continue


async def lock(connection: Connection, schema: str, job: Job) -> None:
    """Hold a job as a transaction does that completes it, and is not committed yet."""
    await connection.execute(f"UPDATE {schema}.jobs SET updated_at = updated_at WHERE seq = {job.seq}")


async def test_a_change_without_an_id_is_not_taken_for_a_repeat(lab: Lab) -> None:
    job = await lab.running(await lab.worker())
    done = lab.end(job, Completed())
    assert done.id == 0
    assert await lab.engine.jobs.apply([done], lab.now) == [Applied(done.job)]
    [verdict] = await lab.engine.jobs.apply([replace(done, worker=None)], lab.now)
    assert verdict == Conflict(done.job)


@pytest.mark.parametrize("alike", [True, False])
async def test_what_completions_of_a_batch_share_and_what_not(lab: Lab, alike: bool) -> None:
    """Results, revs, attempts and keys, once for all or one by one."""
    worker = await lab.worker()
    jobs = [await lab.held(worker, dedup=None if alike else f"k{number}") for number in range(3)]
    if not alike:
        jobs[1] = await lab.start(jobs[1])
        first = await lab.do(lab.end(await lab.start(jobs[2]), Failed(error=OOPS, delay=0.0)))
        [jobs[2]] = [job for job in await lab.claim(worker) if job.id == first.id]
    results = ["null"] * 3 if alike else ["1", '"two"', "null"]
    began = [None if job.status is Status.RUNNING else lab.later(0.1) for job in jobs]
    ends = [lab.end(*one[:2], started_at=one[2]) for one in zip(jobs, map(Completed, results), began, strict=True)]
    assert await lab.apply(*ends) == [Applied(end.job) for end in ends]
    for end, result in zip(ends, results, strict=True):
        assert await lab.get(end.job) == end.job
        assert end.job.result_text == result
        assert (await lab.attempts(end.job))[-1] == end.attempt


async def test_an_epoch_may_have_more_than_32_bits(lab: Lab, schema: str, connect: Connect) -> None:
    worker, epoch = await lab.worker(), 2**40
    jobs = [await lab.put("one"), *[await lab.put("many") for _ in range(2)]]
    await (await connect()).execute(f"UPDATE {schema}.jobs SET epoch = {epoch - 1}")
    claimed = [*await lab.claim(worker, tasks=("one",)), *await lab.claim(worker, tasks=("many",))]
    assert [(job.id, job.epoch) for job in claimed] == [(job.id, epoch) for job in jobs]
    one, *many = [await lab.start(job) for job in claimed]
    assert await lab.engine.entries.append([of(one, *items(lab, 1))], lab.now) == ["kept"]
    ended = [await lab.finish(one, Failed(error=OOPS, delay=0.0))]
    ended += [
        end.job for end in await lab.apply(*(lab.end(job, Completed()) for job in many)) if isinstance(end, Applied)
    ]
    for job in ended:
        assert (await lab.get(job)).epoch == job.epoch == epoch + 1
        assert [past.epoch for past in await lab.attempts(job)] == [epoch]


async def test_a_job_that_does_not_know_its_order_number_is_found_by_its_id(lab: Lab) -> None:
    stored = await lab.put()
    change = actions.cancel(replace(stored, seq=0), lab.now, lab.rules)
    assert change is not None
    [verdict] = await lab.apply(change)
    assert isinstance(verdict, Applied)
    assert (await lab.get(stored)).status is Status.CANCELLED
    assert (await lab.get(stored)).seq == stored.seq


async def test_a_key_freed_earlier_in_the_batch_can_be_taken_later_in_it(lab: Lab) -> None:
    first = await lab.cancel(await lab.put(dedup="k"))
    second = await lab.put(dedup="k")
    third = await lab.put("other")
    cancel, other = (actions.cancel(job, lab.now, lab.rules) for job in (second, third))
    assert cancel is not None
    assert other is not None
    retry = actions.retry(first, lab.now)
    assert retry.key is KeyEffect.TAKE
    verdicts = await lab.apply(cancel, retry, other)
    assert [type(verdict) for verdict in verdicts] == [Applied] * 3


async def test_of_two_takers_in_one_batch_the_second_is_told_who_holds_it(lab: Lab) -> None:
    one, two = [await lab.cancel(await lab.put(dedup="k")) for _ in range(2)]
    verdicts = await lab.apply(actions.retry(one, lab.now), actions.retry(two, lab.now))
    assert isinstance(verdicts[0], Applied)
    assert verdicts[1] == Conflict(two, verdicts[0].job)
    history = await lab.engine.records.history(two.id)
    assert [event.verb for event in history.events] == ["cancel"]


async def test_two_sessions_that_want_one_key_at_once_get_it_once(lab: Lab) -> None:
    other = lab.engine.another_session()
    await other.open()
    for _ in range(20):
        one, two = [await lab.cancel(await lab.put(dedup="k")) for _ in range(2)]
        takers = [lab.stamp(actions.retry(job, lab.now)) for job in (one, two)]
        verdicts = await asyncio.gather(
            lab.engine.jobs.apply([takers[0]], lab.now),
            other.jobs.apply([takers[1]], lab.now),
            other.jobs.insert([lab.job(dedup="k")], lab.now),
        )
        holders = [job for job in await _live(lab) if job.spec.dedup == "k"]
        assert len(holders) == 1, verdicts
        await lab.cancel(holders[0])
    await other.close()


async def _live(lab: Lab) -> list[Job]:
    from headrace.core.query import Filter

    found = await lab.engine.records.find(Filter(status=frozenset({Status.QUEUED})), lab.now)
    return list(found.items)


async def test_a_report_of_progress_touches_neither_rev_nor_the_last_change(lab: Lab) -> None:
    job = await lab.held(await lab.worker())
    start = lab.stamp(execution.start(job, lab.now, lab.rules))
    await lab.engine.jobs.apply([start], lab.now)
    report = execution.progress(start.job, lab.at(1), Progress(percent=50), lab.rules)
    assert [type(verdict) for verdict in await lab.apply(report)] == [Applied]
    assert [type(verdict) for verdict in await lab.engine.jobs.apply([start], lab.now)] == [Applied]
    assert await lab.get(job) == report.job


# Jobs that a transaction of the user's holds


async def test_one_job_in_an_open_transaction_does_not_hold_up_the_others(
    lab: Lab, schema: str, connect: Connect
) -> None:
    worker = await lab.worker()
    await lab.put_all(*(lab.job() for _ in range(20)))
    held = await lab.claim(worker)
    ends = [lab.stamp(lab.end(job, Completed(), started_at=lab.now)) for job in held]
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await lock(user, schema, held[7])
    verdicts = await lab.engine.jobs.apply(ends, lab.now)
    assert [at for at, verdict in enumerate(verdicts) if not isinstance(verdict, Applied)] == [7]
    assert verdicts[7] == Conflict(held[7])  # not lost: whoever asked decides again
    assert (await lab.get(held[6])).status is Status.COMPLETED
    assert (await lab.get(held[7])).status is Status.ACCEPTED
    await transaction.rollback()
    assert [type(verdict) for verdict in await lab.engine.jobs.apply([ends[7]], lab.now)] == [Applied]
    assert {job.status for job in await _all(lab, held)} == {Status.COMPLETED}
    await check_store(lab.engine)


async def test_a_report_about_a_job_in_an_open_transaction_does_not_hold_up_the_others(
    lab: Lab, schema: str, connect: Connect
) -> None:
    worker = await lab.worker()
    slow, quick = await lab.running(worker, "slow"), await lab.running(worker, "quick")
    changes = [
        execution.progress(slow, lab.at(1), Progress(percent=50), lab.rules),
        execution.progress(quick, lab.at(1), Progress(percent=50), lab.rules),
        lab.stamp(lab.end(await lab.running(worker, "other"), Completed())),
    ]
    user = await connect()
    async with user.transaction():
        await lock(user, schema, slow)
        verdicts = await lab.engine.jobs.apply(changes, lab.now)
    assert [type(verdict) for verdict in verdicts[1:]] == [Applied, Applied]
    assert (await lab.get(quick)).progress == Progress(percent=50)


async def test_a_repeat_after_the_commit_of_the_transaction_is_recognised(
    lab: Lab, schema: str, connect: Connect
) -> None:
    """The same change came by way of the user's transaction: committed, though nobody heard it."""
    job = await lab.running(await lab.worker())
    done = lab.stamp(lab.end(job, Completed('"here"')))
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    enlisted = lab.transactions.enlist(user)
    assert await enlisted.run(await lab.transactions.applying(done, lab.now)) == Applied(done.job)
    assert (await lab.get(job)).status is Status.RUNNING
    again = asyncio.create_task(surely(lab.engine, [done], lab))
    await transaction.commit()
    [verdict] = await again
    if isinstance(verdict, Conflict):  # it came while the transaction was open
        [verdict] = await lab.engine.jobs.apply([done], lab.now)
    assert verdict == Applied(done.job)
    assert len(await lab.attempts(job)) == 1


async def test_a_key_in_an_open_transaction_does_not_hold_up_other_changes(lab: Lab, connect: Connect) -> None:
    writer = Writer(lab.engine, lab.host)
    ended = await lab.cancel(await lab.put(dedup="k"))
    others = await lab.put_all(*(lab.job() for _ in range(3)))
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    steps = await lab.transactions.inserting([lab.job(dedup="k")], lab.now)
    [taken] = await lab.transactions.enlist(user).run(steps)
    blocked = asyncio.create_task(writer.decide(ended.id, actions.retry))
    await until(lambda: bool(writer._actions._pumps))
    for job in others:
        cancelled = await writer.decide(job.id, lambda job, now: actions.cancel(job, now, lab.rules))
        assert cancelled.status is Status.CANCELLED
    assert not blocked.done()
    await transaction.commit()
    with pytest.raises(Duplicate) as caught:
        await blocked
    assert isinstance(taken, Inserted)
    assert caught.value.job.id == taken.job.id
    await writer.close()


async def test_a_key_in_a_transaction_that_is_rolled_back_can_be_taken(lab: Lab, connect: Connect) -> None:
    writer = Writer(lab.engine, lab.host)
    ended = await lab.cancel(await lab.put(dedup="k"))
    user = await connect()
    transaction = user.transaction()
    await transaction.start()
    await lab.transactions.enlist(user).run(await lab.transactions.inserting([lab.job(dedup="k")], lab.now))
    blocked = asyncio.create_task(writer.decide(ended.id, actions.retry))
    await until(lambda: bool(writer._actions._pumps))
    await transaction.rollback()
    assert not (await blocked).ended
    await writer.close()


async def _all(lab: Lab, jobs: list[Job]) -> list[Job]:
    return [job for job in await lab.engine.jobs.get([job.id for job in jobs]) if job is not None]


# Two sessions at once


@pytest.mark.parametrize("kind", ["complete", "fail", "report"])
async def test_jobs_are_locked_in_the_order_of_their_numbers_whatever_order_they_are_given_in(
    lab: Lab, schema: str, connect: Connect, kind: str
) -> None:
    """So no two ever wait for each other: while one waits for a job, it holds those before it and none behind."""
    worker, user, third = await lab.worker(), await connect(), await connect()

    def change(job: Job) -> Change:
        if kind == "report":
            return execution.progress(job, lab.now, Progress(percent=50), lab.rules)
        return lab.stamp(lab.end(job, Completed() if kind == "complete" else Failed(error=OOPS)))

    async def holds_the_first_alone() -> bool:
        first, middle, last = [await lab.running(worker, f"{task}{lab.new_id()}") for task in ("a", "b", "c")]
        transaction = user.transaction()
        await transaction.start()
        await lock(user, schema, middle)
        applying = asyncio.create_task(lab.engine.jobs.apply([change(job) for job in (last, middle, first)], lab.now))
        seen = False
        while not applying.done() and not seen:
            rows = await third.fetch(f"SELECT seq FROM {schema}.jobs FOR UPDATE SKIP LOCKED")
            free = {row["seq"] for row in rows}
            if first.seq not in free:
                assert last.seq in free
                seen = True
        await transaction.rollback()
        await applying
        return seen

    await until(holds_the_first_alone)


async def test_random_changes_from_two_sessions_never_get_in_each_others_way(lab: Lab) -> None:
    """Each takes what it gets to first; the other is told; nobody waits for the other in a circle."""
    worker = await lab.worker()
    await lab.put_all(*(lab.job() for _ in range(60)))
    jobs = {job.id: await lab.start(job) for job in await lab.claim(worker)}
    other = lab.engine.another_session()
    await other.open()
    tally, all_have_read = {"applied": 0, "else": 0}, asyncio.Barrier(3)

    async def session(engine: Engine, seed: int) -> None:
        dice = random.Random(seed)
        for turn in range(40):
            picked = dice.sample(sorted(jobs), 20)
            known = [job for job in await engine.jobs.get(picked) if job is not None and not job.ended]
            changes = [lab.stamp(change) for job in known if (change := _some(lab, job, dice, turn)) is not None]
            await all_have_read.wait()  # so that they do meet
            if changes:
                dice.shuffle(changes)
                for verdict in await engine.jobs.apply(changes, lab.now):
                    tally["applied" if isinstance(verdict, Applied) else "else"] += 1

    await asyncio.gather(session(lab.engine, 1), session(other, 2), session(other, 3))
    await other.close()
    assert tally["applied"] >= 40
    assert tally["else"] > 0
    await check_store(lab.engine)


def _some(lab: Lab, job: Job, dice: random.Random, turn: int) -> Change | None:
    moment = lab.now + timedelta(seconds=turn)
    if job.status is not Status.RUNNING:
        return None
    if dice.random() < 0.5:
        return execution.progress(job, moment, Progress(percent=dice.randrange(100)), lab.rules)
    if dice.random() < 0.8:
        return actions.cancel(job, moment, lab.rules)
    return lab.end(job, Failed(error=OOPS) if dice.random() < 0.5 else Completed())
