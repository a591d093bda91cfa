"""Graphs: jobs that wait for others."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.families.children import GIVES_UP
from headrace.conformance.lab import Lab, Part, opened
from headrace.core.attempt import Completed
from headrace.core.change import Applied
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import ENDED, Reason, Status
from headrace.engine import Duplicated, Inserted, Refused
from headrace.errors import JobNotFound

__all__ = ["Graphs"]


class Graphs(Part):
    """What jobs promise that wait for others."""

    @staticmethod
    def after(lab: Lab, *parents: Job, task: str = "child", **spec: Any) -> Job:
        """Return a job that waits for these."""
        return lab.job(task, waits=len(parents), after=tuple(job.id for job in parents), **spec)

    async def test_a_job_waits_until_the_last_parent_completed(self, lab: Lab, worker: UUID) -> None:
        one, two = await lab.running(worker, "a"), await lab.running(worker, "b")
        [child] = await lab.put_all(self.after(lab, one, two))
        assert child.status is Status.WAITING
        assert await lab.process_notes() == []
        await lab.finish(one)
        assert await lab.process_notes() == []
        assert await lab.claim(worker) == []
        await lab.finish(two)
        lab.later(1)
        [change] = await lab.process_notes()
        freed = await lab.get(child)
        assert change.job == freed
        assert (freed.status, freed.waits, freed.arrived_at) == (Status.QUEUED, 0, lab.now)
        assert await lab.process_notes() == []
        assert [job.id for job in await lab.claim(worker)] == [child.id]

    async def test_an_end_that_others_wait_for_is_noted(self, lab: Lab, worker: UUID) -> None:
        waited_for, alone = await lab.running(worker, "a"), await lab.running(worker, "b")
        await lab.put_all(self.after(lab, waited_for))
        await lab.process_notes()
        verdicts = await lab.apply(lab.end(waited_for, GIVES_UP), lab.end(alone, GIVES_UP))
        assert [isinstance(one, Applied) and one.noted for one in verdicts] == [True, False]

    async def test_a_completion_that_others_wait_for_is_noted(self, lab: Lab, worker: UUID) -> None:
        jobs = [await lab.running(worker, f"t{n}") for n in range(3)]
        await lab.put_all(self.after(lab, jobs[1]))
        verdicts = await lab.apply(*(lab.end(job, Completed("1")) for job in jobs))
        assert [isinstance(one, Applied) and one.noted for one in verdicts] == [False, True, False]

    async def test_parents_may_have_ended_before(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "a")
        [child] = await lab.put_all(self.after(lab, done))
        assert child.status is Status.WAITING
        [change] = await lab.process_notes()
        assert (change.job.id, change.job.status) == (child.id, Status.QUEUED)

    async def test_parents_may_come_with_the_child(self, lab: Lab, worker: UUID) -> None:
        one, two = lab.job("a"), lab.job("b")
        child = self.after(lab, one, two)
        grandchild = self.after(lab, child, task="grandchild")
        await lab.put_all(one, two, child, grandchild)
        assert {job.id for job in await lab.claim(worker)} == {one.id, two.id}
        for id in (one.id, two.id):
            await lab.finish(await lab.start(await lab.get(id)))
        await lab.process_notes()
        [taken] = await lab.claim(worker)
        assert taken.id == child.id
        await lab.finish(await lab.start(taken))
        await lab.process_notes()
        assert [job.id for job in await lab.claim(worker)] == [grandchild.id]

    async def test_a_time_is_still_waited_for(self, lab: Lab) -> None:
        parent = await lab.put("a")
        [child] = await lab.put_all(self.after(lab, parent, delay=60))
        await lab.do(actions.resolve(parent, lab.now, result_text="1"))
        await lab.process_notes()
        freed = await lab.get(child)
        assert (freed.status, freed.available_at) == (Status.SCHEDULED, child.available_at)

    @pytest.mark.parametrize("end", sorted(ENDED - {Status.COMPLETED}))
    @pytest.mark.parametrize("choice", ["cancel", "fail"])
    async def test_a_parent_that_did_not_succeed_ends_the_rest(self, lab: Lab, end: Status, choice: str) -> None:
        other = await lab.put("other")
        bad = await lab.stand(end, "bad")
        child = self.after(lab, other, bad, on_parent_failure=choice)
        await lab.put_all(child, self.after(lab, child, task="grandchild"))
        changes = await lab.process_notes()
        # At once, although the other parent has not ended; and jobs that wait for this one in turn.
        status = Status.CANCELLED if choice == "cancel" else Status.FAILED
        assert [change.job.status for change in changes] == [status, Status.CANCELLED]
        ended = await lab.get(child)
        assert (ended.status, ended.reason, ended.finished_at) == (status, Reason.PARENT, lab.now)

    async def test_a_parent_that_fails_while_one_waits(self, lab: Lab) -> None:
        parent = await lab.running(await lab.worker(), "a")
        [child] = await lab.put_all(self.after(lab, parent, dedup="k"))
        await lab.process_notes()
        await lab.finish(parent, GIVES_UP)
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.CANCELLED
        # Its key is free again.
        assert isinstance((await lab.insert(lab.job("child", dedup="k")))[0], Inserted)

    @pytest.mark.parametrize("end", sorted(ENDED))
    async def test_any_end_will_do_where_that_is_asked(self, lab: Lab, end: Status) -> None:
        parent, other = await lab.stand(end, "a"), await lab.put("b")
        [child] = await lab.put_all(self.after(lab, parent, other, after_when="ended"))
        assert await lab.process_notes() == []
        await lab.cancel(other)
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.QUEUED

    async def test_retried_it_waits_again_and_is_told_again(self, lab: Lab) -> None:
        parent = await lab.stand(Status.FAILED, "a")
        [child] = await lab.put_all(self.after(lab, parent))
        await lab.process_notes()
        lab.later(1)
        again = await lab.do(actions.retry(await lab.get(child), lab.now))
        assert again.status is Status.WAITING
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.CANCELLED
        await lab.do(actions.resolve(parent, lab.now, result_text="1"))
        await lab.do(actions.retry(await lab.get(child), lab.now))
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.QUEUED

    async def test_retried_it_does_not_wait_for_what_was_pruned(self, lab: Lab) -> None:
        parent = await lab.stand(Status.COMPLETED, "a")
        [child] = await lab.put_all(self.after(lab, parent))
        ended = await lab.cancel(child)
        lab.later(10)
        # Of two ended jobs, the one that is kept longer.
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now}) == 1
        await lab.do(actions.retry(ended, lab.now))
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.QUEUED

    async def test_what_waits_may_be_cancelled_or_expire(self, lab: Lab) -> None:
        parent = await lab.running(await lab.worker(), "a")
        cancelled, late = await lab.put_all(self.after(lab, parent), self.after(lab, parent, not_after=5))
        await lab.process_notes()
        ended = await lab.cancel(cancelled)
        lab.later(10)
        [found] = [one for one in (await lab.engine.jobs.overdue(lab.now)).jobs if one.job.id == late.id]
        await lab.sweep(found)
        await lab.finish(parent)
        assert await lab.process_notes() == []
        assert await lab.get(cancelled) == ended
        assert (await lab.get(late)).reason is Reason.EXPIRED

    async def test_nobody_waits_for_a_job_that_is_not_here(self, lab: Lab) -> None:
        here, missing = await lab.put("a"), lab.job("b")
        stranger = self.after(lab, here, missing)
        fine = self.after(lab, here)
        refused, kept = await lab.insert(stranger, fine)
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, JobNotFound)
        assert str(missing.id) in str(refused.error)
        assert isinstance(kept, Inserted)
        assert await lab.gone(stranger)
        # Once it is stored, the same job is accepted.
        await lab.put_all(missing)
        assert isinstance((await lab.insert(stranger))[0], Inserted)

    async def test_where_that_is_asked_for_it_is_all_or_nothing(self, lab: Lab) -> None:
        here, missing, holder = await lab.put("a"), lab.job("b"), await lab.put("keyed", dedup="k")
        one, two = lab.job("c"), lab.job("keyed", dedup="k")
        stranger, sibling = self.after(lab, one, missing), self.after(lab, here)
        graph = [one, two, here, stranger, sibling]
        answers = await lab.engine.jobs.insert(graph, lab.now, whole=True)
        for answer in answers:
            assert isinstance(answer, Refused)
            assert isinstance(answer.error, JobNotFound)
            assert str(missing.id) in str(answer.error)
        assert [await lab.gone(job) for job in (one, two, stranger, sibling)] == [True] * 4
        assert (await lab.engine.records.ledger()).accepted == 2
        assert await lab.process_notes() == []
        # A duplicate is not stored either, for jobs that would wait for it.
        answers = await lab.engine.jobs.insert([one, two, self.after(lab, two)], lab.now, whole=True)
        assert [isinstance(answer, Refused) for answer in answers] == [True] * 3
        await lab.put_all(missing)
        answers = await lab.engine.jobs.insert(graph, lab.now, whole=True)
        assert [type(answer) for answer in answers] == [Inserted, Duplicated, Inserted, Inserted, Inserted]
        assert isinstance(answers[1], Duplicated)
        assert answers[1].job.id == holder.id
        assert (await lab.get(stranger)).status is Status.WAITING
        assert (await lab.engine.records.ledger()).accepted == 6

    async def test_an_insert_may_be_repeated(self, lab: Lab) -> None:
        parent = await lab.put("a")
        child = self.after(lab, parent)
        first = await lab.put_all(child)
        assert await lab.put_all(child) == first
        await lab.do(actions.resolve(parent, lab.now, result_text="1"))
        changes = await lab.process_notes()
        assert [change.job.id for change in changes] == [child.id]
        assert await lab.put_all(child) == [await lab.get(child)]
        assert await lab.process_notes() == []

    async def test_many_wait_for_one_a_page_at_a_time(self, lab: Lab) -> None:
        one, two = await lab.put("a"), await lab.put("b")
        early = [self.after(lab, one, two) for _ in range(25)]
        children = [self.after(lab, one) for _ in range(25)]
        await lab.put_all(*early, *children)
        await lab.process_notes()
        await lab.do(actions.resolve(one, lab.now, result_text="1"))
        changes = await lab.process_notes(limit=10)
        # Jobs that still wait for another are skipped, and delay no other.
        assert {change.job.id for change in changes} == {job.id for job in children}

    async def test_two_parents_that_end_at_the_same_moment_release_the_child(self, lab: Lab) -> None:
        worker = await lab.worker()
        async with opened(lab.make() if self.durable else lab.engine.another_session()) as [other]:
            for n in range(10):
                one, two = await lab.running(worker, f"a{n}"), await lab.running(worker, f"b{n}")
                child = self.after(lab, one, two)

                async def finish(engine: Any, job: Job) -> None:
                    await engine.jobs.apply([lab.stamp(lab.end(job, Completed("1")))], lab.now)
                    await engine.families.process_notes(lab.now)

                # The child is stored while they end: before, between or after.
                await asyncio.gather(finish(lab.engine, one), lab.insert(child), finish(other, two))
                await lab.process_notes()
                assert (await lab.get(child)).status is Status.QUEUED

    async def test_what_is_waited_for_is_not_pruned(self, lab: Lab) -> None:
        parent = await lab.stand(Status.COMPLETED, "a")
        [child] = await lab.put_all(self.after(lab, parent))
        await lab.process_notes()
        lab.later(10)
        before: dict[Status, datetime] = dict.fromkeys(ENDED, lab.now)
        # Also once it is queued: it may request the result.
        assert await lab.engine.jobs.delete(before) == 0
        await lab.cancel(await lab.get(child))
        assert await lab.engine.jobs.delete(before) == 2
        assert await lab.gone(parent)

    async def test_jobs_that_are_waited_for_keep_no_other_from_being_pruned(self, lab: Lab, worker: UUID) -> None:
        live = await lab.running(worker, "live")
        parents = [await lab.finish(await lab.running(worker, f"parent{at}")) for at in range(7)]
        await lab.put_all(*(self.after(lab, parent, live) for parent in parents))
        lab.later(1)
        others = [await lab.finish(await lab.running(worker, f"other{at}")) for at in range(5)]
        before = dict.fromkeys(ENDED, lab.now)
        assert [await lab.engine.jobs.delete(before, 3) for _ in range(3)] == [3, 2, 0], "the older ones are waited for"
        assert [await lab.gone(job) for job in (*others, *parents)] == [True] * 5 + [False] * 7

    async def test_a_key_that_a_refused_job_wanted_is_for_the_next_and_that_may_be_waited_for(self, lab: Lab) -> None:
        refused = self.after(lab, lab.job("never stored"), task="keyed", dedup="k")
        fresh, double = lab.job("keyed", dedup="k"), lab.job("keyed", dedup="k")
        answers = await lab.insert(refused, fresh, double, self.after(lab, fresh), self.after(lab, double))
        assert [type(answer) for answer in answers] == [Refused, Inserted, Duplicated, Inserted, Refused]
