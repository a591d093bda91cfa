"""Batches on PostgreSQL: counted by deltas, which are added up while others count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.batch import Batch
from headrace.core.change import Applied, BatchTally
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine import Inserted, Refused
from headrace.engines.postgres.store.connection import Connection
from headrace.errors import TransitionRefused, Unavailable
from tests.engines.postgres.test_families import Undone, apply, insert, waits_for

Connect = Callable[[], Awaitable[Connection]]


async def filled(lab: Lab, n: int, *, sealed: bool = True) -> tuple[Batch, list[Job]]:
    """A batch of running jobs."""
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now, sealed=sealed)
    answers = await lab.engine.jobs.insert([lab.job(batch=batch.id) for _ in range(n)], lab.now, batch)
    assert all(isinstance(answer, Inserted) for answer in answers)
    jobs = await lab.claim(await lab.worker())
    return batch, jobs


async def tally(lab: Lab, batch: Batch) -> BatchTally:
    [found] = await lab.engine.families.batches([batch.id])
    assert found is not None
    return found.tally


async def test_whoever_looks_meanwhile_misses_nothing_and_counts_nothing_twice(lab: Lab) -> None:
    batch, jobs = await filled(lab, 300)
    finishing, processing = lab.make(), [lab.make(), lab.make()]
    for session in (finishing, *processing):
        await session.open()
    done, over = 0, asyncio.Event()

    async def finish() -> None:
        nonlocal done
        for n in range(0, len(jobs), 5):
            changes = [lab.stamp(lab.end(job, Completed("1"), started_at=lab.now)) for job in jobs[n : n + 5]]
            await finishing.jobs.apply(changes, lab.now)
            done += 5
        over.set()

    async def fold(place: int) -> None:
        while not over.is_set():
            await processing[place].families.process_notes(lab.now)

    async def look() -> None:
        while not over.is_set():
            before = done
            found = await tally(lab, batch)
            assert found.total == 300
            assert before <= found.completed <= done + 5

    try:
        await asyncio.gather(finish(), fold(0), fold(1), look())
    finally:
        for session in (finishing, *processing):
            await session.close()
    assert await tally(lab, batch) == BatchTally(300, 300)
    [ended] = (await lab.engine.families.process_notes(lab.now)).over
    assert (ended.id, ended.tally, ended.ended_at) == (batch.id, BatchTally(300, 300), lab.now)


async def test_deltas_are_added_up_and_those_of_no_batch_dropped(lab: Lab, schema: str, connect: Connect) -> None:
    batch, jobs = await filled(lab, 10)
    await lab.apply(*(lab.end(job, Completed("1"), started_at=lab.now) for job in jobs[:4]))
    await lab.put(batch=lab.new_id())
    looking = await connect()
    # One for each commit, however many jobs.
    assert await looking.fetchval(f"SELECT count(*) FROM {schema}.batch_counts") == 3
    assert (await lab.engine.families.process_notes(lab.now)).over == ()
    assert await looking.fetchval(f"SELECT count(*) FROM {schema}.batch_counts") == 0
    assert await tally(lab, batch) == BatchTally(10, 4)


async def test_a_transaction_counts_with_its_commit(lab: Lab) -> None:
    batch, jobs = await filled(lab, 2)
    done = lab.end(jobs[0], Completed("1"), started_at=lab.now)
    with suppress(Undone):
        async with lab.transactions.transaction() as connection:
            assert isinstance(await apply(lab, connection, done), Applied)
            await insert(lab, connection, lab.job(batch=batch.id))
            raise Undone
    assert await tally(lab, batch) == BatchTally(2)
    async with lab.transactions.transaction() as connection:
        assert isinstance(await apply(lab, connection, done), Applied)
        await insert(lab, connection, lab.job(batch=batch.id), lab.job(batch=batch.id))
        assert await tally(lab, batch) == BatchTally(2)
    assert await tally(lab, batch) == BatchTally(4, 1)


async def test_a_batch_made_twice_at_once_is_one(lab: Lab) -> None:
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
    sessions = [lab.make(), lab.make()]
    for session in sessions:
        await session.open()
    try:
        for _ in range(10):
            jobs = [lab.job(batch=batch.id) for _ in range(3)]
            await asyncio.gather(*(session.jobs.insert(jobs, lab.now, batch) for session in sessions))
    finally:
        for session in sessions:
            await session.close()
    assert await tally(lab, batch) == BatchTally(30)


async def test_a_cancel_waits_for_a_job_that_is_being_added_and_reaches_it(
    lab: Lab, schema: str, connect: Connect
) -> None:
    watching = await connect()
    batch, _ = await filled(lab, 1, sealed=False)
    late = lab.job(batch=batch.id)
    async with lab.transactions.transaction() as connection:
        await insert(lab, connection, late)
        # What was counted before is added up meanwhile.
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        assert await watching.fetchval(f"SELECT total FROM {schema}.batches") == 1
        cancelling = asyncio.create_task(lab.engine.families.cancel_batch(batch.id, lab.now))
        await waits_for(watching, connection)
    found = await cancelling
    assert found is not None
    assert found.tally == BatchTally(2)
    await lab.process_notes()
    assert (await lab.get(late)).status is Status.CANCELLED


async def test_a_job_of_a_batch_that_is_being_cancelled_is_refused_for_now(
    lab: Lab, schema: str, connect: Connect
) -> None:
    batch, _ = await filled(lab, 1, sealed=False)
    late, other = lab.job(batch=batch.id), lab.job()
    cancelling = await connect()
    transaction = cancelling.transaction()
    await transaction.start()
    await cancelling.execute(f"SELECT 1 FROM {schema}.batches FOR UPDATE")
    await cancelling.execute(f"UPDATE {schema}.batches SET cancelled_at = 1, sealed = true")
    refused, stored = await lab.insert(late, other)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, Unavailable)
    assert isinstance(stored, Inserted)
    await transaction.commit()
    [refused] = await lab.insert(late)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, TransitionRefused)
