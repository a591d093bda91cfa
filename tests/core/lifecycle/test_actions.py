"""What people and programs do to a job, to the field."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Event, Streak
from headrace.core.change import KeyEffect
from headrace.core.defaults import Retention
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.retention import is_past
from headrace.core.status import ENDED, LIVE, Outcome, Reason, Status
from headrace.errors import TransitionRefused
from tests.core.stand import NOW, OTHER, RULES, asked, at, running, stand, submitted

# Cancel


@pytest.mark.parametrize(
    "status",
    [Status.PENDING, Status.WAITING, Status.SCHEDULED, Status.QUEUED, Status.ASSIGNED, Status.RETRYING],
)
def test_cancelling_what_has_not_begun_ends_it(status: Status) -> None:
    job = stand(status, dedup="k")
    change = actions.cancel(job, at(5), RULES, by="ann")
    assert change is not None
    after = change.job
    assert (after.reason, after.finished_at, after.worker, after.act_by) == (Reason.USER, at(5), None, None)
    assert after.epoch == job.epoch + job.held, "an owner that loses the job is fenced off"
    assert (change.key, change.event) == (KeyEffect.RELEASE, Event("cancel", at(5), "ann"))
    assert (change.worker, change.epoch, change.attempt) == (None, None, None)


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.RUNNING])
def test_cancelling_what_may_be_executing_asks_for_it(status: Status) -> None:
    job = stand(status, dedup="k", timeout=None)
    change = actions.cancel(job, at(5), RULES)
    assert change is not None
    assert (change.job.status, change.job.cancel_requested_at, change.job.epoch) == (status, at(5), job.epoch)
    assert (change.key, change.job.worker, change.job.rev) == (KeyEffect.KEEP, job.worker, job.rev + 1)


@pytest.mark.parametrize(("timeout", "act_by"), [(None, 5 + 20 + 10), (1000.0, 5 + 20 + 10), (1.0, 1 + 7)])
def test_the_sweeper_ends_a_cancel_nobody_obeys(timeout: float | None, act_by: float) -> None:
    change = actions.cancel(running(timeout=timeout), at(5), RULES)
    assert change is not None
    assert change.job.act_by == at(act_by)


def test_a_second_cancel_is_a_no_op() -> None:
    assert actions.cancel(asked(running()), at(9), RULES) is None
    assert actions.cancel(asked(stand(Status.ACCEPTED)), at(9), RULES) is None
    assert actions.cancel(stand(Status.CANCELLED), at(9), RULES) is None


# Retry


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_retry_gives_a_new_budget(status: Status) -> None:
    job = replace(stand(status, dedup="k"), charged=4, unstarted_losses=3, redrives=1, cancel_requested_at=NOW)
    job = replace(job, streak=Streak(1, Outcome.SNOOZED))
    change = actions.retry(job, at(100), by="bob")
    after = change.job
    assert (after.id, after.charged, after.unstarted_losses, after.redrives) == (job.id, 0, 0, 2)
    assert (after.cancel_requested_at, after.finished_at, after.reason, after.worker) == (None, None, None, None)
    assert (after.progress, after.streak, after.attempt) == (None, None, job.attempt)
    assert after.available_at == after.arrived_at == at(100)
    assert (change.key, change.event) == (KeyEffect.TAKE, Event("retry", at(100), "bob"))
    assert after.epoch == job.epoch
    assert actions.retry(stand(status), NOW).key is KeyEffect.KEEP


def test_retry_drops_only_a_last_moment_that_passed() -> None:
    expired = actions.expire(submitted(not_after=5), at(5)).job
    after = actions.retry(expired, at(9)).job
    assert (after.not_after, after.act_by) == (None, None)
    cancelled = stand(Status.CANCELLED, not_after=50)
    after = actions.retry(cancelled, at(9)).job
    assert (after.not_after, after.act_by) == (at(50), at(50))
    begun = stand(Status.FAILED, not_after=50)
    after = actions.retry(begun, at(9)).job
    assert (after.not_after, after.act_by) == (at(50), None)


def test_a_discarded_job_can_only_be_rerun() -> None:
    job = actions.discard(stand(Status.FAILED), NOW).job
    with pytest.raises(TransitionRefused, match="rerun"):
        actions.retry(job, NOW)
    with pytest.raises(TransitionRefused):
        actions.discard(job, NOW)
    with pytest.raises(TransitionRefused):
        actions.resolve(job, NOW, result_text="1")
    assert actions.rerun(job, OTHER, NOW).spec.rerun_of == job.id


# Discard and resolve


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_discarding_keeps_what_there_was(status: Status) -> None:
    job = stand(status, dedup="k")
    change = actions.discard(job, at(9), by="eve", note="wrong")
    after = change.job
    assert (after.result_text, after.error, after.finished_at) == (job.result_text, job.error, job.finished_at)
    assert (change.key, change.event) == (KeyEffect.KEEP, Event("discard", at(9), "eve", "wrong"))


def test_resolving_sets_the_end_by_hand() -> None:
    job = submitted(dedup="k")
    change = actions.resolve(job, at(9), result_text='{"a":1}', by="eve", note="by hand")
    assert (change.job.result, change.job.finished_at, change.job.error) == ({"a": 1}, at(9), None)
    assert (change.key, change.event) == (KeyEffect.RELEASE, Event("resolve", at(9), "eve", "by hand"))
    error = ErrorInfo("No", "way")
    change = actions.resolve(job, at(9), error=error)
    assert (change.job.error, change.job.reason, change.job.result_text) == (error, Reason.NON_RETRYABLE, None)
    assert actions.resolve(job, at(9)).job.result_text == "null"


def test_resolving_a_dead_letter_completes_it() -> None:
    job = stand(Status.FAILED, dedup="k")
    change = actions.resolve(job, at(9), result_text="1")
    assert (change.job.status, change.job.reason, change.job.error) == (Status.COMPLETED, None, None)
    assert change.key is KeyEffect.KEEP, "it holds no key any more; another may"


# Rerun


def test_a_rerun_is_a_new_job_outside_the_family() -> None:
    old = stand(
        Status.FAILED,
        queue="q",
        priority=3,
        tags=("t",),
        metadata={"m": 1},
        dedup="k",
        parent=OTHER,
        root=OTHER,
        batch=OTHER,
        after=(OTHER,),
        schedule="s",
        fire_at=NOW,
        request_key="r",
        request_hash="h",
    )
    new = actions.rerun(old, OTHER, at(50))
    assert new.id == OTHER
    assert (new.status, new.rev, new.attempt, new.charged, new.redrives) == (Status.QUEUED, 1, 0, 0, 0)
    assert new.payload_text == old.payload_text
    kept = replace(
        old.spec,
        created_at=at(50),
        rerun_of=old.id,
        parent=None,
        root=None,
        batch=None,
        after=(),
        schedule=None,
        fire_at=None,
        request_key=None,
        request_hash=None,
    )
    assert new.spec == kept


def test_a_rerun_keeps_only_a_last_moment_to_come() -> None:
    old = stand(Status.CANCELLED, not_after=50)
    assert actions.rerun(old, OTHER, at(49)).not_after == at(50)
    assert actions.rerun(old, OTHER, at(50)).not_after is None


# Expire and prune


def test_a_job_expires_at_its_last_moment_unless_it_was_started() -> None:
    job = submitted(not_after=10, dedup="k")
    with pytest.raises(TransitionRefused, match="has not passed"):
        actions.expire(job, at(9.999999))
    change = actions.expire(job, at(10))
    assert (change.job.finished_at, change.job.act_by, change.key) == (at(10), None, KeyEffect.RELEASE)
    snoozed = replace(job, status=Status.SCHEDULED, first_started_at=NOW)
    with pytest.raises(TransitionRefused):
        actions.expire(snoozed, at(100))
    with pytest.raises(TransitionRefused):
        actions.expire(submitted(), at(100))


@pytest.mark.parametrize("status", sorted(LIVE))
def test_live_jobs_are_kept_for_ever(status: Status) -> None:
    assert not is_past(stand(status), Retention(completed=0, failed=0, cancelled=0).cutoffs(at(1e9)), at(1e9))


@pytest.mark.parametrize("status", sorted(ENDED))
def test_ended_jobs_are_kept_for_their_retention(status: Status) -> None:
    job, retention = stand(status), Retention()
    days = 7 if status is Status.COMPLETED else 30
    assert not is_past(job, retention.cutoffs(at(days * 86400 - 0.001)), at(days * 86400 - 0.001))
    assert is_past(job, retention.cutoffs(at(days * 86400)), at(days * 86400))
    assert retention.cutoffs(at(0))[status] == at(-days * 86400)


# Another time, queue or priority


def test_a_postponed_job_waits_for_its_new_time() -> None:
    change = actions.postpone(stand(Status.RETRYING), at(99), at(5), by="ann")
    assert (change.job.status, change.job.available_at, change.job.charged) == (Status.SCHEDULED, at(99), 1)
    assert change.event == Event("postpone", at(5), "ann", details={"until": "2030-05-06T07:09:48.123456Z"})


def test_a_job_can_be_postponed_to_an_earlier_time() -> None:
    assert actions.postpone(stand(Status.SCHEDULED), at(9), NOW).job.available_at == at(9)


def test_a_time_that_has_passed_is_no_time_to_postpone_to() -> None:
    with pytest.raises(TransitionRefused, match="is not in the future; to run it at once: headrace run-now"):
        actions.postpone(stand(Status.QUEUED), at(5), at(5))


def test_no_act_makes_a_job_expire() -> None:
    with pytest.raises(TransitionRefused, match=r"it must start before 2030-05-06T07:09:09.123456Z, or it expires"):
        actions.postpone(submitted(not_after=60), at(60), NOW)
    assert actions.postpone(submitted(not_after=60), at(59), NOW).job.act_by == at(60)
    ended = replace(stand(Status.CANCELLED), not_after=at(60))
    with pytest.raises(TransitionRefused, match="it must start before"):
        actions.retry(ended, NOW, delay=60)
    started = replace(stand(Status.RETRYING), not_after=at(60))
    assert actions.postpone(started, at(99), NOW).job.available_at == at(99), "it has been started in time"


def test_running_now_is_arriving_now() -> None:
    change = actions.run_now(stand(Status.SCHEDULED), at(5), by="ann")
    assert (change.job.available_at, change.job.arrived_at, change.event) == (
        at(5),
        at(5),
        Event("run_now", at(5), "ann"),
    )
    due = actions.run_now(stand(Status.SCHEDULED), at(99))
    assert due.job.arrived_at == at(60), "it has been in line since it fell due"


@pytest.mark.parametrize("delay", [0, 7.5])
def test_a_retry_may_have_a_delay(delay: float) -> None:
    change = actions.retry(stand(Status.FAILED), at(5), delay=delay)
    assert change.job.available_at == change.job.arrived_at == at(5 + delay)
    assert change.event is not None
    assert change.event.details == ({"delay": 7.5} if delay else None)


def test_queue_and_priority_are_kept_beside_what_was_asked_for() -> None:
    job = stand(Status.QUEUED, queue="a", priority=10)
    change = actions.move(job, "b", at(5), by="ann")
    assert change is not None
    assert (change.job.queue, change.job.spec, change.job.arrived_at) == ("b", job.spec, job.arrived_at)
    assert (change.moves, change.event) == (True, Event("move", at(5), "ann", details={"from": "a", "to": "b"}))
    change = actions.reprioritise(change.job, 0, at(6))
    assert change is not None
    assert (change.job.queue, change.job.priority, change.job.spec, change.moves) == ("b", 0, job.spec, True)
    back = actions.move(change.job, "a", at(7))
    assert back is not None
    assert (back.job.moved_to, back.job.reprioritised_to) == (None, 0)


def test_what_is_as_wanted_already_is_no_change() -> None:
    job = stand(Status.QUEUED, queue="a", priority=10)
    assert actions.move(job, "a", NOW) is None
    assert actions.reprioritise(job, 10, NOW) is None


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (Status.RUNNING, "it is running: a worker has it"),
        (Status.FAILED, "it is failed; rerun makes a new job of it"),
        (Status.PENDING, "it is pending$"),
    ],
)
def test_refusals_say_why(status: Status, why: str) -> None:
    job = stand(status)
    with pytest.raises(TransitionRefused, match=why):
        actions.move(job, "b", NOW)
    with pytest.raises(TransitionRefused, match=why):
        actions.reprioritise(job, 1, NOW)


def test_refusals_about_times_say_why() -> None:
    with pytest.raises(TransitionRefused, match=r"cannot run job .* now: it is queued already; explain says"):
        actions.run_now(stand(Status.QUEUED), NOW)
    with pytest.raises(TransitionRefused, match="it is waiting for other jobs to end"):
        actions.postpone(stand(Status.WAITING), at(9), NOW)


# Rerun, with changes


def test_a_rerun_has_a_trace_of_its_own_and_the_last_queue_and_priority() -> None:
    old = replace(stand(Status.FAILED, trace={"traceparent": "00-1"}), moved_to="b", reprioritised_to=1)
    new = actions.rerun(old, OTHER, NOW)
    assert (new.spec.trace, new.spec.queue, new.spec.priority, new.moved_to) == (None, "b", 1, None)


def test_a_rerun_may_have_another_payload_and_other_options() -> None:
    old = replace(stand(Status.FAILED), not_after=at(50))
    new = actions.rerun(
        old, OTHER, NOW, payload_text='{"n":2}', changed={"priority": 99, "timeout": None}, available_at=at(60)
    )
    assert (new.payload, new.priority, new.timeout, new.status) == ({"n": 2}, 99, None, Status.SCHEDULED)
    assert new.not_after is None, "the old last moment is over before the new job may start"
    assert actions.rerun(old, OTHER, NOW, not_after=at(70)).not_after == at(70)


def test_the_old_job_has_it_on_record_that_it_was_rerun() -> None:
    old = stand(Status.COMPLETED)
    change = actions.note_rerun(old, OTHER, at(5), by="ann")
    assert (change.job.status, change.job.rev, change.job.finished_at) == (old.status, old.rev + 1, old.finished_at)
    assert (change.event, change.notes) == (Event("rerun", at(5), "ann", details={"job": str(OTHER)}), ())
