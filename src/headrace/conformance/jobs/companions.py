"""Companions: jobs that are stored with another one, in the same commit or not at all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.conformance.families.batches import Batched
from headrace.conformance.lab import Lab
from headrace.conformance.transactions import Undone, carry
from headrace.core.change import BatchTally
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine import Duplicated, InsertAnswer, Inserted, Refused
from headrace.errors import JobNotFound, KeyReused, TransitionRefused, Unstorable

__all__ = ["Companionship"]

KEYS = [{}, {"dedup": "k"}, {"request_key": "r", "request_hash": "0"}]
"""Jobs without keys take the shortest path into a store; the others must be looked up."""

each_key = pytest.mark.parametrize("keys", KEYS, ids=["plain", "dedup", "request"])


async def put(lab: Lab, *groups: tuple[Job, *tuple[Job, ...]], **options: Any) -> list[InsertAnswer]:
    """Insert jobs, each with the following ones as its companions, in one call."""
    companions = {job.id: others for job, *others in groups if others}
    return await lab.engine.jobs.insert([job for job, *_ in groups], lab.now, companions=companions, **options)


async def accepted(lab: Lab) -> int:
    ledger = await lab.engine.records.ledger()
    assert ledger.unaccounted == 0
    return ledger.accepted


class Companionship(Batched):
    """What ``insert`` promises of jobs with companions."""

    @each_key
    async def test_they_are_stored_behind_their_job(self, lab: Lab, keys: dict[str, Any]) -> None:
        first, second = lab.job("one", **keys), lab.job("two")
        hooks = [lab.job("hook", queue="hooks", tags=("t",)), lab.job("hook", delay=5), lab.job("hook", dedup="h")]
        answers = await put(lab, (first, *hooks[:2]), (second, hooks[2]))
        order = [first, *hooks[:2], second, hooks[2]]
        seqs = [(await lab.get(job)).seq for job in order]
        assert seqs == sorted(set(seqs))
        stored = [replace(job, seq=seq) for job, seq in zip(order, seqs, strict=True)]
        assert [await lab.get(job) for job in order] == stored
        assert answers == [Inserted(stored[0]), Inserted(stored[3])]
        assert await accepted(lab) == 5
        assert [job.id for job in await lab.claim(await lab.worker(), queues=("hooks",))] == [hooks[0].id]

    @each_key
    async def test_a_repeat_stores_nothing_more(self, lab: Lab, keys: dict[str, Any]) -> None:
        job, hook, late = lab.job("one", **keys), lab.job("hook"), lab.job("hook")
        [first] = await put(lab, (job, hook))
        assert isinstance(first, Inserted)
        assert await put(lab, (job, hook)) == [first]
        assert await put(lab, (job, hook, late)) == [first], "it is too late for another one"
        assert await accepted(lab) == 2
        done = await lab.running(await lab.worker(), "other")
        gone = await lab.cancel(await lab.get(hook))
        assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
        assert await put(lab, (job, gone), (done,)) == [first, Inserted(done)]
        assert await lab.gone(hook), "what was pruned does not come back"

    @pytest.mark.parametrize("keys", KEYS[1:], ids=["dedup", "request"])
    async def test_those_of_a_duplicate_are_left_out(self, lab: Lab, keys: dict[str, Any]) -> None:
        holder = await lab.put("one", **keys)
        hooks = [lab.job("hook") for _ in range(4)]
        answers = await put(lab, (lab.job("one", **keys), hooks[0]), (lab.job("two", **keys), hooks[1]))
        assert answers[0] == Duplicated(holder)
        assert isinstance(answers[1], Inserted)
        assert await put(lab, (lab.job("two", **keys), hooks[2])) == [Duplicated(answers[1].job)]
        twice = await put(lab, (lab.job("three", **keys), hooks[2]), (lab.job("three", **keys), hooks[3]))
        assert isinstance(twice[0], Inserted)
        assert twice[1] == Duplicated(twice[0].job)
        assert [await lab.gone(hook) for hook in hooks] == [True, False, False, True]

    async def test_those_of_a_reused_request_are_left_out(self, lab: Lab) -> None:
        await lab.put("one", request_key="r", request_hash="0")
        hook = lab.job("hook")
        [answer] = await put(lab, (lab.job("one", request_key="r", request_hash="1"), hook))
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, KeyReused)
        assert await lab.gone(hook)

    @each_key
    async def test_where_one_is_refused_its_job_is(self, lab: Lab, keys: dict[str, Any]) -> None:
        cancelled = await lab.cancel(await lab.put("parent"))
        job, fine, orphan = lab.job("one", **keys), lab.job("hook"), lab.job("hook", parent=cancelled.id)
        other, its, again = lab.job("two"), lab.job("hook"), lab.job("one", **keys)
        waits = lab.job("hook", waits=1, after=(job.id,))
        answers = await put(lab, (job, fine, orphan), (other, its), (again,), (waits,))
        assert [type(answer) for answer in answers] == [Refused, Inserted, Inserted, Refused]
        assert isinstance(answers[0], Refused)
        assert isinstance(answers[0].error, TransitionRefused)
        assert answers[0].error.job == orphan
        assert isinstance(answers[3], Refused)
        assert isinstance(answers[3].error, JobNotFound), "who waits for a job that is refused is refused for good"
        stored = [not await lab.gone(one) for one in (job, fine, orphan, other, its, again, waits)]
        assert stored == [False, False, False, True, True, True, False]
        assert await accepted(lab) == 4

    async def test_those_of_a_refused_job_are_left_out(self, lab: Lab) -> None:
        job, hook = lab.job(waits=1, after=(lab.new_id(),)), lab.job("hook")
        [answer] = await put(lab, (job, hook))
        assert isinstance(answer, Refused)
        assert [await lab.gone(one) for one in (job, hook)] == [True, True]

    @each_key
    async def test_one_that_is_here_or_a_duplicate_is_left_out(self, lab: Lab, keys: dict[str, Any]) -> None:
        here, holder = await lab.put("hook"), await lab.put("hook", dedup="h")
        double, fine = lab.job("hook", dedup="h"), lab.job("hook")
        [answer] = await put(lab, (lab.job("one", **keys), here, double, fine))
        assert isinstance(answer, Inserted)
        assert [await lab.gone(one) for one in (double, fine)] == [True, False]
        assert [await lab.get(one) for one in (here, holder)] == [here, holder]
        assert await accepted(lab) == 4

    @each_key
    async def test_they_may_wait_for_their_job_and_be_its_children(self, lab: Lab, keys: dict[str, Any]) -> None:
        batch = self.batch(lab)
        job = lab.job("one", batch=batch.id, **keys)
        last = lab.job("hook", waits=1, after=(job.id,), after_when="ended", batch=batch.id)
        child = lab.job("hook", parent=job.id, root=job.id)
        await put(lab, (job, last, child), batch=batch)
        assert await self.tally(lab, batch) == BatchTally(2)
        await lab.process_notes()
        await lab.cancel(await lab.get(job))
        assert {change.job.id for change in await lab.process_notes()} == {last.id}
        assert (await lab.get(last)).status is Status.QUEUED

    @each_key
    async def test_all_or_nothing_holds_for_them_too(self, lab: Lab, keys: dict[str, Any]) -> None:
        job, other = lab.job("one", **keys), lab.job("two")
        lost = lab.job("hook", waits=1, after=(lab.new_id(),))
        answers = await put(lab, (other,), (job, lab.job("hook"), lost), whole=True)
        assert [type(answer) for answer in answers] == [Refused, Refused]
        assert await accepted(lab) == 0

    async def test_one_that_cannot_be_stored_lets_nothing_in(self, lab: Lab) -> None:
        with pytest.raises(Unstorable):
            await put(lab, (lab.job(), lab.job("hook", dedup="a\0b")))
        assert await accepted(lab) == 0

    @each_key
    async def test_of_many_at_once_one_is_stored_with_its_own(self, lab: Lab, keys: dict[str, Any]) -> None:
        job, hooks = lab.job("one", **keys), [lab.job("hook") for _ in range(6)]
        await asyncio.gather(*(put(lab, (job, hook)) for hook in hooks))
        assert [await lab.gone(hook) for hook in hooks].count(False) == 1
        assert await accepted(lab) == 2

    @each_key
    async def test_in_a_transaction_they_share_its_fate(self, lab: Lab, keys: dict[str, Any]) -> None:
        async def insert(connection: Any, job: Job, *others: Job) -> InsertAnswer:
            statements = await lab.transactions.inserting([job], lab.now, companions={job.id: others})
            [answer] = await carry(lab, connection, statements)
            found: InsertAnswer = answer
            return found

        job, undone, kept, late = lab.job("one", **keys), lab.job("hook"), lab.job("hook"), lab.job("hook")
        with suppress(Undone):
            async with lab.transactions.transaction() as connection:
                await insert(connection, job, undone)
                raise Undone
        async with lab.transactions.transaction() as connection:
            first = await insert(connection, job, kept)
            assert isinstance(first, Inserted)
            assert await lab.gone(kept)
        async with lab.transactions.transaction() as connection:
            assert await insert(connection, job, late) == first
            if keys:
                assert await insert(connection, lab.job("one", **keys), late) == Duplicated(first.job)
            refused = await insert(connection, lab.job("two"), late, lab.job(waits=1, after=(lab.new_id(),)))
            assert isinstance(refused, Refused)
        assert [await lab.gone(one) for one in (undone, kept, late)] == [True, False, True]
        assert await accepted(lab) == 2
