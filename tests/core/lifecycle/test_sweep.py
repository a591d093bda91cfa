"""When a held job is taken away, and why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.core.defaults import Rules
from headrace.core.lifecycle import execution
from headrace.core.lifecycle.clock_steps import ClockStep
from headrace.core.lifecycle.sweep import cause_of, sweep
from headrace.core.status import ENDED, Cause, Reason, Status
from tests.core.stand import NOW, RULES, asked, at, running, stand, submitted

HELD = [Status.ASSIGNED, Status.ACCEPTED, Status.RUNNING]


@pytest.mark.parametrize("status", HELD)
def test_a_living_worker_that_names_its_job_keeps_it(status: Status) -> None:
    assert cause_of(stand(status), NOW, RULES, alive=True) is None
    assert sweep(stand(status), NOW, 0.5, RULES, alive=True, unnamed=1) is None


@pytest.mark.parametrize("status", HELD)
def test_a_dead_worker_or_two_silent_beats_lose_it(status: Status) -> None:
    assert cause_of(stand(status), NOW, RULES, alive=False, unnamed=5) is Cause.LEASE
    assert cause_of(stand(status), NOW, RULES, alive=True, unnamed=2) is Cause.BEAT


@pytest.mark.parametrize(
    ("status", "seconds", "cause"),
    [
        (Status.ASSIGNED, 30, Cause.ACCEPT_BY),
        (Status.ACCEPTED, 30, Cause.START_BY),
        (Status.RUNNING, 1800 + 7, Cause.TIMEOUT),
    ],
)
def test_a_deadline_loses_it_at_its_very_moment(status: Status, seconds: float, cause: Cause) -> None:
    job = stand(status)
    assert cause_of(job, at(seconds - 0.000001), RULES, alive=True) is None
    assert cause_of(job, at(seconds), RULES, alive=True) is cause
    change = sweep(job, at(seconds), 0.5, RULES, alive=True)
    assert change is not None
    assert change.job.worker is None


def test_a_cancel_nobody_obeyed_is_the_cause_even_without_a_timeout() -> None:
    job = asked(running(timeout=None))
    assert cause_of(job, at(29.9), RULES, alive=True) is None
    assert cause_of(job, at(30), RULES, alive=True) is Cause.CANCEL
    change = sweep(job, at(30), 0.5, RULES, alive=True)
    assert change is not None
    assert (change.job.status, change.job.reason) == (Status.CANCELLED, Reason.USER)


def test_a_timeout_before_the_patience_with_a_cancel_is_over_is_a_timeout() -> None:
    job = asked(running(timeout=1.0))
    assert cause_of(job, at(11), Rules(), alive=True) is Cause.TIMEOUT


HOUR = 3600.0


@pytest.mark.parametrize(("status", "seconds"), [(Status.ASSIGNED, 30), (Status.ACCEPTED, 30), (Status.RUNNING, 1807)])
def test_what_was_held_before_a_step_forward_is_judged_without_it(status: Status, seconds: float) -> None:
    job, step = stand(status), ClockStep(at(5 + HOUR), HOUR)
    assert cause_of(job, at(6 + HOUR), RULES, alive=True) is not None
    assert cause_of(job, at(6 + HOUR), RULES, alive=True, steps=[step]) is None
    assert sweep(job, at(6 + HOUR), 0.5, RULES, alive=True, steps=[step]) is None
    assert cause_of(job, at(seconds + HOUR - 0.1), RULES, alive=True, steps=[step]) is None
    assert cause_of(job, at(seconds + HOUR), RULES, alive=True, steps=[step]) is not None


def test_what_was_held_after_a_step_is_judged_as_always() -> None:
    step = ClockStep(at(-HOUR), HOUR)
    assert cause_of(running(), at(1810), RULES, alive=True, steps=[step]) is Cause.TIMEOUT
    assert cause_of(running(), at(6), RULES, alive=False, steps=[ClockStep(at(5), HOUR)]) is Cause.LEASE


def test_the_patience_with_a_cancel_is_put_off_as_well() -> None:
    job, step = asked(running(timeout=1800.0)), ClockStep(at(5 + HOUR), HOUR)
    assert cause_of(job, at(6 + HOUR), RULES, alive=True) is Cause.CANCEL
    assert cause_of(job, at(29 + HOUR), RULES, alive=True, steps=[step]) is None
    assert cause_of(job, at(30 + HOUR), RULES, alive=True, steps=[step]) is Cause.CANCEL


def test_a_cancel_after_a_step_waits_no_longer_because_of_it() -> None:
    job = replace(asked(running(timeout=1800.0)), cancel_requested_at=at(HOUR + 100), act_by=at(HOUR + 130))
    step = ClockStep(at(5 + HOUR), HOUR)
    assert cause_of(job, at(HOUR + 129), RULES, alive=True, steps=[step]) is None
    assert cause_of(job, at(HOUR + 130), RULES, alive=True, steps=[step]) is Cause.CANCEL


@pytest.mark.parametrize("status", sorted(ENDED | {Status.RETRYING}))
def test_nothing_is_done_about_what_nobody_holds(status: Status) -> None:
    assert sweep(stand(status, not_after=5), at(1e6), 0.5, RULES, alive=False, unnamed=9) is None
    assert cause_of(stand(status), at(1e6), RULES, alive=False) is None


@pytest.mark.parametrize("status", [Status.PENDING, Status.WAITING, Status.SCHEDULED, Status.QUEUED])
def test_idle_jobs_are_only_asked_whether_they_expired(status: Status) -> None:
    job = stand(status, not_after=5)
    assert sweep(job, at(4.9), 0.5, RULES, alive=True) is None
    change = sweep(job, at(5), 0.5, RULES, alive=True)
    assert change is not None
    assert change.job.reason is Reason.EXPIRED
    assert sweep(submitted(), at(1e9), 0.5, RULES, alive=True) is None


def test_a_step_puts_off_what_was_counted_from_before_it_and_no_more() -> None:
    job = execution.start(stand(Status.ACCEPTED, timeout=1e5, heartbeat=60.0), NOW, RULES).job
    step = ClockStep(at(30 + HOUR), HOUR)
    assert cause_of(job, at(67 + HOUR), RULES, alive=True, steps=[step]) is Cause.TIMEOUT
    assert cause_of(job, at(66 + HOUR), RULES, alive=True, steps=[step]) is None, "its last sign was before the step"
    signed = execution.sign(job, at(200 + HOUR), RULES)
    assert signed is not None
    assert cause_of(signed.job, at(266 + HOUR), RULES, alive=True, steps=[step]) is None
    assert cause_of(signed.job, at(267 + HOUR), RULES, alive=True, steps=[step]) is Cause.TIMEOUT, "and then after it"
    # Where the timeout is sooner, it is counted from the start, whatever signs came.
    short = execution.start(stand(Status.ACCEPTED, timeout=300.0, heartbeat=200.0), NOW, RULES).job
    late = execution.sign(short, at(250), RULES)
    assert late is not None
    assert late.job.act_by == at(307)
    assert cause_of(late.job, at(308), RULES, alive=True, steps=[ClockStep(at(90), 60.0)]) is None
