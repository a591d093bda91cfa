"""Timestamps: those of a job are in order, whichever machine's clock is behind."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.conformance.jobs.limits import rule
from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Ending, Failed, Released
from headrace.core.job import Job
from headrace.core.status import Status

__all__ = ["Dating"]

_BEHIND_SECONDS = 0.004
"""Seconds between two synchronised machines, or of a claim that was under way when the job came."""


async def in_order(lab: Lab, job: Job) -> None:
    """Assert that the moments of the stored job and its attempts are in order."""
    found = await lab.get(job)
    times = [found.created_at, found.arrived_at, found.assigned_at, found.accepted_at, found.started_at]
    known = [at for at in (*times, found.finished_at) if at is not None]
    assert known == sorted(known)
    assert found.updated_at >= known[-1]
    last = found.created_at
    for attempt in await lab.attempts(job):
        for at in (attempt.assigned_at, attempt.started_at, attempt.finished_at):
            assert at is None or at >= last
            last = at or last


class Dating(Part):
    """What every write promises about its moment."""

    @pytest.mark.parametrize("accept", [True, False])
    @pytest.mark.parametrize("kind", ["one line", "two lines", "limited", "keyed"])
    async def test_a_claim_is_not_dated_before_the_arrival(self, lab: Lab, kind: str, accept: bool) -> None:
        if kind == "limited":
            await rule(lab, "queue:default", max_concurrency=5)
        worker = await lab.worker()
        job = await lab.put(concurrency_key="k" if kind == "keyed" else None)
        others = [await lab.put("other")] if kind == "two lines" else []
        came, now = lab.now, lab.later(-_BEHIND_SECONDS)
        taken = await lab.claim(worker, accept=accept)
        assert [one.id for one in taken] == [one.id for one in (job, *others)]
        for one in taken:
            assert (one.arrived_at, one.assigned_at, one.updated_at) == (came, came, came)
            assert one.accepted_at == (came if accept else None)
            # A deadline is by this machine's clock, which will check it.
            assert one.act_by == lab.at(lab.rules.start if accept else lab.rules.accept)
            assert await lab.get(one) == one
        assert lab.now == now

    async def test_a_later_claim_has_its_own_moment(self, lab: Lab) -> None:
        job, worker = await lab.put(), await lab.worker()
        lab.later(_BEHIND_SECONDS)
        [taken] = await lab.claim(worker)
        assert (taken.id, taken.assigned_at, taken.accepted_at) == (job.id, lab.now, lab.now)

    @pytest.mark.parametrize("ending", [Completed(), Failed(error=OOPS), Released()])
    async def test_a_run_by_a_clock_that_is_behind_is_in_order(self, lab: Lab, worker: UUID, ending: Ending) -> None:
        job = await lab.put()
        lab.later(-_BEHIND_SECONDS)
        [taken] = await lab.claim(worker)
        started = await lab.start(taken)
        assert started.started_at == started.first_started_at == taken.assigned_at
        lab.later(_BEHIND_SECONDS / 2)
        await lab.finish(started, ending)
        await in_order(lab, job)

    async def test_a_start_that_rides_with_the_finish_is_in_order(self, lab: Lab, worker: UUID) -> None:
        job = await lab.put()
        lab.later(-_BEHIND_SECONDS)
        [taken] = await lab.claim(worker)
        done = await lab.do(lab.end(taken, Completed(), started_at=lab.now))
        assert done.started_at == done.finished_at == taken.assigned_at
        await in_order(lab, job)

    async def test_the_next_attempt_is_not_dated_before_the_last(self, lab: Lab, one: UUID, two: UUID) -> None:
        job = await lab.put()
        lab.later(1)
        await lab.finish(await lab.start((await lab.claim(one))[0]), Released())
        lab.later(-_BEHIND_SECONDS)  # the other machine
        [again] = await lab.claim(two)
        assert again.assigned_at == lab.at(_BEHIND_SECONDS)
        await lab.finish(await lab.start(again))
        await in_order(lab, job)

    async def test_acts_of_people_are_in_order(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        lab.later(-_BEHIND_SECONDS)
        asked = await lab.cancel(job)
        done = await lab.finish(asked, Released())
        assert done.status is Status.CANCELLED
        await in_order(lab, job)
        [event] = (await lab.engine.records.history(job.id)).events
        assert event.at == job.updated_at
