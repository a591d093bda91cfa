"""Apply: every verb's change and its effects, and repeats of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import (
    Attempt,
    Completed,
    Ending,
    ErrorInfo,
    Event,
    Failed,
    Progress,
    Released,
    Snoozed,
    TimedOut,
)
from headrace.core.change import Applied, Conflict, WasStale
from headrace.core.lifecycle import actions, execution, loss, submission
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import ENDED, Cause, Outcome, Reason, Status
from headrace.engine import MAX_BATCH, Duplicated, FindsChanged

__all__ = ["Applying"]


class Applying(Part):
    """What ``apply`` promises of a change with a current rev and owner."""

    async def test_nothing_to_apply_is_no_error(self, lab: Lab) -> None:
        assert await lab.apply() == []

    async def test_admit_and_unblock_put_a_job_in_line(self, lab: Lab) -> None:
        admitted = await lab.do(submission.admit(await lab.put(pending=True), lab.now))
        lab.later(1)
        freed = await lab.do(submission.unblock(await lab.put(waits=1), lab.now))
        refused = await lab.do(submission.admit(await lab.put(pending=True), lab.now, OOPS))
        orphan = await lab.do(submission.unblock(await lab.put(waits=1), lab.now, as_asked=False))
        assert (refused.reason, orphan.reason) == (Reason.INVALID_PAYLOAD, Reason.PARENT)
        assert [job.id for job in await lab.claim(await lab.worker())] == [admitted.id, freed.id]

    async def test_accept_and_start_are_recorded(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker(), accept=False)
        lab.later(1)
        job = await lab.do(execution.accept(job, lab.now, lab.rules))
        assert (job.status, job.accepted_at) == (Status.ACCEPTED, lab.now)
        lab.later(1)
        job = await lab.start(job)
        assert (job.status, job.attempt, job.started_at, job.first_started_at) == (Status.RUNNING, 1, lab.now, lab.now)
        assert await lab.attempts(job) == [], "an attempt is on record when it is over"

    @pytest.mark.parametrize("seconds", [None, 0.0, 1e-7, 2.345678901234, 86400.5])
    @pytest.mark.parametrize("ending", [Completed("1"), Failed(error=OOPS), TimedOut(), Snoozed(30), Released()])
    async def test_how_long_the_handler_took_and_when_it_is_tried_again_are_kept(
        self, lab: Lab, ending: Ending, seconds: float | None
    ) -> None:
        jobs = await lab.running(await lab.worker()), await lab.running(await lab.worker(), batch=lab.new_id())
        for job in jobs:
            change = execution.finish(job, ending, lab.at(3), 0.5, lab.rules, processing_time=seconds)
            await lab.do(change)
            assert change.attempt is not None
            assert change.attempt.processing_time == seconds
            retried = change.job.status is Status.RETRYING
            assert change.attempt.retry_at == (change.job.available_at if retried else None)
            assert await lab.attempts(job) == [change.attempt]

    async def test_complete_keeps_result_and_attempt(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        began = lab.now
        lab.later(3)
        done = await lab.finish(job, Completed('{"x":1}'))
        assert (done.status, done.result, done.charged, done.worker) == (Status.COMPLETED, {"x": 1}, 1, None)
        assert done.epoch > job.epoch
        assert await lab.attempts(job) == [
            Attempt(
                number=1,
                epoch=job.epoch,
                outcome=Outcome.COMPLETED,
                worker=worker,
                assigned_at=began,
                started_at=began,
                finished_at=lab.now,
            )
        ]

    async def test_a_start_may_ride_with_the_finish(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        began = lab.later(1)
        lab.later(1)
        done = await lab.do(lab.end(job, Completed("2"), started_at=began))
        assert (done.attempt, done.started_at, done.finished_at) == (1, began, lab.now)
        [attempt] = await lab.attempts(job)
        assert (attempt.number, attempt.started_at, attempt.finished_at) == (1, began, lab.now)

    async def test_every_way_through_the_budget_is_on_record(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, retry=Retry(4, backoff=[1], jitter=False), timeout=5)
        error = ErrorInfo("ValueError", "no", "trace", {"a": [1]})
        job = await lab.finish(job, Failed(error=error))
        assert (job.status, job.available_at) == (Status.RETRYING, lab.at(1))
        wanted: list[tuple[int, Outcome, ErrorInfo | None, str | None]] = [(1, Outcome.FAILED, error, None)]
        for number, ending in enumerate([TimedOut(OOPS), Failed(error=OOPS, delay=7), None], 2):
            lab.later(10)
            [taken] = await lab.claim(worker)
            job = await lab.start(taken)
            if ending is None:
                job = await lab.do(loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules))
                wanted.append((number, Outcome.LOST, job.error, Cause.LEASE))
            else:
                job = await lab.finish(job, ending)
                outcome = Outcome.TIMED_OUT if isinstance(ending, TimedOut) else Outcome.FAILED
                wanted.append((number, outcome, OOPS, Cause.TIMEOUT if isinstance(ending, TimedOut) else None))
        assert job.status is Status.RETRYING
        lab.later(10)
        [taken] = await lab.claim(worker)
        job = await lab.finish(await lab.start(taken), Failed(error=OOPS))
        wanted.append((5, Outcome.FAILED, OOPS, None))
        assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.RETRIES_EXHAUSTED, 5)
        found = await lab.attempts(job)
        assert [(one.number, one.outcome, one.error, one.cause) for one in found] == wanted
        assert all(one.worker == worker and one.count == 1 for one in found)
        lab.later(1e6)
        assert await lab.claim(worker) == []

    async def test_snoozes_fold_into_one_record(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        began = lab.now
        for _ in range(3):
            lab.later(1)
            await lab.finish(job, Snoozed(5))
            ended = lab.now
            lab.later(5)
            [taken] = await lab.claim(worker)
            job = await lab.start(taken)
        [one] = await lab.attempts(job)
        assert (one.number, one.outcome, one.count) == (1, Outcome.SNOOZED, 3)
        assert (one.started_at, one.finished_at) == (began, ended)
        assert (job.attempt, job.charged) == (4, 0)

    async def test_only_equal_neighbours_fold(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, retry=Retry(5, backoff=[0], jitter=False))
        for ending in (Snoozed(0), Snoozed(0), Released(), Released(), Failed(error=OOPS), Snoozed(0), Completed()):
            job = await lab.finish(job, ending)
            if not job.ended:
                [taken] = await lab.claim(worker)
                job = await lab.start(taken)
        assert [(one.number, one.outcome, one.count) for one in await lab.attempts(job)] == [
            (1, Outcome.SNOOZED, 2),
            (3, Outcome.RELEASED, 2),
            (5, Outcome.FAILED, 1),
            (6, Outcome.SNOOZED, 1),
            (7, Outcome.COMPLETED, 1),
        ]

    async def test_release_hands_back_and_another_may_take_it(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        back = await lab.do(execution.release(job, lab.now))
        assert (back.status, back.worker, back.claim, back.assigned_at) == (Status.QUEUED, None, None, None)
        [again] = await lab.claim(await lab.worker())
        assert again.epoch > back.epoch > job.epoch
        assert await lab.attempts(job) == []

    async def test_losses_before_the_start_end_undeliverable(self, lab: Lab) -> None:
        job = await lab.put(dedup="k")
        for count in range(1, lab.rules.undeliverable_after + 1):
            [taken] = await lab.claim(await lab.worker())
            job = await lab.do(loss.lose(taken, Cause.START_BY, lab.now, 0.5, lab.rules))
            assert job.unstarted_losses == count
        assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.UNDELIVERABLE, 0)
        assert [(one.outcome, one.started_at) for one in await lab.attempts(job)] == [(Outcome.LOST, None)] * 10
        await lab.put(dedup="k")

    async def test_what_people_do_is_kept_oldest_first(self, lab: Lab) -> None:
        cancel = actions.cancel(await lab.put(), lab.now, lab.rules, by="ann")
        job = await lab.do(cancel)
        retry = actions.retry(job, lab.later(1), by="bob")
        job = await lab.do(retry)
        resolve = actions.resolve(job, lab.later(1), result_text="3", note="by hand")
        job = await lab.do(resolve)
        discard = actions.discard(job, lab.later(1), by="eve", note="wrong")
        job = await lab.do(discard)
        assert cancel is not None
        wanted = [change.event for change in (cancel, retry, resolve, discard)]
        assert list((await lab.engine.records.history(job.id)).events) == wanted
        assert discard.event == Event("discard", lab.now, "eve", "wrong")

    async def test_expire_ends_what_missed_its_moment(self, lab: Lab) -> None:
        job = await lab.put(not_after=5, dedup="k")
        lab.later(5)
        ended = await lab.do(actions.expire(job, lab.now))
        assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.EXPIRED)
        await lab.put(dedup="k")

    # -- progress

    async def test_progress_leaves_the_rev(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        lab.later(1)
        reported = await lab.do(execution.progress(job, lab.now, Progress(50.0, "half"), lab.rules))
        assert (reported.rev, reported.epoch, reported.updated_at) == (job.rev, job.epoch, lab.now)
        done = await lab.do(lab.end(job, Completed("1")))  # decided before the report: the rev is still current
        assert done.progress == Progress(100.0)

    async def test_progress_is_fenced_like_everything_else(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        asked = await lab.cancel(job)
        report = execution.progress(job, lab.now, Progress(1.0), lab.rules)
        assert await lab.apply(report) == [Conflict(asked)]
        lost = await lab.do(loss.lose(asked, Cause.LEASE, lab.now, 0.5, lab.rules))
        assert await lab.apply(report) == [WasStale(lost)]
        assert await lab.get(job) == lost

    async def test_a_sign_moves_the_deadline_and_leaves_the_rev(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), heartbeat=60, timeout=100)
        assert job.act_by == lab.at(60 + lab.rules.timeout_check)
        lab.later(30)
        signed = await lab.do(execution.sign(job, lab.now, lab.rules))
        assert signed == replace(job, act_by=lab.at(60 + lab.rules.timeout_check), updated_at=lab.now)
        assert await lab.get(job) == signed
        lab.later(30)
        reported = await lab.do(execution.progress(signed, lab.now, Progress(50.0), lab.rules))
        assert reported.act_by == lab.at(40 + lab.rules.timeout_check), "its timeout is sooner"
        done = await lab.do(lab.end(job, Completed("1")))  # decided before the signs: the rev is still current
        assert (done.status, done.act_by) == (Status.COMPLETED, None)

    async def test_what_has_changed_is_found_without_reading_it(self, lab: Lab, worker: UUID) -> None:
        if not isinstance(lab.engine.jobs, FindsChanged):
            return  # an engine may omit it
        silent, reported, started = [await lab.held(worker) for _ in range(3)]
        still, cancelled, unknown = await lab.put(delay=60), await lab.put(delay=60), lab.job()
        silent, reported = await lab.start(silent), await lab.start(reported)
        known = [silent, reported, started, still, cancelled, unknown]
        await lab.do(execution.progress(reported, lab.now, Progress(50.0), lab.rules))
        await lab.start(started)
        await lab.cancel(cancelled)
        found = await lab.engine.jobs.changed([(job.id, job.rev) for job in known])
        assert set(found) == {reported.id, started.id, cancelled.id, unknown.id}
        assert len(found) == 4
        assert await lab.engine.jobs.changed([]) == []

    # -- keys

    async def test_retry_takes_the_key_again(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work", dedup="k")
        again = await lab.do(actions.retry(job, lab.now))
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(again)]

    @pytest.mark.parametrize("status", sorted(ENDED - {Status.COMPLETED}))
    async def test_a_key_held_by_another_is_a_conflict_that_names_it(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", dedup="k")
        before, holder = await lab.engine.records.history(job.id), await lab.put(dedup="k")
        assert await lab.apply(actions.retry(job, lab.now)) == [Conflict(job, holder)]
        assert await lab.get(job) == job
        assert await lab.engine.records.history(job.id) == before
        await lab.cancel(holder)
        await lab.do(actions.retry(job, lab.now))

    async def test_a_job_never_frees_the_key_of_another(self, lab: Lab) -> None:
        old = await lab.stand(Status.FAILED, "work", dedup="k")
        holder = await lab.put(dedup="k")
        await lab.do(actions.discard(old, lab.now))
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(holder)]

    async def test_a_key_passes_on_in_the_order_of_the_batch(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work", dedup="k")
        holder = await lab.put(dedup="k")
        take, release = actions.retry(job, lab.now), actions.cancel(holder, lab.now, lab.rules)
        assert release is not None
        assert await lab.apply(take, release) == [Conflict(job, holder), Applied(release.job)]
        last = await lab.put(dedup="k")
        release = actions.cancel(last, lab.now, lab.rules)
        assert release is not None
        assert await lab.apply(release, take) == [Applied(release.job), Applied(take.job)]

    # -- batches

    async def test_a_full_batch_is_applied_each_by_itself(self, lab: Lab, worker: UUID) -> None:
        await lab.put_all(*(lab.job() for _ in range(MAX_BATCH)))
        jobs = await lab.claim(worker, MAX_BATCH)
        gone, moved, lost = jobs[10], jobs[500], jobs[990]
        asked = await lab.cancel(moved)
        taken = await lab.do(loss.lose(lost, Cause.LEASE, lab.now, 0.5, lab.rules))
        dropped = await lab.do(lab.end(gone, Completed(), started_at=lab.now))
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now}) == 1
        assert dropped.ended
        changes = [lab.end(job, Completed(f"{n}"), started_at=lab.now) for n, job in enumerate(jobs)]
        verdicts = await lab.apply(*changes)
        odd = {10: WasStale(None), 500: Conflict(asked), 990: WasStale(taken)}
        assert verdicts == [odd.get(n) or Applied(change.job) for n, change in enumerate(changes)]
        assert (await lab.engine.records.ledger()).ended == MAX_BATCH - 3

    # -- repeats

    async def test_a_repeated_change_is_applied_once(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), dedup="k")
        change = lab.stamp(lab.end(job, Completed("1")))
        for _ in range(3):
            assert await lab.engine.jobs.apply([change], lab.now) == [Applied(change.job)]
        assert await lab.get(job) == change.job
        assert len(await lab.attempts(job)) == 1

    async def test_a_repeated_snooze_is_counted_once(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        change = lab.stamp(lab.end(job, Snoozed(0)))
        await lab.engine.jobs.apply([change], lab.now)
        await lab.engine.jobs.apply([change], lab.now)
        assert [one.count for one in await lab.attempts(job)] == [1]

    async def test_a_repeat_is_known_although_progress_was_reported_since(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        start = lab.stamp(execution.start(job, lab.now, lab.rules))
        report = lab.stamp(execution.progress(start.job, lab.now, Progress(50.0), lab.rules))
        for change in (start, report, report, start):
            [verdict] = await lab.engine.jobs.apply([change], lab.now)
            assert isinstance(verdict, Applied), change.verb
        assert (await lab.get(job)).progress == Progress(50.0)

    async def test_a_repeat_is_known_after_the_job_was_promoted_and_claimed(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Snoozed(1)))
        assert await lab.engine.jobs.apply([change], lab.now) == [Applied(change.job)]
        lab.later(1)
        [taken] = await lab.claim(await lab.worker())
        assert await lab.engine.jobs.apply([change], lab.now) == [Applied(change.job)]
        assert await lab.get(job) == taken
        assert [one.count for one in await lab.attempts(job)] == [1]

    async def test_a_repeated_retry_is_not_stopped_by_its_own_key(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work", dedup="k")
        change = lab.stamp(actions.retry(job, lab.now, by="ann"))
        for _ in range(2):
            assert await lab.engine.jobs.apply([change], lab.now) == [Applied(change.job)]
        assert len((await lab.engine.records.history(job.id)).events) == 1

    async def test_the_same_decision_by_two_is_applied_for_one(self, lab: Lab) -> None:
        job = await lab.put()
        decided = actions.cancel(job, lab.now, lab.rules)
        assert decided is not None
        first, second = lab.stamp(decided), lab.stamp(decided)
        assert await lab.engine.jobs.apply([first], lab.now) == [Applied(first.job)]
        assert await lab.engine.jobs.apply([second], lab.now) == [Conflict(first.job)]
        assert len((await lab.engine.records.history(job.id)).events) == 1

    async def test_a_repeated_batch_applies_only_what_is_new(self, lab: Lab, worker: UUID) -> None:
        await lab.put_all(*(lab.job() for _ in range(6)))
        changes = [
            lab.stamp(lab.end(job, Completed(), started_at=lab.now + timedelta())) for job in await lab.claim(worker)
        ]
        await lab.engine.jobs.apply(changes[:4], lab.now)
        assert await lab.engine.jobs.apply(changes, lab.now) == [Applied(change.job) for change in changes]
        assert [len(await lab.attempts(change.job)) for change in changes] == [1] * 6
