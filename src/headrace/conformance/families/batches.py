"""Batches: jobs that are counted together."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.families.children import GIVES_UP
from headrace.conformance.lab import OOPS, Lab, Part, opened
from headrace.core.attempt import Completed, Failed
from headrace.core.batch import Batch, BatchCallback
from headrace.core.change import BatchTally
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions
from headrace.core.query import Filter
from headrace.core.status import ENDED, Status
from headrace.engine import Duplicated, Inserted, Refused
from headrace.errors import ConfigError, JobNotFound

__all__ = ["Batched", "Batches"]


class Batched(Part):
    """Helpers for tests of batches."""

    @staticmethod
    def batch(lab: Lab, **fields: Any) -> Batch:
        """Return a batch not yet stored."""
        made: dict[str, Any] = {"id": lab.new_id(), "created_at": lab.now, "touched_at": lab.now, "sealed": True}
        return Batch(**made | fields)

    async def filled(self, lab: Lab, n: int, task: str = "work", **fields: Any) -> tuple[Batch, list[Job]]:
        """Store a batch of n jobs in one write, and return it."""
        batch = self.batch(lab, **fields)
        jobs = list[Job]()
        for answer in await lab.engine.jobs.insert([lab.job(task, batch=batch.id) for _ in range(n)], lab.now, batch):
            assert isinstance(answer, Inserted)
            jobs.append(answer.job)
        return batch, jobs

    @staticmethod
    async def found(lab: Lab, batch: Batch) -> Batch:
        """Return the batch as it is stored."""
        [found] = await lab.engine.families.batches([batch.id])
        assert found is not None
        return found

    async def tally(self, lab: Lab, batch: Batch) -> BatchTally:
        """Return its tally."""
        return (await self.found(lab, batch)).tally


class Batches(Batched):
    """What is counted, and when a batch ends."""

    async def test_a_batch_comes_with_its_jobs(self, lab: Lab) -> None:
        spec = Spec(task="report", created_at=lab.now, tags=("x",))
        call = BatchCallback(id=lab.new_id(), spec=spec, payload_text='{"a":1}', delay=2.5)
        batch, jobs = await self.filled(lab, 3, on_complete=call, on_failure=replace(call, id=lab.new_id()))
        missing = lab.new_id()
        assert await lab.engine.families.batches([missing, batch.id]) == [None, replace(batch, tally=BatchTally(3))]
        page = await lab.engine.records.find(Filter(batch=batch.id), lab.now)
        assert [job.id for job in page.items] == [job.id for job in reversed(jobs)]

    async def test_batches_are_found_newest_first(self, lab: Lab) -> None:
        assert (await lab.engine.families.find_batches()).items == ()
        made = list[Batch]()
        for n in (2, 0, 1):
            for _ in range(2):  # of one moment, so ordered by id
                batch, _ = await self.filled(lab, n)
                made.append(replace(batch, tally=BatchTally(n)))
            lab.later(1)
        made.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        found, cursor = list[Batch](), None
        while True:
            page = await lab.engine.families.find_batches(4, cursor)
            found += page.items
            if (cursor := page.cursor) is None:
                break
        assert found == made
        whole = await lab.engine.families.find_batches(6)
        assert (list(whole.items), whole.cursor) == (made, None)
        with pytest.raises(ConfigError):
            await lab.engine.families.find_batches(4, "elsewhere")

    async def test_batches_of_a_customer_are_found_newest_first(self, lab: Lab) -> None:
        made = list[Batch]()
        for customer in ("ours", None, "theirs", "ours", "OURS", "ours"):
            batch, _ = await self.filled(lab, 1, customer=customer)
            made.append(replace(batch, tally=BatchTally(1)))
            lab.later(1)
        ours = [one for one in reversed(made) if one.customer == "ours"]
        first = await lab.engine.families.find_batches(2, customer="ours")
        second = await lab.engine.families.find_batches(2, first.cursor, "ours")
        assert ([*first.items, *second.items], second.cursor) == (ours, None)
        assert (await lab.engine.families.find_batches(customer="nobody")).items == ()

    async def test_a_repeated_insert_counts_nothing_twice(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 3)
        await lab.engine.jobs.insert(jobs[:2], lab.now, batch)
        another = lab.job(batch=batch.id)
        await lab.engine.jobs.insert([jobs[0], another], lab.now, replace(batch, sealed=False))
        assert await self.found(lab, batch) == replace(batch, tally=BatchTally(4))

    async def test_a_duplicate_is_no_member(self, lab: Lab) -> None:
        await lab.put("a", dedup="k")
        batch = self.batch(lab)
        one, two = lab.job("a", dedup="k", batch=batch.id), lab.job("b", batch=batch.id)
        answers = await lab.engine.jobs.insert([one, two], lab.now, batch)
        assert isinstance(answers[0], Duplicated)
        assert await self.tally(lab, batch) == BatchTally(1)

    async def test_with_a_batch_it_is_all_or_nothing(self, lab: Lab) -> None:
        batch, missing = self.batch(lab), lab.job("missing")
        fine = [lab.job("a", batch=batch.id), lab.job("b", dedup="k", batch=batch.id)]
        stranger = lab.job("c", waits=1, after=(missing.id,), batch=batch.id)
        answers = await lab.engine.jobs.insert([fine[0], stranger, fine[1]], lab.now, batch)
        for answer in answers:
            assert isinstance(answer, Refused)
            assert isinstance(answer.error, JobNotFound)
        assert await lab.engine.families.batches([batch.id]) == [None]
        assert await lab.engine.jobs.get([job.id for job in (*fine, stranger)]) == [None] * 3
        await lab.put_all(missing)
        again = await lab.engine.jobs.insert([fine[0], stranger, fine[1]], lab.now, batch)
        assert all(isinstance(answer, Inserted) for answer in again)
        assert await self.tally(lab, batch) == BatchTally(3)

    async def test_the_batch_of_a_cancelled_job_is_not_made(self, lab: Lab) -> None:
        parent = await lab.cancel(await lab.running(await lab.worker(), "parent"))
        batch = self.batch(lab)
        members = [lab.job("child", batch=batch.id, parent=parent.id, root=parent.id) for _ in range(3)]
        answers = await lab.engine.jobs.insert(members, lab.now, batch)
        assert [isinstance(answer, Refused) for answer in answers] == [True] * 3
        assert await lab.engine.families.batches([batch.id]) == [None]

    async def test_every_end_is_counted(self, lab: Lab, worker: UUID) -> None:
        batch, jobs = await self.filled(lab, 6)
        other, _ = await self.filled(lab, 1, task="other")
        running = [await lab.start(job) for job in await lab.claim(worker, 5, tasks=("work",))]
        await lab.apply(*(lab.end(job, Completed("1")) for job in running[:2]))
        await lab.apply(lab.end(running[2], GIVES_UP), lab.end(running[3], Failed(error=OOPS)))
        await lab.cancel(running[4])
        await lab.cancel(jobs[5])
        assert await self.tally(lab, batch) == BatchTally(6, 2, 1, 1)
        assert await self.tally(lab, other) == BatchTally(1)
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        assert await self.tally(lab, batch) == BatchTally(6, 2, 1, 1)

    async def test_a_start_that_rides_with_the_finish_counts_once(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 2)
        jobs = await lab.claim(await lab.worker())
        changes = [lab.stamp(lab.end(job, Completed("1"), started_at=lab.now)) for job in jobs]
        await lab.engine.jobs.apply(changes, lab.now)
        # Repeated, as after a lost reply; and by a worker that is too late.
        await lab.engine.jobs.apply(changes, lab.now)
        await lab.apply(*(lab.end(job, GIVES_UP, started_at=lab.now) for job in jobs))
        assert await self.tally(lab, batch) == BatchTally(2, 2)

    async def test_what_is_done_to_ended_jobs_is_counted(self, lab: Lab, worker: UUID) -> None:
        batch, _ = await self.filled(lab, 3)
        one, two, three = [await lab.start(job) for job in await lab.claim(worker)]
        failed = await lab.finish(one, GIVES_UP)
        failed_too = await lab.finish(two, GIVES_UP)
        done = await lab.finish(three)
        await lab.do(actions.retry(failed, lab.now))
        assert await self.tally(lab, batch) == BatchTally(3, 1, 1)
        await lab.do(actions.resolve(failed_too, lab.now, result_text="1"))
        assert await self.tally(lab, batch) == BatchTally(3, 2)
        await lab.do(actions.discard(done, lab.now))
        assert await self.tally(lab, batch) == BatchTally(3, 1, 0, 1)

    async def test_a_batch_is_over_when_it_is_sealed_and_all_have_ended(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 2, sealed=False)
        for job in jobs:
            await lab.cancel(job)
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        lab.later(1)
        assert await lab.engine.families.seal(batch.id, lab.now)
        lab.later(1)
        processed = await lab.engine.families.process_notes(lab.now)
        [over] = processed.over
        assert (over.id, over.sealed, over.abandoned, over.tally) == (batch.id, True, False, BatchTally(2, 0, 0, 2))
        assert over.ended_at == lab.now
        # It is returned until its follow-up is settled.
        lab.later(1)
        assert [one.id for one in (await lab.engine.families.process_notes(lab.now)).over] == [batch.id]
        await lab.engine.families.settle(batch.id, lab.now)
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        assert await self.found(lab, batch) == replace(over, settled=True)
        # Sealed again, or a job retried: it ends once.
        assert await lab.engine.families.seal(batch.id, lab.now)
        await lab.do(actions.retry(await lab.get(jobs[0]), lab.now))
        await lab.cancel(await lab.get(jobs[0]))
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        assert not await lab.engine.families.seal(lab.new_id(), lab.now)

    async def test_a_seal_that_is_dated_earlier_sets_no_moment_back(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 1, sealed=False)
        assert await lab.engine.families.seal(batch.id, lab.at(-5))
        found = await self.found(lab, batch)
        assert (found.sealed, found.touched_at) == (True, lab.now)

    async def test_an_empty_batch_is_over_at_once(self, lab: Lab) -> None:
        batch = self.batch(lab)
        await lab.engine.jobs.insert([], lab.now, batch)
        assert [one.id for one in (await lab.engine.families.process_notes(lab.now)).over] == [batch.id]

    async def test_a_batch_whose_submitter_fell_silent_is_sealed_and_marked(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 1, sealed=False)
        lab.later(lab.rules.batch_silence - 1)
        await lab.engine.jobs.insert([lab.job(batch=batch.id)], lab.now)
        lab.later(2)
        await lab.process_notes()
        found = await self.found(lab, batch)
        assert (found.sealed, found.abandoned) == (False, False)
        lab.later(lab.rules.batch_silence)
        await lab.process_notes()
        found = await self.found(lab, batch)
        assert (found.sealed, found.abandoned, found.tally) == (True, True, BatchTally(2))

    async def test_ends_at_the_same_moment_are_all_counted(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 40)
        worker = await lab.worker()
        async with opened(lab.make() if self.durable else lab.engine.another_session()) as [other]:
            jobs = await lab.claim(worker)
            changes = [lab.stamp(lab.end(job, Completed("1"), started_at=lab.now)) for job in jobs]

            async def finish(engine: Any, part: list[Any]) -> None:
                for n in range(0, len(part), 4):
                    await engine.jobs.apply(part[n : n + 4], lab.now)
                    await engine.families.process_notes(lab.now)

            await asyncio.gather(finish(lab.engine, changes[:20]), finish(other, changes[20:]))
        assert await self.tally(lab, batch) == BatchTally(40, 40)
        assert [one.id for one in (await lab.engine.families.process_notes(lab.now)).over] == [batch.id]

    async def test_what_follows_the_end_is_stored_with_the_word_that_it_was(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 0)
        jobs = [lab.job("report", queue="new"), lab.job("report", dedup="k"), lab.job("alarm", delay=5)]
        assert await lab.engine.families.settle(batch.id, lab.now, jobs) is None
        assert (await lab.engine.families.process_notes(lab.now)).over == ()
        assert [(await lab.get(job)).status for job in jobs] == [Status.QUEUED, Status.QUEUED, Status.SCHEDULED]
        seqs = [(await lab.get(job)).seq for job in jobs]
        assert seqs == sorted(set(seqs))

    async def test_it_is_stored_once(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 0)
        job = lab.job("report")
        for _ in range(2):
            assert await lab.engine.families.settle(batch.id, lab.now, [job]) is None
        await lab.cancel(await lab.get(job))
        assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
        other = lab.job("report")
        for id in (batch.id, lab.new_id()):
            assert await lab.engine.families.settle(id, lab.now, [job, other]) is None
        assert [await lab.gone(one) for one in (job, other)] == [True, True], "nor is anything of a batch unknown"

    async def test_of_many_who_settle_it_at_once_one_stores_what_follows(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 0)
        jobs = [lab.job("report") for _ in range(5)]
        await asyncio.gather(*(lab.engine.families.settle(batch.id, lab.now, [job]) for job in jobs))
        assert [await lab.gone(job) for job in jobs].count(False) == 1

    async def test_a_batch_stays_unsettled_while_what_follows_is_refused(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 0)
        fine, lost = lab.job("report"), lab.job("report", waits=1, after=(lab.new_id(),))
        refused = await lab.engine.families.settle(batch.id, lab.now, [fine, lost])
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, JobNotFound)
        assert [await lab.gone(one) for one in (fine, lost)] == [True, True]
        assert [one.id for one in (await lab.engine.families.process_notes(lab.now)).over] == [batch.id]
        holder = await lab.put("report", dedup="k")
        double = lab.job("report", dedup="k")
        assert await lab.engine.families.settle(batch.id, lab.now, [fine, double]) is None, "a duplicate is no refusal"
        assert [await lab.gone(one) for one in (fine, double)] == [False, True]
        assert await lab.get(holder) == holder

    async def test_batches_are_pruned_with_their_jobs(self, lab: Lab) -> None:
        batch, jobs = await self.filled(lab, 1)
        live, _ = await self.filled(lab, 1, task="other")
        await lab.cancel(jobs[0])
        await lab.engine.families.process_notes(lab.now)
        lab.later(10)
        before = dict.fromkeys(ENDED, lab.now)
        # Not settled: its follow-up is still to come.
        await lab.engine.jobs.delete(before)
        assert (await lab.engine.families.batches([batch.id]))[0] is not None
        await lab.engine.families.settle(batch.id, lab.now)
        await lab.engine.jobs.delete(before)
        assert (await lab.engine.families.batches([batch.id]))[0] is None
        assert (await lab.engine.families.batches([live.id]))[0] is not None
