"""Relations: what is written with jobs that belong to others, in few statements, and within a user's commit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import apsw
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.batch import Batch
from headrace.core.change import Applied, BatchTally, Change
from headrace.core.job import Job
from headrace.core.status import Status, Verb
from headrace.engine import Duplicated, Inserted, Refused
from headrace.errors import JobNotFound
from tests.engines.sqlite.relations import after, counted


async def filled(lab: Lab, n: int) -> tuple[Batch, list[Job]]:
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now, sealed=True)
    answers = await lab.engine.jobs.insert([lab.job(batch=batch.id) for _ in range(n)], lab.now, batch)
    return batch, [answer.job for answer in answers if isinstance(answer, Inserted)]


async def tally(lab: Lab, batch: Batch) -> BatchTally:
    [found] = await lab.engine.families.batches([batch.id])
    assert found is not None
    return found.tally


async def within(lab: Lab, connection: apsw.Connection, *jobs: Job) -> list[Any]:
    statements = await lab.transactions.inserting(jobs, lab.now)
    return list(lab.transactions.enlist(connection).run_blocking(statements))


async def apply(lab: Lab, connection: apsw.Connection, change: Change) -> Any:
    return lab.transactions.enlist(connection).run_blocking(await lab.transactions.applying(change, lab.now))


# Statements


async def test_jobs_that_belong_to_nobody_are_one_statement(lab: Lab) -> None:
    await lab.put()
    async with counted(lab) as seen:
        await lab.put_all(*(lab.job() for _ in range(100)))
    assert len(seen) == 1


async def test_many_children_cost_as_many_statements_as_one(lab: Lab) -> None:
    parent = await lab.put("child")
    told = []
    for n in (1, 500):
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        jobs = [after(lab, parent, parent=parent.id, root=parent.id, batch=batch.id) for _ in range(n)]
        async with counted(lab) as seen:
            await lab.engine.jobs.insert(jobs, lab.now, batch)
        async with counted(lab) as after_that:
            await lab.process_notes()
        told.append((len(seen), len(after_that)))
    assert told[0] == told[1]


async def test_what_starts_or_reports_opens_no_transaction_for_its_batch(lab: Lab) -> None:
    await filled(lab, 3)
    held = await lab.claim(await lab.worker())
    async with counted(lab) as seen:
        await lab.engine.jobs.apply(
            [Change(verb=Verb.START, rev=job.rev, job=replace(job, rev=9)) for job in held], lab.now
        )
    assert len(seen) == 1


async def test_nothing_to_tell_is_one_statement(lab: Lab) -> None:
    await filled(lab, 3)
    await lab.put()
    async with counted(lab) as seen:
        await lab.engine.families.process_notes(lab.now)
    assert len(seen) == 1
    assert not seen[0].startswith("BEGIN")


# Judging


async def test_a_job_that_was_refused_holds_no_key_and_is_no_parent(lab: Lab) -> None:
    nobody = lab.job()
    stranger = after(lab, nobody, dedup="k")
    second = lab.job("child", dedup="k")
    third = lab.job("child", dedup="k")
    of_stranger, of_second, of_third = after(lab, stranger), after(lab, second), after(lab, third)
    answers = await lab.insert(stranger, second, third, of_stranger, of_second, of_third)
    assert [type(one) for one in answers] == [Refused, Inserted, Duplicated, Refused, Inserted, Refused]
    assert (await lab.engine.records.ledger()).accepted == 2


async def test_a_job_may_be_refused_and_then_accepted_in_one_call(lab: Lab) -> None:
    parent = lab.job()
    child = after(lab, parent)
    assert [type(one) for one in await lab.insert(child, parent, child, child)] == [Refused, *[Inserted] * 3]


async def test_waiting_twice_for_the_same_job_is_waiting_for_it_once(lab: Lab) -> None:
    parent = await lab.put("a")
    [child] = await lab.put_all(after(lab, parent, parent))
    await lab.process_notes()
    await lab.cancel(parent)
    assert [change.job.id for change in await lab.process_notes()] == [child.id]


async def test_a_job_that_went_far_elsewhere_counts_once(lab: Lab) -> None:
    ended = await lab.finish(await lab.running(await lab.worker()))
    batch, _ = await filled(lab, 1)
    moved = replace(ended, id=lab.new_id(), spec=replace(ended.spec, batch=batch.id))
    child = after(lab, moved)
    assert [type(one) for one in await lab.insert(moved, child)] == [Inserted, Inserted]
    assert await tally(lab, batch) == BatchTally(2, 1)
    assert [change.job.id for change in await lab.process_notes()] == [child.id]


# Within a transaction of the user's


async def test_within_a_transaction_families_are_judged_and_written(lab: Lab) -> None:
    cancelled, parent = await lab.cancel(await lab.put("a")), await lab.put("b")
    batch, _ = await filled(lab, 1)
    child, nobody = after(lab, parent, batch=batch.id), lab.job()
    async with lab.transactions.transaction() as connection:
        answers = await within(
            lab,
            connection,
            child,
            lab.job(parent=cancelled.id, root=cancelled.id),
            after(lab, nobody),
            after(lab, child),
        )
    assert [type(one) for one in answers] == [Inserted, Refused, Refused, Inserted]
    assert isinstance(answers[2].error, JobNotFound)
    assert await tally(lab, batch) == BatchTally(2)
    # First the one waited for has not ended; then it has, and in turn those go on that wait for the child.
    assert await lab.process_notes() == []
    await lab.cancel(parent)
    assert [change.job.id for change in await lab.process_notes()] == [child.id, answers[3].job.id]
    assert await tally(lab, batch) == BatchTally(2, 0, 0, 1)


async def test_what_is_rolled_back_ties_nobody_and_counts_nowhere(lab: Lab) -> None:
    worker = await lab.worker()
    parent = await lab.running(worker, "a")
    batch, _ = await filled(lab, 1)
    with suppress(ZeroDivisionError):
        async with lab.transactions.transaction() as connection:
            await within(lab, connection, after(lab, parent, batch=batch.id))
            raise ZeroDivisionError
    assert await tally(lab, batch) == BatchTally(1)
    [verdict] = await lab.apply(lab.end(parent, Completed()))
    assert isinstance(verdict, Applied)
    assert not verdict.noted
    assert await lab.process_notes() == []


async def test_within_a_transaction_an_end_is_noted_and_counted_if_it_is_committed(lab: Lab) -> None:
    worker = await lab.worker()
    batch, _ = await filled(lab, 2)
    one, two = [await lab.start(job) for job in await lab.claim(worker)]
    child = (await lab.put_all(after(lab, one)))[0]
    await lab.process_notes()
    change = lab.stamp(lab.end(one, Completed("1")))
    with suppress(ZeroDivisionError):
        async with lab.transactions.transaction() as connection:
            assert (await apply(lab, connection, change)).noted
            raise ZeroDivisionError
    assert await lab.process_notes() == []
    assert await tally(lab, batch) == BatchTally(2)
    async with lab.transactions.transaction() as connection:
        assert await apply(lab, connection, change) == Applied(change.job, noted=True)
        alone = lab.stamp(lab.end(two, Completed("1")))
        assert await apply(lab, connection, alone) == Applied(alone.job)
        # Said again, it is neither noted nor counted again.
        assert await apply(lab, connection, change) == Applied(change.job)
    assert await tally(lab, batch) == BatchTally(2, 2)
    assert [told.job.id for told in await lab.process_notes()] == [child.id]
    assert (await lab.get(child)).status is Status.QUEUED
