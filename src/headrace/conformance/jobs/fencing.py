"""Fencing: changes that are too late, changes that must be decided again, and cancel against the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.conformance.transactions import apply
from headrace.core.attempt import Completed, Ending, Failed, Released, Snoozed, TimedOut
from headrace.core.change import Applied, Change, Conflict, Verdict, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss
from headrace.core.status import Cause, Reason, Status
from headrace.errors import TransitionRefused

__all__ = ["Fencing"]

Decide = Callable[[Lab, Job], Change]

ENDINGS: dict[str, Decide] = {
    "complete": lambda lab, job: lab.end(job, Completed('"r"')),
    "fail": lambda lab, job: lab.end(job, Failed(error=OOPS)),
    "fail for good": lambda lab, job: lab.end(job, Failed(error=OOPS, reason=Reason.NON_RETRYABLE)),
    "time out": lambda lab, job: lab.end(job, TimedOut()),
    "snooze": lambda lab, job: lab.end(job, Snoozed(30)),
    "release": lambda lab, job: lab.end(job, Released()),
    "lose": lambda lab, job: loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules),
}
ALONE = {
    "complete": Status.COMPLETED,
    "fail": Status.RETRYING,
    "fail for good": Status.FAILED,
    "time out": Status.RETRYING,
    "snooze": Status.SCHEDULED,
    "release": Status.QUEUED,
    "lose": Status.RETRYING,
}
"""Where each leads while no cancel is requested."""

each_ending = pytest.mark.parametrize("name", sorted(ENDINGS))
each_finish = pytest.mark.parametrize("name", sorted(ENDINGS.keys() - {"lose"}))


def cancel(lab: Lab, job: Job) -> Change:
    """Return a cancel that is not a no-op."""
    decided = actions.cancel(job, lab.now, lab.rules)
    assert decided is not None
    return decided


async def once(lab: Lab, change: Change) -> Verdict:
    """Apply one change; return the verdict."""
    return (await lab.apply(change))[0]


async def _again(lab: Lab, change: Change) -> Verdict:
    """Apply a change that has its id already; return the verdict."""
    return (await lab.engine.jobs.apply([change], lab.now))[0]


async def _moved_on(lab: Lab, job: Job) -> Job:
    """Return the job after more has happened to it: it runs elsewhere, or was discarded."""
    if job.status is Status.COMPLETED:
        return await lab.do(actions.discard(job, lab.now))
    if job.status is Status.FAILED:
        job = await lab.do(actions.retry(job, lab.now))
    lab.later(1000)
    [taken] = await lab.claim(await lab.worker())
    return await lab.start(taken)


class Fencing(Part):
    """What ``apply`` promises of a change that comes too late."""

    async def test_a_change_of_an_unknown_job_is_stale(self, lab: Lab) -> None:
        job = lab.job()
        assert await once(lab, cancel(lab, job)) == WasStale(None)
        assert await lab.gone(job)

    async def test_a_change_of_a_pruned_job_is_stale(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work")
        await lab.engine.jobs.delete({Status.FAILED: lab.now})
        assert await once(lab, actions.retry(job, lab.now)) == WasStale(None)
        assert await lab.gone(job)

    @each_ending
    async def test_a_late_finish_of_a_former_owner_is_stale(self, lab: Lab, name: str) -> None:
        old = await lab.running(await lab.worker())
        lost = await lab.do(loss.lose(old, Cause.LEASE, lab.now, 0.5, lab.rules))
        late = ENDINGS[name](lab, old)
        if name == "lose":  # it has no owner: checked by rev alone
            assert await once(lab, late) == Conflict(lost)
        else:
            assert await once(lab, late) == WasStale(lost)
        lab.later(1000)
        [taken] = await lab.claim(await lab.worker())
        again = await lab.start(taken)
        assert await once(lab, late) in (WasStale(again), Conflict(again))
        assert await lab.get(old) == again
        assert len(await lab.attempts(old)) == 1

    async def test_the_same_worker_with_an_older_epoch_is_stale(self, lab: Lab, worker: UUID) -> None:
        old = await lab.running(worker)
        await lab.do(lab.end(old, Released()))
        [taken] = await lab.claim(worker)
        assert await once(lab, lab.end(old, Completed())) == WasStale(taken)

    async def test_a_late_lose_never_overwrites_completed(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        late = ENDINGS["lose"](lab, job)
        done = await lab.finish(job)
        assert await once(lab, late) == Conflict(done)
        assert await lab.get(job) == done

    async def test_two_finishes_of_one_epoch_and_the_first_is_accepted(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        done = await lab.finish(job)
        assert await once(lab, lab.end(job, Failed(error=OOPS))) == WasStale(done)
        assert len(await lab.attempts(job)) == 1

    @each_finish
    async def test_a_repeated_finish_is_answered_as_the_first_time_whatever_came_after_it(
        self, lab: Lab, name: str
    ) -> None:
        finish = lab.stamp(ENDINGS[name](lab, await lab.running(await lab.worker())))
        assert await _again(lab, finish) == Applied(finish.job)
        job = await _moved_on(lab, finish.job)
        attempts = await lab.attempts(job)
        assert await _again(lab, finish) == Applied(finish.job)
        assert (await lab.get(job), await lab.attempts(job)) == (job, attempts), "and nothing more was written"

    @each_finish
    async def test_a_start_that_rode_along_is_recognised_as_well(self, lab: Lab, name: str) -> None:
        held = await lab.held(await lab.worker())
        lab.later(1)
        endings: dict[str, Ending] = {"complete": Completed("1"), "fail": Failed(error=OOPS), "snooze": Snoozed(30)}
        finish = lab.stamp(lab.end(held, endings.get(name, TimedOut()), started_at=lab.now))
        assert await _again(lab, finish) == Applied(finish.job)
        await _moved_on(lab, finish.job)
        assert await _again(lab, finish) == Applied(finish.job)

    async def test_another_word_of_the_same_owner_is_stale_after_that(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        first = lab.stamp(lab.end(job, Failed(error=OOPS)))
        assert await _again(lab, first) == Applied(first.job)
        now = await _moved_on(lab, first.job)
        assert await once(lab, lab.end(job, Completed("1"))) == WasStale(now), "it ended otherwise"
        lab.later(1)
        assert await once(lab, lab.end(job, Failed(error=OOPS))) == WasStale(now), "or at another moment"

    @each_finish
    async def test_the_record_of_an_attempt_is_found_by_its_owner(self, lab: Lab, name: str) -> None:
        job = await lab.running(await lab.worker())
        assert job.worker is not None
        change = ENDINGS[name](lab, job)
        await lab.do(change)
        await _moved_on(lab, change.job)
        history = await lab.engine.records.history(job.id)
        assert history.attempt_of(job.worker, job.epoch) == change.attempt
        assert history.attempt_of(job.worker, job.epoch + 1) is None
        assert history.attempt_of(lab.new_id(), job.epoch) is None

    @each_finish
    async def test_a_repeat_in_a_transaction_is_answered_alike(self, lab: Lab, name: str) -> None:
        finish = lab.stamp(ENDINGS[name](lab, await lab.running(await lab.worker())))
        assert await _again(lab, finish) == Applied(finish.job)
        job = await _moved_on(lab, finish.job)
        async with lab.transactions.transaction() as connection:
            assert await apply(lab, connection, finish) == Applied(finish.job)
        assert await lab.get(job) == job

    async def test_an_owner_whose_job_moved_must_decide_again(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        asked = await lab.cancel(job)
        assert await once(lab, execution.start(job, lab.now, lab.rules)) == Conflict(asked)
        assert await once(lab, lab.end(job, Completed(), started_at=lab.now)) == Conflict(asked)
        assert await lab.get(job) == asked

    async def test_a_buried_workers_finish_is_judged_by_rev_and_epoch_alone(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        assert await lab.engine.workers.bury(worker, 0)
        await lab.finish(job)

    @pytest.mark.parametrize("status", [Status.QUEUED, Status.SCHEDULED, Status.RETRYING])
    async def test_an_act_decided_before_a_claim_is_a_conflict(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work")
        change = cancel(lab, job)
        lab.later(1000)
        [taken] = await lab.claim(await lab.worker())
        assert await once(lab, change) == Conflict(taken)
        assert await lab.get(job) == taken

    async def test_an_act_decided_before_a_promotion_is_a_conflict(self, lab: Lab) -> None:
        job = await lab.put(delay=1)
        lab.later(1)
        assert await lab.engine.jobs.promote(lab.now) == 1
        queued = await lab.get(job)
        assert await once(lab, cancel(lab, job)) == Conflict(queued)

    # -- cancel against the rest

    @pytest.mark.parametrize(
        "status",
        [Status.PENDING, Status.WAITING, Status.SCHEDULED, Status.QUEUED, Status.ASSIGNED, Status.RETRYING],
    )
    async def test_an_unstarted_job_is_cancelled_at_once(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", dedup="k")
        ended = await lab.cancel(job)
        assert (ended.status, ended.reason, ended.worker) == (Status.CANCELLED, Reason.USER, None)
        assert await lab.claim(await lab.worker()) == []
        await lab.put("work", dedup="k")

    @pytest.mark.parametrize("status", [Status.ACCEPTED, Status.RUNNING])
    async def test_a_job_in_a_workers_hands_is_only_asked_to_stop(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work")
        asked = await lab.cancel(job)
        assert (asked.status, asked.epoch, asked.cancel_requested_at) == (status, job.epoch, lab.now)
        assert actions.cancel(asked, lab.at(1), lab.rules) is None, "a second cancel is a no-op"

    @each_ending
    async def test_cancel_then_the_ending(self, lab: Lab, name: str) -> None:
        job = await lab.running(await lab.worker(), dedup="k")
        asked = await lab.cancel(job)
        assert await once(lab, ENDINGS[name](lab, job)) == Conflict(asked), "it was decided before the cancel"
        ended = await lab.do(ENDINGS[name](lab, asked))
        if name == "complete":
            assert (ended.status, ended.reason, ended.result) == (Status.COMPLETED, None, "r")
        else:
            assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.USER)
        assert len(await lab.attempts(job)) == 1
        await lab.put("other")
        await lab.put(dedup="k")

    @each_ending
    async def test_the_ending_then_cancel(self, lab: Lab, name: str) -> None:
        job = await lab.running(await lab.worker())
        late = cancel(lab, job)
        after = await lab.do(ENDINGS[name](lab, job))
        assert after.status is ALONE[name]
        assert await once(lab, late) == Conflict(after), "it was decided before the ending"
        if after.ended:
            with pytest.raises(TransitionRefused) as refused:
                actions.cancel(after, lab.now, lab.rules)
            assert refused.value.job == after
        else:
            ended = await lab.cancel(after)
            assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.USER)

    @each_ending
    async def test_cancel_and_the_ending_at_once(self, lab: Lab, name: str) -> None:
        job = await lab.running(await lab.worker())
        changes = [cancel(lab, job), ENDINGS[name](lab, job)]
        verdicts = await asyncio.gather(*(once(lab, change) for change in changes))
        assert sorted(type(verdict).__name__ for verdict in verdicts) == ["Applied", "Conflict"]
        [made] = [verdict.job for verdict in verdicts if isinstance(verdict, Applied)]
        assert await lab.get(job) == made

    async def test_a_cancelled_job_in_hand_that_never_started_ends_cancelled(self, lab: Lab) -> None:
        job = await lab.cancel(await lab.held(await lab.worker()))
        ended = await lab.do(execution.release(job, lab.now))
        assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.USER)
        assert await lab.attempts(job) == []
