"""Submits that meet another job with their dedup key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from headrace.core.batch import Batch
from headrace.core.change import Change, Conflict, Verdict
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Status
from headrace.engine import Duplicated, Engine, Inserted
from headrace.errors import Duplicate, Unavailable
from headrace.runtime.writes.writer import Writer
from tests.support.faults import Instead, LosesReplies
from tests.support.until import until
from tests.support.world import World, world


def job(made: World, n: int = 0, *, delay: float = 60, **spec: Any) -> Job:
    """A submit that replaces, to run later."""
    fields = Spec(created_at=made.now, **{"task": "work", "dedup": "k", "on_duplicate": "replace"} | spec)
    due = made.now + timedelta(seconds=delay)
    return submit(made.host.dice.new_id(made.now), fields, f'{{"n":{n}}}', made.now, available_at=due)


async def applied(made: World, holder: Job) -> list[str]:
    """The ids of the submits that were merged into a job, in order."""
    events = (await made.engine.records.history(holder.id)).events
    return [event.details["submit"] for event in events if event.details]


async def test_many_at_once_are_merged_one_after_the_other_each_with_one_write() -> None:
    async with world() as made:
        writes = 0
        apply = made.engine.jobs.apply

        async def counting(changes: Sequence[Change], now: datetime) -> list[Verdict]:
            nonlocal writes
            writes += 1
            return await apply(changes, now)

        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, apply=counting))
        writer = Writer(cast("Engine", engine), made.host, timeout=30.0)
        jobs = [job(made, n) for n in range(200)]
        answers = await asyncio.gather(*map(writer.inserts.insert, jobs))
        await writer.close()
        assert isinstance(answers[0], Inserted)
        assert all(isinstance(answer, Duplicated) and answer.replaced for answer in answers[1:])
        assert await applied(made, jobs[0]) == [str(one.id) for one in jobs[1:]], "in the order in which they came"
        assert (await made.job(jobs[0])).payload == {"n": 199}
        assert writes == 199


async def test_of_those_submitted_together_the_last_counts() -> None:
    async with world() as made:
        jobs = [job(made, n, dedup="ab"[n % 2]) for n in range(20)]
        answers = await made.writer.inserts.insert_many(jobs)
        assert [type(answer) for answer in answers] == [Inserted] * 2 + [Duplicated] * 18
        assert (await made.job(jobs[0])).payload == {"n": 18}
        assert (await made.job(jobs[1])).payload == {"n": 19}
        again = await made.writer.inserts.insert_many(jobs)
        assert [answer.job.id for answer in again] == [answer.job.id for answer in answers]
        assert len(await applied(made, jobs[0])) == 9, "a repeat changes nothing"


async def test_a_batch_has_the_jobs_that_it_stored() -> None:
    async with world() as made:
        held = await made.writer.inserts.insert(job(made, 1))
        batch = Batch(id=made.host.dice.new_id(made.now), created_at=made.now, touched_at=made.now)
        members = [job(made, 2, batch=batch.id), job(made, 3, batch=batch.id, dedup="other")]
        first, second = await made.writer.inserts.insert_batch(batch, members)
        assert isinstance(first, Duplicated)
        assert (first.replaced, first.job.id, first.job.payload) == (True, held.job.id, {"n": 2})
        assert isinstance(second, Inserted)
        [found] = await made.engine.families.batches([batch.id])
        assert found is not None
        assert found.tally.total == 1


@pytest.mark.parametrize("every", [1, 2, 3])
async def test_replies_that_are_lost_merge_nothing_twice(every: int) -> None:
    async with world() as made:
        engine = LosesReplies(made.engine, {"insert": every + 1, "apply": every + 1})
        writer = Writer(cast("Engine", engine), made.host, timeout=1000.0)
        jobs = [job(made, n) for n in range(30)]
        answers = [await writer.inserts.insert(one) for one in jobs[:10]]
        answers += await asyncio.gather(*map(writer.inserts.insert, jobs[10:]))
        await writer.close()
        assert engine.dropped["apply"] > 0
        assert {answer.job.id for answer in answers} == {jobs[0].id}
        merged = await applied(made, jobs[0])
        assert sorted(merged) == sorted(str(one.id) for one in jobs[1:])
        last = next(one for one in jobs if str(one.id) == merged[-1])
        assert (await made.job(jobs[0])).payload == last.payload


async def test_a_reply_that_is_lost_while_another_replaces_is_not_applied_over_it() -> None:
    async with world() as made:
        holder = (await made.writer.inserts.insert(job(made, 0))).job
        other, dropped = job(made, 2), list[Change]()
        apply = made.engine.jobs.apply

        async def losing(changes: Sequence[Change], now: datetime) -> list[Verdict]:
            verdicts = await apply(changes, now)
            if not dropped:
                dropped.extend(changes)
                assert isinstance(await made.writer.inserts.insert(other), Duplicated)
                raise Unavailable("the reply was lost", outcome="unknown")
            return verdicts

        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, apply=losing))
        writer = Writer(cast("Engine", engine), made.host, timeout=30.0)
        answer = await writer.inserts.insert(one := job(made, 1))
        await writer.close()
        assert isinstance(answer, Duplicated)
        assert answer.replaced
        assert await applied(made, holder) == [str(one.id), str(other.id)]
        assert (await made.job(holder)).payload == {"n": 2}, "the newer one stays"


async def test_a_repeat_of_one_that_is_still_on_its_way_is_not_applied_over_a_newer_one() -> None:
    async with world() as made:
        holder = (await made.writer.inserts.insert(job(made, 0))).job
        one, other = job(made, 1), job(made, 2)
        inserts, applies, going = 0, 0, asyncio.Event()
        insert, apply = made.engine.jobs.insert, made.engine.jobs.apply

        async def counting(*args: Any, **options: Any) -> Any:
            nonlocal inserts
            answers = await insert(*args, **options)
            inserts += 1
            return answers

        async def slow(changes: Sequence[Change], now: datetime) -> list[Verdict]:
            nonlocal applies
            applies += 1
            await going.wait()
            return await apply(changes, now)

        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, insert=counting, apply=slow))
        writer = Writer(cast("Engine", engine), made.host, timeout=30.0)
        first = asyncio.create_task(writer.inserts.insert(one))
        await until(lambda: applies == 1)
        first.cancel()  # whoever waited has lost patience, and the change is on its way
        await asyncio.wait([first])
        newer = asyncio.create_task(writer.inserts.insert(other))
        await until(lambda: inserts == 2)
        again = asyncio.create_task(writer.inserts.insert(one))
        await until(lambda: inserts == 3)
        for _ in range(100):  # until it waits for its turn
            await asyncio.sleep(0)
        going.set()
        answers = await asyncio.gather(newer, again)
        await writer.close()
        assert all(isinstance(answer, Duplicated) and answer.replaced for answer in answers)
        assert await applied(made, holder) == [str(one.id), str(other.id)]
        assert (await made.job(holder)).payload == {"n": 2}, "the newer one stays"


async def test_a_holder_in_somebodys_transaction_is_waited_for_but_not_for_ever() -> None:
    async with world() as made:
        await made.writer.inserts.insert(job(made, 0))
        looks = 0
        apply = made.engine.jobs.apply

        async def locked(changes: Sequence[Change], now: datetime) -> list[Verdict]:
            nonlocal looks
            looks += 1
            if looks % 4:
                found = await made.engine.jobs.get([change.job.id for change in changes])
                return [Conflict(one) for one in found if one is not None]
            return await apply(changes, now)

        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, apply=locked))
        patient, hasty = (Writer(cast("Engine", engine), made.host, timeout=seconds) for seconds in (30.0, 0.0))
        answer = await patient.inserts.insert(job(made, 1))
        assert isinstance(answer, Duplicated)
        assert answer.replaced
        with pytest.raises(Unavailable, match="transaction that is still open") as caught:
            await hasty.inserts.insert(new := job(made, 2))
        assert caught.value.ids == (new.id,)
        assert (await made.job(answer.job)).payload == {"n": 1}
        await patient.close()
        await hasty.close()


async def test_a_store_that_is_away_names_the_submit() -> None:
    async with world() as made:
        await made.writer.inserts.insert(job(made, 0))

        async def away(changes: Sequence[Change], now: datetime) -> list[Verdict]:
            raise Unavailable("the store is away")

        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, apply=away))
        writer = Writer(cast("Engine", engine), made.host, timeout=0.0)
        with pytest.raises(Unavailable) as caught:
            await writer.inserts.insert(new := job(made, 1))
        assert (caught.value.ids, caught.value.outcome) == ((new.id,), "refused")
        with pytest.raises(Unavailable) as caught:
            await writer.inserts.insert_many([job(made, 2), new, job(made, 3, dedup="other")])
        assert caught.value.outcome == "refused"
        await writer.close()


async def test_companions_come_with_a_job_whose_key_is_free_by_now() -> None:
    async with world() as made:
        player = await made.worker()
        await made.writer.inserts.insert(job(made, 0, delay=0, on_duplicate="return", dedup_for=10.0))
        await player.complete(await player.run())
        new, companion = job(made, 1, on_duplicate="return"), job(made, 2, dedup=None)
        assert isinstance(await made.writer.inserts.insert(new, [companion]), Duplicated)
        assert await made.engine.jobs.get([companion.id]) == [None]
        made.clock.advance(10)
        assert isinstance(await made.writer.inserts.insert(new, [companion]), Inserted)
        assert (await made.job(companion)).status is Status.SCHEDULED


async def test_a_retry_by_hand_takes_a_key_whose_period_is_over() -> None:
    async with world() as made:
        player = await made.worker()
        old = (await made.writer.inserts.insert(job(made, 0, on_duplicate="return"))).job
        await made.writer.decide(old.id, lambda found, now: actions.cancel(found, now, made.engine.rules))
        holder = (await made.writer.inserts.insert(job(made, 1, delay=0, on_duplicate="return", dedup_for=10.0))).job
        await player.complete(await player.run())
        with pytest.raises(Duplicate) as caught:
            await made.writer.decide(old.id, lambda found, now: actions.retry(found, now))
        assert caught.value.job.id == holder.id
        made.clock.advance(10)
        assert (
            await made.writer.decide(old.id, lambda found, now: actions.retry(found, now))
        ).status is Status.SCHEDULED
        answer = await made.writer.inserts.insert(job(made, 2, on_duplicate="return"))
        assert isinstance(answer, Duplicated)
        assert answer.job.id == old.id
