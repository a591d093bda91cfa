"""What a log says of an attempt that did not succeed."""

from __future__ import annotations

import pytest

from headrace.core.attempt import ErrorInfo, Failed, TimedOut
from headrace.core.job import Job
from headrace.core.lifecycle import loss
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Cause, Outcome, Reason, Status
from headrace.logs import attempt_summary, name_of
from tests.core.stand import ID, RULES, asked, at, end, running, stand

PLAIN = Retry(3, backoff=[4.0, 3600.0], jitter=False)


def failed(job: Job, **ending: object) -> Job:
    error = ErrorInfo("ConnectionError", "no route to host\nand more", "a traceback")
    return end(job, Failed(**{"error": error, **ending}), now=at(1)).job  # type: ignore[arg-type]


def test_a_failure_names_task_job_attempt_error_and_the_next_try() -> None:
    job = failed(running(retry=PLAIN))
    said = "work 00000001: attempt 1 of 4 failed: ConnectionError: no route to host; next try in 4.0 s"
    assert attempt_summary(job, Outcome.FAILED, at(1)) == said
    assert name_of(job) == f"work {ID.hex[-8:]}"


def test_a_long_backoff_is_told_in_its_own_unit() -> None:
    job = failed(running(retry=Retry(3, backoff=[7200.0], jitter=False)))
    assert attempt_summary(job, Outcome.FAILED, at(1)).endswith("; next try in 2 h")


def test_the_last_one_is_a_dead_letter_with_its_reason() -> None:
    job = failed(running(retry=Retry(0)))
    assert attempt_summary(job, Outcome.FAILED, at(1)).endswith("; dead letter (retries exhausted)")


def test_one_that_was_to_be_cancelled_is() -> None:
    job = failed(asked(running(retry=PLAIN)))
    assert attempt_summary(job, Outcome.FAILED, at(1)).endswith("; cancelled, as asked")


def test_timed_out_and_lost_say_why_once() -> None:
    late = end(running(retry=PLAIN, timeout=30.0), TimedOut(), now=at(31)).job
    said = "work 00000001: attempt 1 of 4 timed out: the attempt ran out of time (30 s); next try in 4.0 s"
    assert attempt_summary(late, Outcome.TIMED_OUT, at(31)) == said
    lost = loss.lose(running(retry=PLAIN), Cause.LEASE, at(40), 0.5, RULES).job
    assert "attempt 1 of 4 was lost: the worker is dead" in attempt_summary(lost, Outcome.LOST, at(40))


def test_one_lost_without_a_start_on_record_is_not_counted() -> None:
    lost = loss.lose(stand(Status.ACCEPTED), Cause.LEASE, at(40), 0.5, RULES).job
    said = "work 00000001: an attempt that may not have begun was lost; queued again, not charged"
    assert attempt_summary(lost, Outcome.LOST, at(40), charged=False, began=False) == said


@pytest.mark.parametrize("reason", [Reason.INVALID_PAYLOAD, Reason.INVALID_RESULT])
def test_what_is_wrong_with_a_payload_or_a_result_is_not_told(reason: Reason) -> None:
    error = ErrorInfo("InvalidPayload", "card: '4111 1111 1111 1111' is not a card")
    said = attempt_summary(failed(running(), error=error, reason=reason), Outcome.FAILED, at(1))
    assert "4111" not in said
    assert f"failed: InvalidPayload (the job says more); dead letter ({reason.replace('_', ' ')})" in said
