"""Batches that are cancelled as a whole: their jobs are stopped, and none is added."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from headrace.conformance.families.batches import Batched
from headrace.conformance.families.children import GIVES_UP
from headrace.conformance.lab import Lab, opened
from headrace.core.batch import Batch
from headrace.core.change import BatchTally
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.query import Filter
from headrace.core.status import Reason, Status
from headrace.engine import Duplicated, InsertAnswer, Inserted, Refused
from headrace.errors import TransitionRefused

__all__ = ["Cancelling"]


class Cancelling(Batched):
    """What happens to a batch that is cancelled."""

    @staticmethod
    async def cancelled(lab: Lab, batch: Batch, by: str | None = None) -> Batch:
        """Cancel a batch and return it; no job is notified yet."""
        found = await lab.engine.families.cancel_batch(batch.id, lab.now, by)
        assert found is not None
        return found

    async def test_a_cancelled_batch_takes_no_more_jobs(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 2, sealed=False)
        lab.later(1)
        found = await self.cancelled(lab, batch, "me")
        marked = replace(batch, sealed=True, tally=BatchTally(2), cancelled_at=lab.now, cancelled_by="me")
        assert found == marked
        holder = await lab.put("keyed", dedup="k")
        late, twin, other = lab.job(batch=batch.id), lab.job("keyed", dedup="k", batch=batch.id), lab.job("other")
        # Before its jobs are notified, and for every submitter: in the same step in which they would be stored.
        refused, duplicated, stored, again = await lab.insert(late, twin, other, jobs[0])
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, TransitionRefused)
        assert str(batch.id) in str(refused.error)
        assert isinstance(duplicated, Duplicated)
        assert duplicated.job.id == holder.id
        assert isinstance(stored, Inserted)
        assert isinstance(again, Inserted)
        assert await lab.gone(late)
        assert await self.found(lab, batch) == marked
        assert (await lab.engine.records.ledger()).accepted == 4

    async def test_a_submit_that_is_repeated_finds_its_jobs_and_adds_none(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 2, sealed=False)
        await self.cancelled(lab, batch)
        answers = await lab.engine.jobs.insert(jobs, lab.now, batch)
        assert [isinstance(answer, Inserted) for answer in answers] == [True] * 2
        answers = await lab.engine.jobs.insert([*jobs, lab.job(batch=batch.id)], lab.now, batch)
        assert [isinstance(answer, Refused) for answer in answers] == [True] * 3
        assert await self.tally(lab, batch) == BatchTally(2)

    async def test_its_jobs_are_stopped(self, lab: Lab) -> None:
        batch = self.batch(lab, sealed=False)
        worker, stranger = await lab.worker(), await lab.put("stranger")
        await lab.engine.jobs.insert([], lab.now, batch)
        running = await lab.running(worker, "a", batch=batch.id)
        child = await lab.put("child", parent=running.id, root=running.id)
        done = await lab.finish(await lab.running(worker, "b", batch=batch.id))
        failed = await lab.finish(await lab.running(worker, "c", batch=batch.id), GIVES_UP)
        below = await lab.put("below", parent=done.id, root=done.id)
        queued, deferred = await lab.put("d", batch=batch.id), await lab.put("e", batch=batch.id, delay=60)
        [waiting] = await lab.put_all(lab.job("f", waits=1, after=(running.id,), batch=batch.id))
        await self.cancelled(lab, batch, "me")
        lab.later(1)
        await lab.process_notes()
        asked = await lab.get(running)
        assert (asked.status, asked.cancel_requested_at) == (Status.RUNNING, lab.now)
        for job in (queued, deferred, waiting):
            ended = await lab.get(job)
            assert (ended.status, ended.reason, ended.finished_at) == (Status.CANCELLED, Reason.USER, lab.now)
            [event] = (await lab.engine.records.history(job.id)).events
            assert (event.verb, event.by) == ("cancel", "me")
        assert (await lab.get(child)).reason is Reason.PARENT
        for untouched in (done, failed, below, stranger):
            assert await lab.get(untouched) == untouched
        assert await self.tally(lab, batch) == BatchTally(6, 1, 1, 3)
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        await lab.finish(asked)
        [over] = (await lab.engine.families.process_notes(lab.now)).over
        assert (over.id, over.abandoned, over.tally.ended) == (batch.id, False, 6)
        assert await lab.process_notes() == []

    async def test_a_batch_without_live_jobs_is_over_with_it(self, lab: Lab) -> None:
        empty = self.batch(lab, sealed=False)
        await lab.engine.jobs.insert([], lab.now, empty)
        batch, [job] = await self.filled(lab, 1, sealed=False)
        await lab.cancel(job)
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        for one in (empty, batch):
            await self.cancelled(lab, one)
        assert {one.id for one in (await lab.engine.families.process_notes(lab.now)).over} == {empty.id, batch.id}

    async def test_many_are_stopped_a_page_at_a_time(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 25, sealed=False)
        other, _ = await self.filled(lab, 5)
        await self.cancelled(lab, batch)
        changes = await lab.process_notes(limit=10)
        assert sorted(change.job.id for change in changes) == sorted(job.id for job in jobs)
        assert await self.tally(lab, batch) == BatchTally(25, 0, 0, 25)
        assert await self.tally(lab, other) == BatchTally(5)

    async def test_a_job_that_is_pruned_between_two_pages_hides_no_other(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 6, sealed=False)
        await self.cancelled(lab, batch)
        ended = {change.job.id for change in (await lab.engine.families.process_notes(lab.now, 2)).changes}
        assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == len(ended) == 2
        ended |= {change.job.id for change in await lab.process_notes(limit=2)}
        assert ended == {job.id for job in jobs}

    async def test_what_is_over_is_not_cancelled(self, lab: Lab) -> None:
        assert await lab.engine.families.cancel_batch(lab.new_id(), lab.now) is None
        batch, [job] = await self.filled(lab, 1)
        failed = await lab.finish(await lab.start((await lab.claim(await lab.worker()))[0]), GIVES_UP)
        assert (await self.cancelled(lab, batch)).cancelled_at is None
        # Once a job is live again, it can be cancelled; and again when that was taken back.
        for by in ("me", "you"):
            lab.later(1)
            await lab.do(actions.retry(await lab.get(failed), lab.now))
            again = await self.cancelled(lab, batch, by)
            assert (again.cancelled_at, again.cancelled_by) == (lab.now, by)
            await lab.process_notes()
            assert (await lab.get(job)).status is Status.CANCELLED
        assert await self.cancelled(lab, batch, "nobody") == replace(again, tally=BatchTally(1, 0, 0, 1))

    async def test_an_abandoned_batch_can_be_cancelled_before_its_submitter_comes_back(self, lab: Lab) -> None:
        batch, [job] = await self.filled(lab, 1, sealed=False)
        await lab.cancel(job)
        lab.later(lab.rules.batch_silence)
        await lab.process_notes()
        assert (await self.cancelled(lab, batch)).cancelled_at == lab.now
        assert isinstance((await lab.insert(lab.job(batch=batch.id)))[0], Refused)

    async def test_no_job_comes_between_a_cancel_and_the_jobs_of_the_batch(self, lab: Lab) -> None:
        async with opened(lab.make() if self.durable else lab.engine.another_session()) as [other]:
            for n in range(10):
                batch, first = await self.filled(lab, 3, sealed=False)
                chunks = [[lab.job(f"t{n}", batch=batch.id) for _ in range(5)] for _ in range(4)]

                async def add(chunks: list[list[Job]] = chunks) -> list[InsertAnswer]:
                    return [answer for chunk in chunks for answer in await other.jobs.insert(chunk, lab.now)]

                answers, _ = await asyncio.gather(add(), self.cancelled(lab, batch))
                await lab.process_notes()
                stored = sum(isinstance(answer, Inserted) for answer in answers)
                total = len(first) + stored
                assert await self.tally(lab, batch) == BatchTally(total, 0, 0, total)
                page = await lab.engine.records.find(Filter(batch=batch.id), lab.now)
                assert [job.status for job in page.items] == [Status.CANCELLED] * total

    async def test_a_job_hears_of_its_parent_although_its_cancelled_batch_is_gone(self, lab: Lab) -> None:
        """The batch is pruned after it was over, one of its jobs retried, and the batch cancelled once more."""
        batch = self.batch(lab)
        parent = await lab.put("parent")
        [answer] = await lab.engine.jobs.insert([lab.job(batch=batch.id, after=(parent.id,), waits=1)], lab.now, batch)
        assert isinstance(answer, Inserted)
        await self.cancelled(lab, batch)
        processed = await lab.engine.families.process_notes(lab.now)
        assert [over.id for over in processed.over] == [batch.id]
        await lab.engine.families.settle(batch.id, lab.now)
        retried = await lab.do(actions.retry(await lab.get(answer.job), lab.now))
        assert retried.status is Status.WAITING
        await lab.cancel(parent)
        await self.cancelled(lab, batch)
        await lab.engine.jobs.delete(dict.fromkeys((Status.CANCELLED, Status.FAILED), lab.now))
        assert await lab.engine.families.batches([batch.id]) == [None]
        await lab.engine.families.process_notes(lab.now)
        assert (await lab.get(retried)).reason is Reason.PARENT
