"""Lone jobs that are stored on the thread of their submitter.

For engines that have such a path (``Engine.direct``); other engines skip these tests. A job that an engine does not
take this way must be unknown to the ordinary verb.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine import Duplicated, InsertAnswer, Inserted
from headrace.errors import NotOpen, Unstorable

__all__ = ["Directly"]


async def offer(lab: Lab, job: Job) -> Inserted | None:
    """Offer the job on a thread without a loop."""
    return await asyncio.to_thread(lab.direct.insert, job, lab.now)


async def store(lab: Lab, job: Job) -> InsertAnswer:
    """Store the job as its submitter does: directly, else by the ordinary verb."""
    return await offer(lab, job) or (await lab.insert(job))[0]


class Directly(Part):
    """What ``Direct.insert`` promises."""

    async def test_what_it_stores_is_as_any_other(self, lab: Lab) -> None:
        given = [
            lab.job(),
            lab.job(payload='{"n": 1}', priority=7, tags=("a", "b"), metadata={"k": [1]}),
            lab.job("other", queue="elsewhere", customer="c", concurrency_key="k", trace={"traceparent": "t"}),
            lab.job(delay=60, not_after=120),
        ]
        for job in given * 2:
            like = replace(job, id=lab.new_id())
            answer = await store(lab, like)
            assert isinstance(answer, Inserted)
            assert answer.job == replace(like, seq=answer.job.seq)
            assert await lab.get(like) == answer.job
        assert (await lab.engine.records.ledger()).accepted == 8

    async def test_workers_get_it_in_its_turn(self, lab: Lab) -> None:
        first, *rest = [lab.job() for _ in range(6)]
        await lab.insert(first)
        for turn, job in enumerate(rest):
            assert isinstance(await store(lab, job) if turn % 2 else (await lab.insert(job))[0], Inserted)
        claimed = await lab.claim(await lab.worker(), 10)
        assert [job.id for job in claimed] == [job.id for job in (first, *rest)]
        assert [job.seq for job in claimed] == sorted(job.seq for job in claimed)

    async def test_a_job_that_is_stored_already_is_left_as_it_is(self, lab: Lab) -> None:
        job = await lab.put()
        (held,) = await lab.claim(await lab.worker())
        assert await offer(lab, replace(job, seq=0)) is None
        assert await lab.get(job) == held
        assert (await lab.engine.records.ledger()).accepted == 1

    async def test_what_needs_a_look_at_others_is_stored_by_the_ordinary_verb(self, lab: Lab) -> None:
        parent = await lab.put()
        key = await lab.put(dedup="k")
        request = await lab.put(request_key="r", request_hash="h")
        assert await store(lab, lab.job(dedup="k")) == Duplicated(key)
        assert await store(lab, lab.job(request_key="r", request_hash="h")) == Duplicated(request)
        child = lab.job(parent=parent.id, root=parent.id)
        waiting = lab.job(after=(parent.id,), waits=1)
        for job in (child, waiting):
            answer = await store(lab, job)
            assert isinstance(answer, Inserted)
            assert await lab.get(job) == answer.job
        assert (await lab.get(waiting)).status is Status.WAITING

    async def test_a_job_that_went_far_elsewhere_is_kept_whole(self, lab: Lab) -> None:
        await lab.put()
        job = replace(lab.job(), status=Status.COMPLETED, result_text="1", finished_at=lab.now, rev=3)
        answer = await store(lab, job)
        assert isinstance(answer, Inserted)
        assert await lab.get(job) == replace(job, seq=answer.job.seq)

    async def test_what_no_engine_keeps_is_refused(self, lab: Lab) -> None:
        await lab.put()
        bad = lab.job()
        with pytest.raises(Unstorable):
            await store(lab, replace(bad, spec=replace(bad.spec, tags=("x\ud800",))))
        assert (await lab.engine.records.ledger()).accepted == 1

    async def test_threads_and_lanes_at_once_store_each_job_once(self, lab: Lab) -> None:
        await lab.put()
        jobs = [lab.job() for _ in range(60)]
        answers = await asyncio.gather(*(store(lab, job) for job in jobs), *(lab.insert(job) for job in jobs[::3]))
        assert len(answers) == 80
        stored = await lab.engine.jobs.get([job.id for job in jobs])
        assert len({job.seq for job in stored if job is not None}) == 60
        assert (await lab.engine.records.ledger()).accepted == 61

    async def test_a_session_that_is_closed_takes_nothing(self, lab: Lab) -> None:
        await lab.put()
        await lab.engine.close()
        with pytest.raises(NotOpen):
            await offer(lab, lab.job())
        await lab.engine.open()
        assert isinstance(await store(lab, lab.job()), Inserted)
