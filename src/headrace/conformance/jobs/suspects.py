"""Suspects: what a burial records, and the waiting lists of jobs in quarantine."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Failed, Released, Snoozed
from headrace.core.change import Applied, Conflict
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.suspects import REQUIREMENT
from headrace.core.status import Cause, Outcome, Status
from headrace.engine import Claimed

__all__ = ["Suspects"]

AT_ONCE, TWICE = Retry(max_retries=5, initial=0), Retry(max_retries=1, initial=0)
PLAIN, APART = False, True
"""Jobs like any other, and those in quarantine."""


class Suspects(Part):
    """What ``bury``, ``overdue``, ``apply`` and ``claim`` promise about jobs that may have killed their worker."""

    # -- the burial

    @pytest.mark.parametrize("suspects", [0, 1, 2])
    @pytest.mark.parametrize("others", [0, 1, 2])
    async def test_a_burial_records_whether_a_suspect_had_company(self, lab: Lab, suspects: int, others: int) -> None:
        worker = await lab.worker()
        for _ in range(suspects):
            await _running_suspect(lab, worker)
        for _ in range(others):
            await lab.running(worker)
        await lab.put_all(lab.job("more"), replace(lab.job("more"), suspect=1, attempt=1))
        await lab.claim(worker)  # a job that has not started did not run
        await lab.engine.workers.bury(worker, 0)
        found = {one.beside_suspect for one in (await lab.engine.jobs.overdue(lab.now)).jobs}
        assert found == {suspects > 0 and suspects + others > 1}

    @pytest.mark.parametrize("mass_death", [True, False])
    async def test_a_burial_records_whether_others_died_at_the_same_time(self, lab: Lab, mass_death: bool) -> None:
        worker, other = await lab.worker(), await lab.worker()
        await lab.put_all(lab.job(), lab.job())
        assert len([*await lab.claim(worker, 1), *await lab.claim(other, 1)]) == 2
        await lab.engine.workers.bury(worker, 0, mass_death=mass_death)
        assert not await lab.engine.workers.bury(worker, 0, mass_death=not mass_death)  # once
        (found,) = (await lab.engine.jobs.overdue(lab.now)).jobs
        assert found.mass_death is mass_death
        lost = await lab.sweep(found)
        assert (lost.unstarted_losses, lost.blameless_losses) == (1, int(mass_death))
        assert (await lab.get(lost)).blameless_losses == int(mass_death)

    @pytest.mark.parametrize("recorded", [True, False])
    async def test_what_was_lost_in_a_power_cut_completes_with_all_its_attempts(self, lab: Lab, recorded: bool) -> None:
        worker, other = await lab.worker(), await lab.worker()
        await lab.put()
        [held] = await lab.claim(worker)
        await lab.engine.workers.bury(worker, 0, mass_death=True)
        [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
        await lab.sweep(found)
        lab.later(1)
        [again] = await lab.claim(other)
        assert (again.id, again.attempt, again.unstarted_losses, again.blameless_losses) == (held.id, 1, 1, 1)
        began = lab.later(1)
        if recorded:
            again = await lab.do(execution.start(again, began, lab.rules))
        lab.later(1)
        done = await lab.do(lab.end(again, Completed("2"), started_at=None if recorded else began))
        assert await lab.get(done) == done
        assert (done.attempt, done.charged, done.blameless_losses, done.worker) == (2, 1, 0, None)
        assert (done.started_at, done.first_started_at, done.finished_at) == (began, began, lab.now)
        lost, last = await lab.attempts(done)
        assert (lost.number, lost.outcome, lost.worker, lost.started_at) == (1, Outcome.LOST, worker, None)
        assert (last.number, last.outcome, last.worker, last.started_at) == (2, Outcome.COMPLETED, other, began)
        assert (last.epoch, last.finished_at) == (again.epoch, lab.now)

    async def test_what_another_worker_runs_does_not_count(self, lab: Lab, worker: UUID, other: UUID) -> None:
        await _running_suspect(lab, other)
        await lab.running(worker)
        await lab.engine.workers.bury(worker, 0)
        assert [one.beside_suspect for one in (await lab.engine.jobs.overdue(lab.now)).jobs] == [False]

    async def test_a_repeated_burial_keeps_the_record(self, lab: Lab, worker: UUID) -> None:
        suspect, other = await _running_suspect(lab, worker), await lab.running(worker)
        await lab.engine.workers.bury(worker, 0)
        [found] = [one for one in (await lab.engine.jobs.overdue(lab.now)).jobs if one.job.id == suspect.id]
        await lab.sweep(found)  # and here the sweeper died; the next one tries to bury the worker again
        assert not await lab.engine.workers.bury(worker, 0)
        [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
        assert (found.job.id, found.beside_suspect) == (other.id, True)
        spared = await lab.sweep(found)
        assert (spared.charged, spared.suspect, spared.spared) == (0, 1, 1)

    async def test_of_two_sweepers_one_loses_a_job(self, lab: Lab, worker: UUID) -> None:
        await _running_suspect(lab, worker)
        await lab.running(worker)
        await lab.engine.workers.bury(worker, 0)
        changes = [lab.swept(found) for found in (await lab.engine.jobs.overdue(lab.now)).jobs]
        for expected in (Applied, Conflict):  # all changes of the first, then all of the second
            verdicts = await lab.apply(*(change for change in changes if change is not None))
            assert [type(verdict) for verdict in verdicts] == [expected] * 2
        for change in changes:
            assert change is not None
            assert await lab.get(change.job) == change.job

    async def test_a_worker_that_comes_back_late_finds_its_job_gone(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, retry=AT_ONCE)
        await lab.engine.workers.bury(worker, 0)
        [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
        lost = await lab.sweep(found)
        await lab.apply(lab.end(job, Completed()))
        assert await lab.get(job) == lost
        assert await _given(lab, {PLAIN: 1}) == [job.id]

    # -- waiting lists

    async def test_after_a_first_loss_it_stands_where_it_stood(self, lab: Lab) -> None:
        job = await _lost(lab, await lab.put(retry=AT_ONCE))
        assert (job.suspect, job.status) == (1, Status.RETRYING)
        lab.later(1)
        assert await _given(lab, {APART: 9}) == []
        assert await _given(lab, {PLAIN: 9}) == [job.id]

    async def test_after_a_second_loss_it_stands_in_a_line_of_its_own(self, lab: Lab) -> None:
        job = await _lost(lab, await _lost(lab, await lab.put(retry=AT_ONCE)))
        await lab.put(retry=AT_ONCE)
        lab.later(1)
        assert job.id not in await _given(lab, {PLAIN: 9})
        assert await _given(lab, {APART: 9}) == [job.id]

    async def test_on_its_last_attempt_it_stands_there_too(self, lab: Lab) -> None:
        first = await _lost(lab, await lab.put("first", retry=Retry(max_retries=1, initial=0)))
        later = await _lost(lab, await lab.put("later", retry=Retry(max_retries=2, initial=0)))
        lab.later(1)
        assert await _given(lab, {APART: 9}) == [first.id]
        assert (await _claimed(lab, {APART: 9}))[0].id == first.id
        again = await lab.start((await _claimed(lab, {PLAIN: 9}))[0])
        assert again.id == later.id
        await lab.finish(again, Failed(error=OOPS))
        lab.later(1)
        assert await _given(lab, {APART: 9}) == [later.id]

    async def test_it_keeps_its_line_when_it_is_handed_back_or_snoozes(self, lab: Lab) -> None:
        job = await _lost(lab, await _lost(lab, await lab.put(retry=AT_ONCE)))
        for ending in (Released(), Snoozed(1)):
            lab.later(2)
            job = await lab.finish(await lab.start((await _claimed(lab, {APART: 1}))[0]), ending)
            lab.later(2)
            assert await _given(lab, {PLAIN: 9}) == []
        assert await _given(lab, {APART: 9}) == [job.id]

    async def test_completing_clears_it(self, lab: Lab) -> None:
        await _lost(lab, await _lost(lab, await lab.put(retry=AT_ONCE)))
        lab.later(1)
        job = await lab.finish(await lab.start((await _claimed(lab, {APART: 1}))[0]))
        assert (job.suspect, job.spared, job.status) == (0, 0, Status.COMPLETED)

    @pytest.mark.parametrize("dedup", [None, "key"])
    async def test_a_retry_by_a_person_clears_it(self, lab: Lab, dedup: str | None) -> None:
        job = await _lost(lab, await lab.put(dedup=dedup, retry=Retry(max_retries=0)))
        assert (job.status, job.suspect) == (Status.FAILED, 1)
        job = await lab.do(actions.retry(job, lab.now))
        assert (job.status, job.suspect) == (Status.QUEUED, 0)
        assert await _given(lab, {APART: 9}) == []
        assert await _given(lab, {PLAIN: 9}) == [job.id]

    async def test_a_change_that_comes_too_late_moves_nothing(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, retry=Retry(max_retries=1, initial=0))
        late = loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules)
        assert late.moves
        await lab.finish(job, Released())
        [verdict] = await lab.apply(late)
        assert isinstance(verdict, Conflict)
        assert await _given(lab, {APART: 9}) == []
        assert await _given(lab, {PLAIN: 9}) == [job.id]

    async def test_many_change_their_lines_in_one_call(self, lab: Lab) -> None:
        worker, queues = await lab.worker(), ("a", "b")
        await lab.put_all(*(lab.job(f"t{n % 3}", queue=queues[n % 2], retry=TWICE) for n in range(30)))
        jobs = [await lab.start(job) for job in await lab.claim(worker)]
        changes = [
            loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules) if n % 5 else lab.end(job, Completed())
            for n, job in enumerate(jobs)
        ]
        assert [type(verdict) for verdict in await lab.apply(*changes)] == [Applied] * 30
        assert [await lab.get(job) for job in jobs] == [change.job for change in changes]
        lab.later(1)
        assert await _given(lab, {PLAIN: 99}) == []
        lost = [job.id for n, job in enumerate(jobs) if n % 5]
        assert sorted(await _given(lab, {APART: 99})) == sorted(lost)

    async def test_a_suspect_with_a_key_has_its_turn(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(concurrency_key="k", retry=AT_ONCE) for _ in range(2)))
        await _lost(lab, *jobs)
        await _lost(lab, *jobs)
        ordinary = await lab.put(concurrency_key="k")
        lab.later(1)
        assert await _given(lab, {PLAIN: 9}) == [ordinary.id]
        assert sorted(await _given(lab, {APART: 9})) == sorted(job.id for job in jobs)

    async def test_a_suspect_is_stored_where_it_belongs(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(replace(lab.job(), suspect=losses, attempt=losses) for losses in range(3)))
        assert await _given(lab, {PLAIN: 9}) == [jobs[0].id, jobs[1].id]
        assert await _given(lab, {APART: 9}) == [jobs[2].id]
        assert [(await lab.get(job)).suspect for job in jobs] == [0, 1, 2]

    async def test_profiles_name_the_requirement(self, lab: Lab) -> None:
        job = await _lost(lab, await _lost(lab, await lab.put(requires={"gpu": True}, retry=AT_ONCE)))
        known = (await lab.engine.documents.profiles()).profiles
        assert [one.requires for one in known] == [{"gpu": True}, {"gpu": True, REQUIREMENT: True}]
        assert (await lab.get(job)).requires == {"gpu": True}

    async def test_a_worker_learns_of_the_new_profile(self, lab: Lab) -> None:
        job = await _lost(lab, await lab.put(retry=AT_ONCE))
        before = (await lab.engine.documents.profiles()).rev
        await _lost(lab, job)
        known = await lab.engine.documents.profiles()
        assert known.rev > before
        claimed = await lab.claimed(await lab.worker())
        assert claimed.profiles_rev == known.rev


async def _claimed(
    lab: Lab, kinds: dict[bool, int], worker: UUID | None = None, tasks: frozenset[str] | None = None
) -> list[Job]:
    """Claim so many jobs of each kind, as a worker would that runs them."""
    worker = worker or await lab.worker()
    given = list[Job]()
    for apart, n in kinds.items():
        known = (await lab.engine.documents.profiles()).profiles
        served = [one for one in known if tasks is None or one.task in tasks]
        profiles = frozenset(one.id for one in served if (REQUIREMENT in one.requires) is apart)
        ask = ClaimRequest(n=n, free=n, profiles=profiles)
        claimed = await lab.engine.jobs.claim(worker, ask, lab.host.dice.token(), lab.now)
        assert isinstance(claimed, Claimed)
        given += claimed.jobs
    return given


async def _given(lab: Lab, kinds: dict[bool, int]) -> list[UUID]:
    """Return the jobs that would be claimed of these kinds; all are released again."""
    jobs = await _claimed(lab, kinds)
    for job in jobs:
        await lab.do(execution.release(job, lab.now))
    return [job.id for job in jobs]


async def _lost(lab: Lab, *jobs: Job) -> Job:
    """Return the last of these jobs, all of one task, after a worker had started them all and died."""
    worker, tasks = await lab.worker(), frozenset(job.task for job in jobs)
    lab.later(1)
    taken = await _claimed(lab, {PLAIN: len(jobs), APART: len(jobs)}, worker, tasks)
    assert {one.id for one in taken} == {job.id for job in jobs}
    for one in taken:
        await lab.start(one)
    await lab.engine.workers.bury(worker, 0)
    lost = {found.job.id: await lab.sweep(found) for found in (await lab.engine.jobs.overdue(lab.now)).jobs}
    return lost[jobs[-1].id]


async def _running_suspect(lab: Lab, worker: UUID) -> Job:
    [job] = await lab.put_all(replace(lab.job("suspect"), suspect=1, attempt=1))
    [taken] = await lab.claim(worker, tasks=("suspect",))
    assert taken.id == job.id
    return await lab.start(taken)
