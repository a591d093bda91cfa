"""What is said of a job that was taken from its worker."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Failed, History, TimedOut
from headrace.core.change import KeyEffect
from headrace.core.explain.job import explain
from headrace.core.lifecycle.execution import finish
from headrace.core.lifecycle.loss import SAID, lose, reported
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Cause, Outcome, Reason, Status
from tests.core.stand import NOW, RULES, asked, at, given, running, stand, submitted


@pytest.mark.parametrize(("seconds", "words"), [(31, "31 s"), (4 * 60, "4 min"), (8 * 3600, "8 h")])
@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.RUNNING])
def test_the_burial_says_how_long_the_worker_was_silent(status: Status, seconds: float, words: str) -> None:
    decided = lose(stand(status), Cause.LEASE, at(seconds), 0.5, RULES, heard_at=NOW)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == f"the worker is dead: it was silent for {words}"
    assert decided.attempt.error.details == {"last_heard_at": "2030-05-06T07:08:09.123456Z", "silent_seconds": seconds}
    assert decided.job.error == (decided.attempt.error if status is Status.RUNNING else None)


@pytest.mark.parametrize("heard_at", [None, NOW])
def test_other_losses_are_no_silence(heard_at: datetime | None) -> None:
    for cause in set(Cause) - {Cause.LEASE}:
        decided = lose(running(), cause, at(RULES.lease - 1), 0.5, RULES, heard_at=heard_at)
        assert decided.job.error is not None
        assert "silent" not in decided.job.error.message
        assert decided.job.error.details is None


def test_a_worker_nobody_knows_of_was_silent_for_nobody_knows_how_long() -> None:
    decided = lose(given(submitted()), Cause.LEASE, at(60), 0.5, RULES)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == "the worker is dead"


def test_who_missed_a_deadline_by_its_silence_was_silent() -> None:
    decided = lose(given(submitted()), Cause.START_BY, at(120), 0.5, RULES, heard_at=NOW)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == "the worker did not start in time: it was silent for 2 min"


@pytest.mark.parametrize("by", ["worker", "sweeper"])
@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Retry(give_up_on=[TimeoutError]), "give_up_on names TimeoutError"),
        (Retry(give_up_on=["TimeoutError"]), "give_up_on names TimeoutError"),
        (Retry(give_up_on=["Timeout"]), "give_up_on names Timeout"),
        (Retry(give_up_on=["TIMEOUT"]), "give_up_on names TIMEOUT"),
        (Retry(retry_on=[TimeoutError], give_up_on=["TimeoutError"]), "give_up_on names TimeoutError"),
    ],
)
def test_a_time_out_is_not_retried_where_the_policy_says_so(policy: Retry, why: str, by: str) -> None:
    job = running(retry=policy, dedup="k", timeout=30)
    if by == "worker":
        decided = finish(job, TimedOut(), at(40), 0.5, RULES)
    else:
        decided = lose(job, Cause.TIMEOUT, at(40), 0.5, RULES)
    assert (decided.job.status, decided.job.reason) == (Status.FAILED, Reason.TIMEOUT)
    assert (decided.job.charged, decided.key) == (1, KeyEffect.RELEASE)
    assert decided.attempt is not None
    assert decided.attempt.outcome is Outcome.TIMED_OUT
    assert decided.job.error is not None
    assert decided.job.error == decided.attempt.error
    assert decided.job.error.message == f"the attempt ran out of time (30 s); not retried: {why}"
    told = explain(decided.job, History((decided.attempt,)), at(50))
    assert f"The last error was Timeout: the attempt ran out of time (30 s); not retried: {why}." in told


@pytest.mark.parametrize(
    "policy",
    [
        Retry(),
        Retry(retry_on=[TimeoutError]),
        Retry(retry_on=[ConnectionError]),
        Retry(retry_on=["ServiceTimeoutError"], give_up_on=["InvalidJobParameters"]),
        Retry(give_up_on=[ValueError]),
    ],
)
def test_other_time_outs_are_retried(policy: Retry) -> None:
    decided = lose(running(retry=policy), Cause.TIMEOUT, at(40), 0.5, RULES)
    assert decided.job.status is Status.RETRYING
    assert decided.job.error is not None
    assert "not retried" not in decided.job.error.message


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.TIMEOUT}))
def test_only_time_outs_obey_what_is_said_of_errors(cause: Cause) -> None:
    decided = lose(running(retry=Retry(retry_on=[ValueError], give_up_on=[OSError])), cause, at(40), 0.5, RULES)
    assert decided.job.status is Status.RETRYING, "what failed was the worker, not the handler"


def test_the_last_time_out_and_a_cancelled_one_say_no_more_than_before() -> None:
    policy = Retry(0, give_up_on=[TimeoutError])
    for job in (running(retry=policy), asked(running(retry=Retry(give_up_on=[TimeoutError])))):
        decided = lose(job, Cause.TIMEOUT, at(40), 0.5, RULES)
        assert decided.job.ended
        assert decided.job.error is not None
        assert "not retried" not in decided.job.error.message


def test_a_failure_that_is_reported_after_the_time_is_a_time_out() -> None:
    job = running(timeout=30)
    said = Failed(error=ErrorInfo("Stopped", "told to", "trace", {"step": 4}), names=("Stopped",))
    ending = reported(job, said, at(40), RULES)
    assert isinstance(ending, TimedOut)
    assert ending.error is not None
    assert (ending.error.type, ending.error.message) == ("Timeout", "the attempt ran out of time (30 s)")
    assert (ending.error.traceback, ending.error.details) == ("trace", {"step": 4, SAID: "told to"})
    decided = finish(job, ending, at(40), 0.5, RULES)
    assert decided.attempt is not None
    assert decided.attempt.outcome is Outcome.TIMED_OUT


def test_a_failure_in_time_or_that_no_retry_can_mend_stays_what_it_is() -> None:
    said = Failed(error=ErrorInfo("Stopped", "told to"))
    final = replace(said, reason=Reason.NON_RETRYABLE)
    assert reported(running(timeout=30), said, at(20), RULES) is said
    assert reported(running(timeout=None), said, at(4000), RULES) is said
    assert reported(given(submitted(timeout=30)), said, at(4000), RULES) is said, "it had not begun"
    assert reported(running(timeout=30), final, at(40), RULES) is final


def test_an_attempt_without_a_sign_says_so() -> None:
    job = running(timeout=100.0, heartbeat=60.0)
    decided = lose(job, Cause.TIMEOUT, at(70), 0.5, RULES)
    assert (decided.job.status, decided.job.charged) == (Status.RETRYING, 1)
    assert decided.job.error == ErrorInfo("Timeout", "the attempt reported nothing for 60 s")
    decided = lose(replace(job, charged=3), Cause.TIMEOUT, at(70), 0.5, RULES)
    assert (decided.job.status, decided.job.reason) == (Status.FAILED, Reason.TIMEOUT)
    late = lose(job, Cause.TIMEOUT, at(110), 0.5, RULES)
    assert late.job.error == ErrorInfo("Timeout", "the attempt ran out of time (100 s)")
    given_up = lose(running(heartbeat=60.0, retry=Retry(give_up_on=[TimeoutError])), Cause.TIMEOUT, at(70), 0.5, RULES)
    assert (given_up.job.status, given_up.job.reason) == (Status.FAILED, Reason.TIMEOUT)
