"""Retention of single jobs: which ended jobs ``delete`` removes, and which it leaves."""

from __future__ import annotations

from datetime import datetime

import pytest

from headrace.conformance.lab import Choices, Lab, Part
from headrace.conformance.transactions import insert
from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.core.lifecycle.actions import discard
from headrace.core.lifecycle.execution import release
from headrace.core.lifecycle.retention import Kept, is_past
from headrace.core.status import ENDED, Status
from headrace.engine import Inserted

__all__ = ["Retaining"]

HOUR = Kept(completed=3600, failed=3600, cancelled=3600)


async def delete(lab: Lab, kept: float = 100, limit: int = 1000, since: datetime | None = None) -> int:
    """Prune as of now, where jobs are kept for so many seconds."""
    done = None if since is None else dict.fromkeys(ENDED, since)
    return await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.at(-kept)), limit, now=lab.now, since=done)


class Retaining(Part):
    """What ``delete`` promises about jobs with a retention of their own."""

    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_a_job_is_kept_for_as_long_as_it_says(self, lab: Lab, status: Status) -> None:
        own = await lab.stand(status, "own", retention=HOUR)
        short = await lab.stand(status, "short", retention=Kept(completed=9, failed=9, cancelled=9))
        plain = await lab.stand(status, "plain")
        assert (await lab.get(own)).retention == HOUR
        lab.later(8)
        assert await delete(lab) == 0
        lab.later(1)
        assert await delete(lab) == 1
        assert await lab.gone(short)
        lab.later(91)
        assert await delete(lab) == 1
        assert await lab.gone(plain)
        lab.later(3499)
        assert await delete(lab) == 0
        lab.later(1)
        assert [await delete(lab), await delete(lab)] == [1, 0]
        assert await lab.gone(own)
        assert (await lab.engine.records.ledger()).unaccounted == 0

    async def test_what_it_does_not_say_is_as_for_all(self, lab: Lab) -> None:
        failed_only = Kept(failed=3600)
        jobs = {status: await lab.stand(status, status.value, retention=failed_only) for status in sorted(ENDED)}
        lab.later(100)
        assert await delete(lab) == 2
        assert [await lab.gone(jobs[status]) for status in sorted(ENDED)] == [True, True, False]
        discarded = await lab.do(discard(await lab.get(jobs[Status.FAILED]), lab.now))
        assert await delete(lab) == 1, "it is cancelled now, and that is kept as all are"
        assert await lab.gone(discarded)

    async def test_without_a_moment_jobs_with_their_own_are_left(self, lab: Lab) -> None:
        await lab.stand(Status.COMPLETED, "own", retention=Kept(completed=0))
        lab.later(100)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 0
        assert await lab.engine.jobs.delete({}, now=lab.now) == 0
        assert await delete(lab) == 1

    async def test_no_more_than_the_limit_of_both_kinds(self, lab: Lab) -> None:
        for n in range(6):
            await lab.stand(Status.COMPLETED, f"t{n}", retention=Kept(completed=1) if n % 2 else None)
        lab.later(200)
        assert [await delete(lab, limit=4) for _ in range(3)] == [4, 2, 0]

    async def test_what_was_looked_at_need_not_be_looked_at_again(self, lab: Lab) -> None:
        """But jobs with their own retention are found whenever that is over."""
        old = await lab.stand(Status.COMPLETED, "old")
        own = await lab.stand(Status.COMPLETED, "own", retention=Kept(completed=250))
        lab.later(100)
        young = await lab.stand(Status.COMPLETED, "young")
        lab.later(100)
        assert await delete(lab, since=lab.at(-150)) in (1, 2), "an engine may look at all"
        assert await lab.gone(young)
        lab.later(50)
        await delete(lab, since=lab.at(-110))
        assert await lab.gone(own)
        await delete(lab)
        assert await lab.gone(old)

    async def test_one_that_others_need_is_kept(self, lab: Lab) -> None:
        worker, soon = await lab.worker(), Kept(completed=1)
        parent = await lab.running(worker, "parent")
        first = await lab.finish(await lab.running(worker, "first", retention=soon))
        child = await lab.finish(await lab.running(worker, "child", parent=parent.id, root=parent.id, retention=soon))
        waits = await lab.put("waits", waits=1, after=(first.id,))
        lab.later(2)
        assert await delete(lab) == 0, "a live job waited for the one, and the parent of the other may look for it"
        await lab.finish(parent)
        await lab.process_notes()
        assert await delete(lab) == 1
        assert await lab.gone(child)
        await lab.cancel(await lab.get(waits))
        assert await delete(lab) == 1
        assert await lab.gone(first)

    async def test_it_counts_for_every_way_into_the_store(self, lab: Lab) -> None:
        soon = Kept(cancelled=1)
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        member = lab.job("member", batch=batch.id, retention=soon)
        first, second = lab.job("first", retention=soon), lab.job("second", retention=soon, dedup="key")
        third = lab.job("third", retention=soon, waits=1, after=(first.id,))
        assert all(isinstance(answer, Inserted) for answer in await lab.engine.jobs.insert([member], lab.now, batch))
        await lab.put_all(first, third)
        await lab.put_all(lab.job("plain"), second)
        again = await lab.insert(second)
        assert isinstance(again[0], Inserted), "the same id: the same job"
        jobs = [await lab.get(job) for job in (member, first, second, third)]
        if lab.engine.transactions is not None:
            within = lab.job("within", retention=soon)
            async with lab.transactions.transaction() as connection:
                await insert(lab, connection, within)
            jobs.append(await lab.get(within))
        follows = lab.job("follows", retention=soon)
        assert await lab.engine.families.settle(batch.id, lab.now, [follows]) is None
        jobs.append(await lab.get(follows))
        for job in (jobs[0], jobs[3], *jobs[1:3], *jobs[4:]):
            await lab.cancel(await lab.get(job))
        await lab.process_notes()
        lab.later(1)
        assert await delete(lab) == len(jobs)
        assert [await lab.gone(job) for job in jobs] == [True] * len(jobs)

    @pytest.mark.parametrize("seed", range(3))
    async def test_it_is_what_the_core_says(self, lab: Lab, seed: int) -> None:
        choose, jobs = Choices(seed), list[Job]()
        for n in range(30):
            spans = {status.value: choose(None, 0.0, 20.0, 0.1, 3600.0) for status in sorted(ENDED)}
            retention = choose(None, Kept(**spans))
            jobs.append(await lab.stand(choose(*sorted(ENDED)), f"t{n % 3}", retention=retention))
            lab.later(choose(0.0, 0.000001, 3.0))
        for _ in range(6):
            lab.later(choose(1.0, 10.0, 0.1))
            before = {status: lab.at(-choose(5.0, 30.0)) for status in sorted(ENDED)}
            gone = {job.id for job in jobs if is_past(job, before, lab.now)}
            assert await lab.engine.jobs.delete(before, now=lab.now) == len(gone)
            for job in jobs:
                assert await lab.gone(job) is (job.id in gone)
            jobs = [job for job in jobs if job.id not in gone]

    async def test_a_turn_goes_with_a_job_that_goes_early(self, lab: Lab) -> None:
        """Also if the job is deleted earlier than others would be."""
        worker, soon = await lab.worker(), Kept(completed=1)
        back = await lab.put(queue="right", concurrency_key="a")
        lab.later(1)
        await lab.put(queue="right", concurrency_key="b")
        lab.later(1)
        [held] = await lab.claim(worker, 1, queues=("right",))
        await lab.put(queue="left", concurrency_key="a", retention=soon)
        [left] = await lab.claim(worker, 1, queues=("left",))
        await lab.finish(await lab.start(left))
        lab.later(5)
        assert await delete(lab, kept=1000) == 1
        # It comes back with its old arrival, which is before the other's.
        await lab.do(release(held, lab.now))
        [first] = await lab.claim(worker, 1, queues=("right",))
        assert first.id == back.id, "its key has had no turn that is still known"
