"""Sweeps: promotion, and the queries for jobs that need an action."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Failed, Snoozed
from headrace.core.lifecycle import actions, execution
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.sweep import cause_of
from headrace.core.status import ENDED, Cause, Outcome, Reason, Status
from headrace.engine import Alive, Beat, Overdue

__all__ = ["Sweeping"]


class Sweeping(Part):
    """What ``promote`` and ``overdue`` promise."""

    # -- promote

    async def test_what_is_due_is_queued_from_the_moment_it_fell_due(self, lab: Lab) -> None:
        job, due = await lab.put(delay=10, not_after=500), lab.at(10)
        lab.later(9.999999)
        assert await lab.engine.jobs.promote(lab.now) == 0
        assert await lab.get(job) == job
        lab.later(100)
        assert await lab.engine.jobs.promote(lab.now) == 1
        assert await lab.get(job) == replace(
            job, status=Status.QUEUED, arrived_at=due, rev=job.rev + 1, updated_at=lab.now
        )
        assert await lab.engine.jobs.promote(lab.now) == 0

    async def test_a_job_is_due_at_its_very_moment(self, lab: Lab) -> None:
        await lab.put(delay=10)
        assert await lab.engine.jobs.promote(lab.later(10)) == 1

    async def test_retrying_and_snoozed_jobs_are_promoted_too(self, lab: Lab, worker: UUID) -> None:
        policy = Retry(backoff=[3], jitter=False)
        failed = await lab.finish(await lab.running(worker, "one", retry=policy), Failed(error=OOPS))
        snoozed = await lab.finish(await lab.running(worker, "two"), Snoozed(3))
        lab.later(3)
        assert await lab.engine.jobs.promote(lab.now) == 2
        for job in (failed, snoozed):
            found = await lab.get(job)
            assert (found.status, found.arrived_at, found.epoch) == (Status.QUEUED, lab.now, job.epoch)

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.SCHEDULED, Status.RETRYING}))
    async def test_nothing_else_is_promoted(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work")
        assert await lab.engine.jobs.promote(lab.later(1e6)) == 0
        assert await lab.get(job) == job

    async def test_no_more_than_the_limit_is_promoted_and_the_first_due_first(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(delay=delay) for delay in (5, 3, 4, 1, 2)))
        lab.later(10)
        assert await lab.engine.jobs.promote(lab.now, 2) == 2
        statuses = [(await lab.get(job)).status for job in jobs]
        assert [status is Status.QUEUED for status in statuses] == [False, False, False, True, True]
        assert await lab.engine.jobs.promote(lab.now, 2) == 2
        assert await lab.engine.jobs.promote(lab.now, 2) == 1

    # -- overdue

    async def test_a_store_in_order_has_no_questions(self, lab: Lab) -> None:
        for status in Status:
            await lab.stand(status, status.value, timeout=None)
        assert await lab.overdue() == []

    async def test_an_offer_not_accepted_in_time(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker(), accept=False)
        await self._lost_at(lab, lab.rules.accept, Cause.ACCEPT_BY)
        found = await lab.get(job)
        assert (found.status, found.unstarted_losses, found.worker) == (Status.QUEUED, 1, None)

    async def test_a_job_not_started_in_time(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        await self._lost_at(lab, lab.rules.start, Cause.START_BY)
        assert [(one.outcome, one.cause, one.started_at) for one in await lab.attempts(job)] == [
            ("lost", "start_by", None)
        ]

    async def test_an_attempt_past_its_time(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), timeout=60)
        await self._lost_at(lab, 60 + lab.rules.timeout_check, Cause.TIMEOUT)
        assert [(one.outcome, one.cause) for one in await lab.attempts(job)] == [("timed_out", "timeout")]

    async def test_an_attempt_without_a_sign(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), timeout=1000, heartbeat=60)
        lab.later(50)
        await lab.do(execution.sign(job, lab.now, lab.rules))
        await self._lost_at(lab, 60 + lab.rules.timeout_check, Cause.TIMEOUT)
        found, [attempt] = await lab.get(job), await lab.attempts(job)
        assert (found.status, found.charged, attempt.outcome, attempt.cause) == (
            Status.RETRYING,
            1,
            Outcome.TIMED_OUT,
            "timeout",
        )
        assert attempt.error is not None
        assert attempt.error.message == "the attempt reported nothing for 60 s"

    async def test_a_cancel_nobody_obeyed(self, lab: Lab) -> None:
        job = await lab.cancel(await lab.running(await lab.worker(), timeout=None))
        await self._lost_at(lab, 2 * lab.rules.beat + lab.rules.cancel_grace, Cause.CANCEL)
        found = await lab.get(job)
        assert (found.status, found.reason) == (Status.CANCELLED, Reason.USER)

    async def _lost_at(self, lab: Lab, seconds: float, cause: Cause) -> None:
        """Assert that nothing is overdue until so many seconds from now; then one job is, for this cause, until it is
        swept."""
        deadline = lab.at(seconds)
        lab.later(seconds - 0.000001)
        assert await lab.overdue() == []
        lab.now = deadline
        [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
        assert (found.alive, found.unnamed) == (True, 0)
        assert cause_of(found.job, lab.now, lab.rules, alive=True) is cause
        assert found.job == await lab.get(found.job)
        await lab.sweep(found)
        assert await lab.overdue() == []

    @pytest.mark.parametrize("status", [Status.ASSIGNED, Status.ACCEPTED, Status.RUNNING])
    async def test_jobs_of_a_dead_worker(self, lab: Lab, worker: UUID, other: UUID, status: Status) -> None:
        job = await lab.held(worker, accept=status is not Status.ASSIGNED, timeout=None)
        if status is Status.RUNNING:
            job = await lab.start(job)
        await lab.held(other, "other")
        assert await lab.overdue() == []
        assert await lab.engine.workers.bury(worker, 0)
        [found] = (await lab.engine.jobs.overdue(lab.now)).jobs
        assert found == Overdue(job, alive=False, heard_at=lab.now)
        lab.later(8 * 3600)  # no sweeper ran
        after = await lab.sweep(found)
        assert after.worker is None
        errors = [attempt.error for attempt in await lab.attempts(job) if attempt.error is not None]
        if status is not Status.ASSIGNED:
            assert [error.message for error in errors] == ["the worker is dead: it was silent for 8 h"]
        lab.later(-8 * 3600)
        assert await lab.overdue() == []

    async def test_jobs_of_a_worker_that_left_without_them(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        await lab.engine.workers.retire(worker)
        assert (await lab.engine.jobs.overdue(lab.now)).jobs == (Overdue(job, alive=False, heard_at=lab.now),)

    async def test_a_job_two_beats_did_not_name(self, lab: Lab, worker: UUID) -> None:
        job, named = await lab.running(worker, "one"), await lab.running(worker, "two")
        lab.later(2 * lab.rules.beat)
        for _ in range(2):
            assert await lab.overdue() == []
            alive = await lab.engine.workers.beat(worker, Beat(held=(named.id,)), lab.now)
            assert isinstance(alive, Alive)
            assert alive.unknown == (job,)
        assert (await lab.engine.jobs.overdue(lab.now)).jobs == (Overdue(job, alive=True, unnamed=2, heard_at=lab.now),)
        await lab.sweep(Overdue(job, unnamed=2))
        assert [one.cause for one in await lab.attempts(job)] == ["beat"]
        assert await lab.overdue() == []

    async def test_a_count_of_beats_ends_with_the_ownership(self, lab: Lab, worker: UUID) -> None:
        job = await lab.held(worker)
        lab.later(2 * lab.rules.beat)
        await lab.engine.workers.beat(worker, Beat(), lab.now)
        await lab.do(execution.release(await lab.get(job), lab.now))
        [again] = await lab.claim(worker)
        lab.later(2 * lab.rules.beat)
        await lab.engine.workers.beat(worker, Beat(), lab.now)
        assert await lab.overdue() == []
        await lab.engine.workers.beat(worker, Beat(), lab.now)
        assert await lab.overdue() == [again]

    @pytest.mark.parametrize("status", [Status.PENDING, Status.WAITING, Status.SCHEDULED, Status.QUEUED])
    async def test_an_idle_job_past_its_last_moment(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", not_after=30, dedup="k")
        lab.later(29.999999)
        assert await lab.overdue() == []
        lab.later(0.000001)
        assert (await lab.engine.jobs.overdue(lab.now)).jobs == (Overdue(job),)
        ended = await lab.sweep(Overdue(job))
        assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.EXPIRED)
        assert await lab.overdue() == []
        await lab.put("work", dedup="k")

    async def test_a_job_started_once_no_longer_expires(self, lab: Lab, worker: UUID) -> None:
        await lab.finish(await lab.running(worker, "one", not_after=10), Snoozed(100))
        await lab.finish(await lab.running(worker, "two", not_after=10), Failed(error=OOPS))
        lab.later(1000)
        assert await lab.overdue() == []

    async def test_the_next_deadline_is_that_of_any_job(self, lab: Lab, worker: UUID) -> None:
        async def next_at() -> datetime | None:
            return (await lab.engine.jobs.overdue(lab.now)).next_at

        assert await next_at() is None
        await lab.running(worker, "endless", timeout=None)
        await lab.stand(Status.COMPLETED, "done", not_after=1)
        assert await next_at() is None
        held = await lab.held(worker, "held")
        assert await next_at() == held.act_by == lab.at(lab.rules.start)
        late, scheduled = await lab.put(not_after=5), await lab.put(delay=60, not_after=10)
        assert await next_at() == late.act_by == lab.at(5)
        lab.now = lab.at(5)  # what has passed is not the next one, whether the sweeper was there or not
        found = await lab.engine.jobs.overdue(lab.now)
        assert (found.jobs, found.next_at) == ((Overdue(late),), scheduled.act_by)
        await lab.sweep(Overdue(late))
        await lab.cancel(scheduled)
        assert await next_at() == held.act_by
        await lab.finish(await lab.start(held), Snoozed(5))
        assert await next_at() is None

    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_an_ended_job_is_nobodys_question(self, lab: Lab, status: Status) -> None:
        await lab.stand(status, "work", not_after=10, timeout=5)
        for row in await lab.engine.workers.list():
            await lab.engine.workers.bury(row.info.id, row.beats)
        lab.later(1e6)
        assert await lab.overdue() == []

    async def test_no_more_than_the_limit_is_told(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(not_after=5) for _ in range(7)))
        lab.later(5)
        seen = set()
        for wanted in (3, 3, 1, 0):
            found = (await lab.engine.jobs.overdue(lab.now, 3)).jobs
            assert len(found) == wanted
            for one in found:
                await lab.do(actions.expire(one.job, lab.now))
                seen.add(one.job.id)
        assert seen == {job.id for job in jobs}
