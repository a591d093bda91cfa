"""The rules of batches: what is counted, when one is over, what follows."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.attempt import Completed, Failed
from headrace.core.batch import (
    Batch,
    BatchCallback,
    calls_of,
    cancelled,
    customer_of,
    is_over,
    is_silent,
    refusal_of_member,
    stop,
)
from headrace.core.change import BatchTally, Change
from headrace.core.job import Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.decision import tally_of_new
from headrace.core.status import Reason, Status
from tests.core.stand import ID, NOW, OOPS, OTHER, RULES, end, running, submitted

GIVES_UP = Failed(error=OOPS, reason=Reason.NON_RETRYABLE)


def of(change: Change | None) -> BatchTally | None:
    assert change is not None
    return change.tally


def test_every_change_of_the_end_is_counted_once() -> None:
    job = running(batch=OTHER)
    done, failed = end(job, Completed("1")), end(job, GIVES_UP)
    assert of(done) == BatchTally(completed=1)
    assert of(failed) == BatchTally(failed=1)
    assert of(end(job, Failed(error=OOPS))) is None
    assert of(actions.cancel(job, NOW, RULES)) is None, "it is only asked to stop"
    assert of(actions.cancel(submitted(batch=OTHER), NOW, RULES)) == BatchTally(cancelled=1)
    assert of(actions.retry(failed.job, NOW)) == BatchTally(failed=-1)
    assert of(actions.discard(done.job, NOW)) == BatchTally(completed=-1, cancelled=1)
    assert of(actions.resolve(failed.job, NOW, result_text="1")) == BatchTally(completed=1, failed=-1)
    assert of(end(running(), Completed("1"))) is None, "it is in no batch"
    assert tally_of_new(job) == BatchTally(total=1)


def batch(total: int, completed: int = 0, failed: int = 0, cancelled: int = 0, *, sealed: bool = True) -> Batch:
    tally = BatchTally(total, completed, failed, cancelled)
    return Batch(id=ID, created_at=NOW, touched_at=NOW, sealed=sealed, tally=tally)


@pytest.mark.parametrize(
    ("made", "over"),
    [
        (batch(3, 1, 1, 1), True),
        (batch(3, 1, 1, 1, sealed=False), False),
        (batch(3, 2), False),
        (batch(0), True),
        (batch(0, sealed=False), False),
    ],
)
def test_when_it_is_over(made: Batch, over: bool) -> None:
    assert is_over(made) is over


def test_what_follows() -> None:
    complete, failure = (
        BatchCallback(id=UUID(int=n), spec=Spec(task="t", created_at=NOW), payload_text="{}") for n in (1, 2)
    )
    both = {"on_complete": complete, "on_failure": failure}
    assert calls_of(replace(batch(2, 2), **both)) == [complete]
    assert calls_of(replace(batch(2, 1, 1), **both)) == [complete, failure]
    assert calls_of(replace(batch(2, 1, 0, 1), on_failure=failure)) == [failure]
    assert calls_of(replace(batch(0), **both)) == [complete]
    assert calls_of(batch(2, 0, 2)) == []
    assert calls_of(replace(batch(2, 2), abandoned=True, **both)) == [complete, failure], "some may be missing"
    assert calls_of(replace(batch(2, 2), cancelled_at=NOW, **both)) == [complete, failure], "some may be missing"


def test_when_its_submitter_is_silent() -> None:
    later = NOW + timedelta(seconds=RULES.batch_silence)
    assert is_silent(batch(1, sealed=False), later, RULES)
    assert not is_silent(batch(1, sealed=False), later - timedelta(seconds=1), RULES)
    assert not is_silent(batch(1), later, RULES)


def test_a_cancel_seals_and_is_done_while_there_is_something_to_cancel() -> None:
    later = NOW + timedelta(seconds=1)
    empty = batch(0, sealed=False)
    for made in (empty, batch(2, 2, sealed=False), batch(2, 1), replace(batch(2, 2), abandoned=True)):
        done = cancelled(made, NOW, "me")
        assert done == replace(made, sealed=True, cancelled_at=NOW, cancelled_by="me")
        # Of one that is over, nothing is left; of one that is live yet, or again, it is said once more.
        assert cancelled(done, later, "you") == (
            None if is_over(done) else replace(done, cancelled_at=later, cancelled_by="you")
        )
    assert cancelled(batch(2, 1, 1), NOW, "me") is None


def test_a_cancelled_batch_takes_no_more() -> None:
    job = submitted(batch=OTHER)
    assert refusal_of_member(OTHER, False, job) is None
    why = str(refusal_of_member(OTHER, True, job))
    assert all(word in why for word in (str(job.id), str(OTHER), "was cancelled", "another one"))


def test_the_jobs_of_a_cancelled_batch_are_stopped_as_by_whoever_cancelled_it() -> None:
    made = replace(batch(1), cancelled_at=NOW, cancelled_by="me")
    queued, held = stop(submitted(batch=ID), made, NOW, RULES), stop(running(batch=ID), made, NOW, RULES)
    assert queued is not None
    assert held is not None
    assert (queued.job.status, queued.job.reason) == (Status.CANCELLED, Reason.USER)
    assert (held.job.status, held.job.cancel_requested_at) == (Status.RUNNING, NOW)
    assert [change.event.by for change in (queued, held) if change.event is not None] == ["me", "me"]
    assert stop(held.job, made, NOW, RULES) is None
    assert stop(end(running(batch=ID), Completed("1")).job, made, NOW, RULES) is None


def test_tallies_add_up() -> None:
    assert BatchTally(1, 2, 3, 4).plus(BatchTally(10, 20, 30, 40)) == BatchTally(11, 22, 33, 44)
    assert BatchTally(9, 2, 3, 4).ended == 9


def test_a_batch_is_a_customers_if_all_of_its_jobs_are() -> None:
    ann, bob, nobody = submitted(customer="ann"), submitted(customer="bob"), submitted()
    assert customer_of([ann, ann]) == "ann"
    for jobs in ([], [nobody], [ann, bob], [ann, nobody]):
        assert customer_of(jobs) is None
