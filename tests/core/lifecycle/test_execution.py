"""What each step of a job's way changes, to the field."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given as sample
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.core.attempt import (
    Attempt,
    Completed,
    Ending,
    ErrorInfo,
    Failed,
    Progress,
    Released,
    Snoozed,
    Streak,
    TimedOut,
)
from headrace.core.change import KeyEffect
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss, submission
from headrace.core.lifecycle.retry import Retry, error_names
from headrace.core.stats.failures import fingerprint
from headrace.core.status import Cause, Outcome, Reason, Status, Verb
from headrace.errors import TransitionRefused
from tests.core.stand import ID, NOW, OOPS, RULES, WORKER, asked, at, end, given, running, stand, started, submitted

PLAIN = Retry(jitter=False)


def differs(before: Job, after: Job) -> dict[str, Any]:
    """The fields that changed, with their new values."""
    return {
        name: getattr(after, name) for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)
    }


def again(job: Job, now: float) -> Job:
    """Due, claimed and started once more."""
    ready = replace(job, status=Status.QUEUED)
    return started(given(ready, now=at(now)), at(now))


# Submit


def test_a_new_job_is_in_line_at_once() -> None:
    job = submitted()
    assert (job.id, job.status, job.rev, job.epoch, job.attempt, job.charged) == (ID, Status.QUEUED, 1, 0, 0, 0)
    assert job.available_at == job.arrived_at == job.updated_at == job.created_at == NOW
    assert (job.worker, job.act_by, job.reason) == (None, None, None)


def test_a_new_job_waits_for_its_time_or_for_others() -> None:
    later = submitted(delay=5)
    assert (later.status, later.available_at, later.arrived_at) == (Status.SCHEDULED, at(5), at(5))
    assert submitted(delay=-5).available_at == NOW
    behind = submitted(delay=5, waits=2)
    assert (behind.status, behind.waits) == (Status.WAITING, 2)
    assert submitted(pending=True, waits=2).status is Status.PENDING


def test_a_last_moment_is_watched() -> None:
    job = submitted(not_after=9)
    assert job.not_after == job.act_by == at(9)


# In line


def test_unblocked_jobs_arrive_when_the_last_parent_ended() -> None:
    job = submitted(waits=1)
    change = submission.unblock(job, at(4))
    assert differs(job, change.job) == {
        "status": Status.QUEUED,
        "waits": 0,
        "available_at": at(4),
        "arrived_at": at(4),
        "updated_at": at(4),
        "rev": 2,
    }
    assert (change.worker, change.epoch, change.rev) == (None, None, 1)


def test_a_refused_payload_ends_the_job_and_frees_its_key() -> None:
    change = submission.admit(submitted(pending=True, dedup="k"), at(1), OOPS)
    assert (change.job.reason, change.job.error, change.job.finished_at) == (Reason.INVALID_PAYLOAD, OOPS, at(1))
    assert change.key is KeyEffect.RELEASE
    assert submission.admit(submitted(pending=True, dedup="k"), at(1)).key is KeyEffect.KEEP


# In a worker's hands


def test_accepting_sets_the_time_to_start_by() -> None:
    job = stand(Status.ASSIGNED)
    change = execution.accept(job, at(3), RULES)
    assert differs(job, change.job) == {
        "status": Status.ACCEPTED,
        "accepted_at": at(3),
        "act_by": at(3 + 30),
        "updated_at": at(3),
        "rev": job.rev + 1,
    }
    assert (change.worker, change.epoch) == (WORKER, job.epoch)


@pytest.mark.parametrize("status", [Status.ASSIGNED, Status.ACCEPTED])
def test_starting_opens_an_attempt(status: Status) -> None:
    job = replace(stand(status, timeout=100.0), unstarted_losses=4)
    change = execution.start(job, at(3), RULES)
    assert differs(job, change.job) == {
        "status": Status.RUNNING,
        "attempt": 1,
        "started_at": at(3),
        "first_started_at": at(3),
        "unstarted_losses": 0,
        "act_by": at(3 + 100 + 7),
        "updated_at": at(3),
        "rev": job.rev + 1,
    }
    assert change.job.timeout_at == at(103)
    assert (change.worker, change.epoch, change.attempt) == (WORKER, job.epoch, None)


def test_a_job_is_started_or_given_back_unless_it_runs() -> None:
    job = given(submitted())
    assert execution.start_or_release(job, NOW, RULES) == execution.start(job, NOW, RULES)
    assert execution.start_or_release(job, NOW, RULES, gives_back=True) == execution.release(job, NOW)
    for gives_back in (False, True):
        assert execution.start_or_release(running(), NOW, RULES, gives_back=gives_back) is None


def test_the_first_start_is_remembered() -> None:
    job = again(end(running(retry=PLAIN), Failed(error=OOPS)).job, 10)
    assert (job.attempt, job.started_at, job.first_started_at) == (2, at(10), NOW)


def test_without_a_timeout_nobody_needs_to_look() -> None:
    job = running(timeout=None)
    assert (job.act_by, job.timeout_at) == (None, None)


def test_progress_leaves_the_rev() -> None:
    job = running()
    report = Progress(50.0, "half", "b", at(9))
    change = execution.progress(job, at(1), report, RULES)
    assert differs(job, change.job) == {"progress": report, "updated_at": at(1)}
    assert (change.rev, change.worker, change.epoch) == (job.rev, WORKER, job.epoch)


@pytest.mark.parametrize(
    ("attempt", "charged", "max_retries", "losses", "may"),
    [
        (0, 0, 3, 0, True),
        (0, 0, 1, 0, True),
        (0, 0, 0, 0, False),  # it may not be repeated
        (0, 0, 3, 1, False),  # lost once, before its start as far as is known
        (1, 0, 3, 0, False),  # the same, after a retry by hand; or it was snoozed or released
        (1, 1, 3, 0, False),  # a retry
        (4, 3, 3, 0, False),
    ],
)
def test_a_start_may_ride_only_in_the_first_attempt_of_a_job_that_may_be_repeated(
    attempt: int, charged: int, max_retries: int, losses: int, may: bool
) -> None:
    job = replace(submitted(retry=Retry(max_retries)), attempt=attempt, charged=charged, unstarted_losses=losses)
    assert execution.start_may_wait(job) is may


@pytest.mark.parametrize("mass", [(True,), (True, True), (False,), (True, False), (False, True)])
def test_what_is_lost_when_several_workers_die_at_once_leaves_no_mark(mass: tuple[bool, ...]) -> None:
    """On record as an attempt, and counted, but its next start may ride again: once."""
    job = submitted(retry=Retry(3))
    for together in mass:
        held = given(job)
        change = loss.lose(held, Cause.LEASE, at(60), 0.5, RULES, mass_death=together)
        assert change.attempt is not None
        assert (change.attempt.number, change.attempt.started_at) == (held.attempt + 1, None)
        job = change.job
    assert (job.attempt, job.unstarted_losses, job.charged, job.suspect) == (len(mass), len(mass), 0, 0)
    assert execution.start_may_wait(job) is (mass == (True,))


@pytest.mark.parametrize("cause", [Cause.START_BY, Cause.BEAT])
def test_only_the_death_of_its_worker_can_be_a_death_among_many(cause: Cause) -> None:
    job = loss.lose(given(submitted()), cause, at(60), 0.5, RULES, mass_death=True).job
    assert (job.unstarted_losses, job.blameless_losses) == (1, 0)


# To its end


def test_completing() -> None:
    job = running(dedup="k")
    change = end(job, Completed('{"x":2}'), now=at(5))
    assert differs(job, change.job) == {
        "status": Status.COMPLETED,
        "result_text": '{"x":2}',
        "charged": 1,
        "progress": Progress(100.0),
        "finished_at": at(5),
        "updated_at": at(5),
        "act_by": None,
        "worker": None,
        "claim": None,
        "epoch": job.epoch + 1,
        "rev": job.rev + 1,
    }
    assert (change.rev, change.worker, change.epoch, change.key) == (job.rev, WORKER, job.epoch, KeyEffect.RELEASE)
    assert change.attempt == Attempt(
        number=1,
        epoch=job.epoch,
        outcome=Outcome.COMPLETED,
        worker=WORKER,
        assigned_at=NOW,
        started_at=NOW,
        finished_at=at(5),
    )


@pytest.mark.parametrize("recorded", [True, False])
def test_a_completed_job_that_was_lost_in_a_power_cut_differs_from_others_in_its_attempts_alone(recorded: bool) -> None:
    lost = loss.lose(given(submitted()), Cause.LEASE, NOW, 0.5, RULES, mass_death=True).job
    assert (lost.attempt, lost.unstarted_losses, lost.blameless_losses) == (1, 1, 1)
    others, ours = (
        execution.finish(started(job) if recorded else job, Completed("1"), at(5), 0.5, RULES, NOW).job
        for job in (given(submitted()), given(lost))
    )
    assert set(differs(others, ours)) == {"attempt", "rev", "epoch"}
    assert (ours.attempt, ours.charged) == (2, 1)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
def test_completing_leaves_most_fields_alone(recorded: bool, cancelled: bool) -> None:
    job = given(submitted(dedup="k", not_after=99))
    failed = execution.finish(started(job), Failed(error=OOPS), at(1), 0.5, RULES).job  # a life before
    job = given(replace(failed, status=Status.QUEUED, unstarted_losses=3, redrives=2), now=at(60))
    if cancelled:
        job = asked(job)
    if recorded:
        job = started(job, at(70))
    done = execution.finish(job, Completed("1"), at(80), 0.5, RULES, at(70)).job
    assert not set(differs(job, done)) & execution.KEPT_BY_COMPLETE
    fields = set(Job.__struct_fields__) - execution.KEPT_BY_COMPLETE
    assert set(differs(job, done)) <= fields
    # What an engine writes without being told.
    assert (done.status, done.worker, done.claim, done.act_by, done.error) == (Status.COMPLETED, None, None, None, None)
    assert (done.unstarted_losses, done.finished_at) == (0, done.updated_at)


def test_a_completed_job_keeps_what_its_progress_said_and_no_old_error() -> None:
    job = replace(running(), progress=Progress(40.0, "words", "step"), error=OOPS)
    done = end(job, Completed()).job
    assert (done.progress, done.error) == (Progress(100.0, "words", "step"), None)


@pytest.mark.parametrize(
    "ending",
    [Completed("1"), Failed(error=OOPS), Snoozed(4), Released(), TimedOut(OOPS)],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("status", [Status.ASSIGNED, Status.ACCEPTED])
def test_a_start_that_rides_along_changes_nothing_but_the_writes(status: Status, ending: Ending) -> None:
    held = stand(status)
    rides = end(held, ending, now=at(5), started_at=at(2))
    alone = end(started(held, at(2)), ending, now=at(5))
    assert rides == replace(alone, rev=held.rev)
    assert rides.job.rev == held.rev + 2
    assert rides.attempt is not None
    assert rides.attempt.started_at == at(2)


def test_a_recorded_start_is_not_made_twice() -> None:
    job = running()
    assert end(job, Completed(), started_at=at(9)) == end(job, Completed())


# Failing


def test_failing_waits_for_the_backoff() -> None:
    job = replace(running(retry=PLAIN, dedup="k"), progress=Progress(5.0), streak=Streak(1, Outcome.SNOOZED))
    change = end(job, Failed(error=OOPS), now=at(5))
    assert differs(job, change.job) == {
        "status": Status.RETRYING,
        "available_at": at(5 + 2),
        "charged": 1,
        "error": OOPS,
        "fingerprint": fingerprint(job.task, OOPS),
        "failed_at": at(5),
        "epoch": job.epoch + 1,
        "rev": job.rev + 1,
        "updated_at": at(5),
        "worker": None,
        "claim": None,
        "assigned_at": None,
        "accepted_at": None,
        "started_at": None,
        "progress": None,
        "act_by": None,
        "streak": None,
    }
    assert change.key is KeyEffect.KEEP
    assert change.attempt is not None
    assert (change.attempt.outcome, change.attempt.error) == (Outcome.FAILED, OOPS)


def test_delays_double_until_the_budget_is_spent() -> None:
    job, delays = running(retry=Retry(5, jitter=False)), list[float]()
    while True:
        job = end(job, Failed(error=OOPS)).job
        if job.status is Status.FAILED:
            break
        delays.append((job.available_at - NOW).total_seconds())
        job = again(job, 0)
    assert delays == [2, 4, 8, 16, 32]
    assert (job.reason, job.attempt, job.charged) == (Reason.RETRIES_EXHAUSTED, 6, 6)


def test_chance_spreads_the_delay() -> None:
    job = running()
    assert end(job, Failed(error=OOPS), chance=0.0).job.available_at == at(1.0)
    assert end(job, Failed(error=OOPS), chance=0.5).job.available_at == at(1.5)


def test_without_retries_the_first_failure_is_the_last() -> None:
    change = end(running(retry=Retry(0), dedup="k"), Failed(error=OOPS))
    assert (change.job.status, change.job.reason, change.key) == (
        Status.FAILED,
        Reason.RETRIES_EXHAUSTED,
        KeyEffect.RELEASE,
    )


@pytest.mark.parametrize("reason", [Reason.NON_RETRYABLE, Reason.INVALID_PAYLOAD, Reason.NO_HANDLER])
def test_a_reason_to_give_up_wins_over_the_budget(reason: Reason) -> None:
    job = end(running(), Failed(error=OOPS, reason=reason, delay=5, names=("ValueError",))).job
    assert (job.status, job.reason, job.charged) == (Status.FAILED, reason, 1)


@pytest.mark.parametrize(
    ("policy", "error", "status"),
    [
        (Retry(retry_on=[OSError]), ConnectionError, Status.RETRYING),
        (Retry(retry_on=["ConnectionError"]), ConnectionError, Status.RETRYING),
        (Retry(retry_on=[OSError]), ValueError, Status.FAILED),
        (Retry(give_up_on=[ValueError]), UnicodeError, Status.FAILED),
        (Retry(give_up_on=[ValueError]), KeyError, Status.RETRYING),
        (Retry(retry_on=[OSError], give_up_on=["ConnectionError"]), ConnectionError, Status.FAILED),
        (Retry(retry_on=["ConnectionError"], give_up_on=[OSError]), ConnectionError, Status.FAILED),
    ],
)
def test_errors_are_retried_as_the_policy_says_and_deny_wins(
    policy: Retry, error: type[BaseException], status: Status
) -> None:
    job = end(running(retry=policy), Failed(error=OOPS, names=error_names(error))).job
    assert job.status is status
    assert job.reason is (Reason.NON_RETRYABLE if status is Status.FAILED else None)


def test_retry_later_overrides_backoff_and_policy_but_not_the_budget() -> None:
    ending = Failed(error=OOPS, delay=77.0, names=error_names(ValueError))
    job = end(running(retry=Retry(1, give_up_on=[ValueError])), ending).job
    assert (job.status, job.available_at, job.charged) == (Status.RETRYING, at(77), 1)
    job = end(again(job, 80), ending).job
    assert (job.status, job.reason) == (Status.FAILED, Reason.RETRIES_EXHAUSTED)


def test_a_failure_after_a_cancel_request_is_charged_and_keeps_its_error() -> None:
    change = end(asked(running(dedup="k")), Failed(error=OOPS))
    assert (change.job.charged, change.job.error, change.key) == (1, OOPS, KeyEffect.RELEASE)
    assert change.attempt is not None
    assert change.attempt.outcome is Outcome.FAILED


# Snoozing and releasing


def test_snoozing_costs_nothing() -> None:
    job = running(not_after=5)
    change = end(job, Snoozed(9), now=at(1))
    after = change.job
    assert (after.status, after.available_at, after.charged, after.attempt) == (Status.SCHEDULED, at(10), 0, 1)
    assert (after.worker, after.act_by, after.streak) == (None, None, Streak(1, Outcome.SNOOZED))
    assert change.attempt is not None
    assert (change.attempt.number, change.attempt.outcome) == (1, Outcome.SNOOZED)


def test_a_run_of_snoozes_shares_the_number_of_the_first() -> None:
    job, numbers = running(retry=PLAIN), list[tuple[int, Outcome]]()
    endings: list[Ending] = [
        Snoozed(0),
        Snoozed(0),
        Released(),
        Released(),
        Released(),
        Snoozed(0),
        Failed(error=OOPS),
        Snoozed(0),
    ]
    for n, ending in enumerate(endings):
        change = end(job, ending, now=at(n))
        assert change.attempt is not None
        numbers.append((change.attempt.number, change.attempt.outcome))
        job = again(change.job, n)
    assert numbers == [
        (1, Outcome.SNOOZED),
        (1, Outcome.SNOOZED),
        (3, Outcome.RELEASED),
        (3, Outcome.RELEASED),
        (3, Outcome.RELEASED),
        (6, Outcome.SNOOZED),
        (7, Outcome.FAILED),
        (8, Outcome.SNOOZED),
    ]
    assert (job.attempt, job.charged) == (9, 1)


def test_releasing_keeps_the_place_in_line() -> None:
    job = given(submitted(not_after=50), now=at(8))
    after = execution.release(job, at(9)).job
    assert (after.status, after.arrived_at, after.available_at, after.act_by) == (Status.QUEUED, NOW, NOW, at(50))
    assert (after.worker, after.attempt, after.unstarted_losses) == (None, 0, 0)
    assert execution.release(job, at(9)).attempt is None


def test_releasing_a_started_job_leaves_a_record_and_no_expiry() -> None:
    change = execution.release(running(not_after=50), at(9))
    assert (change.job.act_by, change.job.charged, change.job.streak) == (None, 0, Streak(1, Outcome.RELEASED))
    assert change.attempt is not None
    assert change.attempt.outcome is Outcome.RELEASED


def test_stopping_after_a_cancel_request_is_a_cancelled_attempt() -> None:
    endings: list[Ending] = [Snoozed(1), Released()]
    for ending in endings:
        change = end(asked(running(dedup="k")), ending)
        assert change.attempt is not None
        assert (change.attempt.outcome, change.job.charged, change.key) == (Outcome.CANCELLED, 0, KeyEffect.RELEASE)
    unstarted = execution.release(asked(stand(Status.ACCEPTED)), NOW)
    assert (unstarted.job.status, unstarted.attempt) == (Status.CANCELLED, None)


# Losing


@pytest.mark.parametrize("cause", list(Cause))
def test_losing_a_started_attempt_is_charged(cause: Cause) -> None:
    change = loss.lose(running(retry=PLAIN), cause, at(5), 0.5, RULES)
    outcome = Outcome.TIMED_OUT if cause is Cause.TIMEOUT else Outcome.LOST
    # The policy has no jitter; what was lost together comes back apart all the same.
    due = {Cause.TIMEOUT: at(7), Cause.LEASE: at(5.15)}.get(cause, at(6.5))
    assert (change.job.status, change.job.charged, change.job.available_at) == (Status.RETRYING, 1, due)
    assert change.attempt is not None
    assert (change.attempt.outcome, change.attempt.cause, change.attempt.error) == (outcome, cause, change.job.error)
    assert change.job.error is not None
    assert change.job.error.type == ("Timeout" if cause is Cause.TIMEOUT else "Lost")
    assert (change.worker, change.epoch) == (None, None), "the sweeper speaks for nobody"


@pytest.mark.parametrize(
    ("cause", "reason"), [(Cause.TIMEOUT, Reason.TIMEOUT), (Cause.LEASE, Reason.LOST), (Cause.BEAT, Reason.LOST)]
)
def test_the_last_loss_ends_the_job(cause: Cause, reason: Reason) -> None:
    change = loss.lose(running(retry=Retry(0), dedup="k"), cause, NOW, 0.5, RULES)
    assert (change.job.status, change.job.reason, change.key) == (Status.FAILED, reason, KeyEffect.RELEASE)


def test_a_worker_says_itself_that_time_ran_out() -> None:
    error = ErrorInfo("Timeout", "mine")
    change = end(running(retry=PLAIN), TimedOut(error))
    assert (change.worker, change.job.error) == (WORKER, error)
    assert change.attempt is not None
    assert (change.attempt.outcome, change.attempt.cause) == (Outcome.TIMED_OUT, Cause.TIMEOUT)


def test_losing_an_offer_leaves_no_attempt() -> None:
    job = stand(Status.ASSIGNED, not_after=50)
    change = loss.lose(job, Cause.ACCEPT_BY, at(30), 0.5, RULES)
    after = change.job
    assert (change.attempt, after.attempt, after.unstarted_losses, after.charged) == (None, 0, 1, 0)
    assert (after.arrived_at, after.act_by, after.epoch) == (NOW, at(50), job.epoch + 1)


def test_losing_an_accepted_job_leaves_a_record_with_unknown_start() -> None:
    job = replace(stand(Status.ACCEPTED), streak=Streak(1, Outcome.RELEASED), attempt=2)
    change = loss.lose(job, Cause.START_BY, at(30), 0.5, RULES)
    assert change.attempt is not None
    assert (change.attempt.number, change.attempt.outcome, change.attempt.started_at) == (3, Outcome.LOST, None)
    assert (change.job.attempt, change.job.charged, change.job.streak) == (3, 0, None)


def test_ten_losses_before_a_start_are_undeliverable() -> None:
    job = submitted(dedup="k")
    for losses in range(1, 11):
        change = loss.lose(given(job), Cause.START_BY, NOW, 0.5, RULES)
        job = change.job
        assert job.unstarted_losses == losses
        assert (job.status is Status.QUEUED) is (losses < 10)
    assert (job.reason, job.charged, job.attempt, change.key) == (Reason.UNDELIVERABLE, 0, 10, KeyEffect.RELEASE)
    assert job.error is not None
    assert "10 times" in job.error.message


def test_losing_a_cancelled_accepted_job_ends_it_and_keeps_the_record() -> None:
    change = loss.lose(asked(stand(Status.ACCEPTED, dedup="k")), Cause.CANCEL, at(30), 0.5, RULES)
    assert (change.job.status, change.job.reason, change.key) == (Status.CANCELLED, Reason.USER, KeyEffect.RELEASE)
    assert change.attempt is not None
    assert change.attempt.outcome is Outcome.LOST


# Whatever happens

_ENDINGS = st.sampled_from(
    [Completed(), Failed(error=OOPS), Failed(error=OOPS, delay=1.0), Snoozed(2), Released(), TimedOut()]
)


@sample(st.lists(st.tuples(_ENDINGS, st.floats(0, 0.999), st.booleans()), max_size=30), st.integers(0, 4))
def test_revs_and_epochs_only_grow_and_the_budget_holds(
    steps: list[tuple[Ending, float, bool]], max_retries: int
) -> None:
    job, charged = submitted(retry=Retry(max_retries)), 0
    for n, (ending, chance, rides) in enumerate(steps):
        if job.ended:
            break
        now = NOW + timedelta(hours=n)
        held = given(replace(job, status=Status.QUEUED), now=now)
        assert held.epoch > job.epoch
        assert held.charged < held.max_attempts, "no attempt is started beyond the budget"
        if rides:
            change = execution.finish(held, ending, now, chance, RULES, started_at=now)
        else:
            change = execution.finish(started(held, now), ending, now, chance, RULES)
        assert change.attempt is not None
        charged += change.attempt.outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT)
        assert change.job.charged == charged <= job.max_attempts
        assert change.job.epoch > held.epoch
        assert change.job.rev > held.rev >= job.rev
        job = change.job


_FATES = st.sampled_from(
    ["lost before the call", "dies in the call", "dies after a second", "fails", "snoozes", "is released", "is retried"]
)


@sample(st.lists(_FATES, max_size=40), st.integers(0, 3))
def test_handler_calls_keep_to_the_budget_whenever_workers_die(fates: list[str], max_retries: int) -> None:
    """Per redrive no more calls than the budget, but for one unrecorded in the whole life of the job."""
    job, calls, unrecorded = submitted(retry=Retry(max_retries)), 0, 0
    for n, fate in enumerate(fates):
        now = NOW + timedelta(hours=n)
        if job.ended:
            if fate != "is retried":
                continue
            job, calls = actions.retry(job, now).job, 0
        held = given(replace(job, status=Status.QUEUED), now=now)
        if fate == "lost before the call":
            job = loss.lose(held, Cause.LEASE, now, 0.5, RULES).job
            continue
        rides = execution.start_may_wait(held)
        if rides and fate == "dies in the call":
            job, unrecorded = loss.lose(held, Cause.LEASE, now, 0.5, RULES).job, unrecorded + 1
            continue
        on_record = started(held, now)
        if fate == "snoozes":
            job = execution.finish(on_record, Snoozed(1), now, 0.5, RULES).job
        elif fate == "is released":
            job = execution.release(on_record, now).job
        else:
            calls += 1
            if fate == "fails":
                job = execution.finish(on_record, Failed(error=OOPS), now, 0.5, RULES).job
            else:
                job = loss.lose(on_record, Cause.LEASE, now, 0.5, RULES).job
        assert calls <= job.max_attempts
        assert unrecorded <= 1
    assert not (unrecorded and max_retries == 0)


def test_rules_are_passed_in() -> None:
    rules = Rules(start=1, accept=2, timeout_slack=3)
    assert execution.accept(stand(Status.ASSIGNED), NOW, rules).job.act_by == at(1)
    assert execution.start(stand(Status.ASSIGNED, timeout=4.0), NOW, rules).job.act_by == at(4), (
        "three seconds are for the sweeper"
    )


def test_a_refusal_names_job_verb_and_status() -> None:
    job = stand(Status.COMPLETED)
    with pytest.raises(TransitionRefused, match=f"cannot start job {job.id}: it is completed") as refused:
        execution.start(job, NOW, RULES)
    assert (refused.value.job, refused.value.verb) == (job, Verb.START)


# Preparing


def test_preparing_renews_the_start_up_to_the_timeout() -> None:
    job = given(submitted(timeout=50.0), accept=False)
    change = execution.prepare(job, at(10), RULES)
    assert (change.job.status, change.job.accepted_at, change.job.act_by) == (Status.ACCEPTED, at(10), at(40))
    assert (change.worker, change.epoch) == (job.worker, job.epoch), "only its worker prepares"
    later = execution.prepare(change.job, at(35), RULES).job
    assert (later.accepted_at, later.act_by) == (at(10), at(50))
    with pytest.raises(TransitionRefused, match=r"its worker has prepared for as long as it may run .50 s."):
        execution.prepare(later, at(50), RULES)


def test_without_a_timeout_a_worker_may_prepare_for_ever() -> None:
    assert execution.prepare(given(submitted(timeout=None)), at(9999), RULES).job.act_by == at(9999 + 30)


def test_preparing_does_not_outlast_a_cancel() -> None:
    job = asked(given(submitted()), at(1))
    assert execution.prepare(job, at(25), RULES).job.act_by == at(1 + 20 + 10)


# Heartbeats


def test_a_job_with_a_heartbeat_is_checked_after_the_sooner_of_both() -> None:
    job = stand(Status.ACCEPTED, timeout=100.0, heartbeat=60.0)
    running = execution.start(job, NOW, RULES).job
    assert running.act_by == at(60 + 7)
    assert execution.start(stand(Status.ACCEPTED, timeout=50.0, heartbeat=60.0), NOW, RULES).job.act_by == at(50 + 7)
    assert execution.start(stand(Status.ACCEPTED, timeout=None, heartbeat=60.0), NOW, RULES).job.act_by == at(60 + 7)
    signed = execution.sign(running, at(30), RULES)
    assert signed is not None
    assert (signed.verb, signed.rev, signed.epoch, signed.worker) == (Verb.PROGRESS, running.rev, running.epoch, WORKER)
    assert differs(running, signed.job) == {"act_by": at(90 + 7), "updated_at": at(30)}
    reported = execution.progress(signed.job, at(45), Progress(10.0), RULES)
    assert reported.job.act_by == at(100 + 7), "its timeout is sooner than 45 + 60"
    assert reported.job.rev == running.rev


def test_signs_move_no_deadline_back_and_none_of_other_jobs() -> None:
    job = execution.start(stand(Status.ACCEPTED, heartbeat=60.0), NOW, RULES).job
    later = execution.sign(job, at(30), RULES)
    assert later is not None
    assert execution.sign(later.job, at(20), RULES) is None, "one that another hub was told of before"
    assert execution.sign(running(), at(20), RULES) is None
    assert "act_by" not in differs(running(), execution.progress(running(), at(20), Progress(1.0), RULES).job)
    with pytest.raises(TransitionRefused):
        execution.sign(stand(Status.COMPLETED, heartbeat=60.0), at(20), RULES)


def test_a_cancel_ends_a_job_that_gives_signs() -> None:
    job = execution.start(stand(Status.ACCEPTED, timeout=None, heartbeat=60.0), NOW, RULES).job
    change = actions.cancel(job, at(10), RULES)
    assert change is not None
    signed = execution.sign(change.job, at(39), RULES)
    assert signed is None, "what is left is the time to stop"
    assert change.job.act_by == at(10 + 20 + 10)


def test_the_heartbeat_of_the_page_binds_workers_behind_a_hub() -> None:
    job = stand(Status.ACCEPTED, timeout=None, remote_heartbeat=60.0)
    assert execution.start(job, NOW, RULES).job.act_by is None
    running = execution.start(job, NOW, RULES, remote=True).job
    assert running.act_by == at(60 + 7)
    assert execution.sign(running, at(10), RULES) is None
    assert execution.progress(running, at(10), Progress(1.0), RULES, remote=True).job.act_by == at(70 + 7)
    own = stand(Status.ACCEPTED, timeout=None, heartbeat=5.0, remote_heartbeat=60.0)
    assert execution.start(own, NOW, RULES, remote=True).job.act_by == at(5 + 7), "the job's own counts for all"
