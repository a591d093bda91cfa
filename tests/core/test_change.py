"""The verdict on a change."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.attempt import Completed
from headrace.core.change import Applied, BatchTally, Change, Conflict, KeyEffect, WasStale, judge, until_applied
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.status import Outcome, Verb
from headrace.errors import TransitionRefused, Unavailable
from tests.core.stand import NOW, RULES, at, running, submitted

JOB = running()


def done(job: Job = JOB, id: int = 7) -> Change:
    return replace(execution.finish(job, Completed("1"), NOW, 0.5, RULES), id=id)


def test_a_change_of_the_job_as_it_stands_can_be_applied() -> None:
    assert judge(done(), None, JOB) is None
    assert judge(done(), 6, JOB) is None


def test_a_job_that_is_gone_makes_every_change_stale() -> None:
    assert judge(done(), 7, None) == WasStale(None)


def test_a_repeat_is_applied_whatever_became_of_the_job_since() -> None:
    moved = replace(JOB, rev=99, epoch=50, worker=None)
    assert judge(done(), 7, moved) == Applied(done().job)
    assert judge(done(id=0), 0, moved) == WasStale(moved), "a change without an id is no repeat"


def test_a_finish_that_is_on_record_is_applied_whoever_has_the_job_by_now() -> None:
    moved, change = replace(JOB, rev=99, epoch=JOB.epoch + 5, worker=UUID(int=9)), done()
    record = change.attempt
    assert record is not None
    assert judge(change, 99, moved, None, record) == Applied(change.job)
    others: list[dict[str, Any]] = [
        {"number": record.number + 1},
        {"outcome": Outcome.LOST},
        {"finished_at": at(1)},
        {"worker": UUID(int=9)},
        {"epoch": record.epoch + 1},
    ]
    for other in others:
        assert judge(change, 99, moved, None, replace(record, **other)) == WasStale(moved), other
    folded = replace(record, count=3, epoch=1, worker=UUID(int=9))
    assert judge(change, 99, moved, None, folded) == Applied(change.job), "the last of several that share a record"
    assert judge(change, 99, moved, None, replace(folded, finished_at=at(1))) == WasStale(moved)
    assert judge(replace(change, attempt=None), 99, moved, None, record) == WasStale(moved)
    assert judge(change, 99, None, None, record) == WasStale(None)


@pytest.mark.parametrize("owner", [{"worker": UUID(int=9)}, {"worker": None}, {"epoch": JOB.epoch + 1}])
def test_an_owner_that_moved_makes_a_workers_change_stale(owner: dict[str, UUID | int | None]) -> None:
    moved = replace(JOB, **owner)
    assert judge(done(), None, moved) == WasStale(moved)


def test_a_rev_that_moved_is_a_conflict() -> None:
    asked = actions.cancel(JOB, NOW, RULES)
    assert asked is not None
    assert judge(done(), None, asked.job) == Conflict(asked.job)
    nobodys = Change(verb=Verb.EXPIRE, rev=1, job=JOB)
    assert judge(nobodys, None, replace(JOB, rev=2)) == Conflict(replace(JOB, rev=2))


def test_a_key_that_another_holds_is_a_conflict_with_the_holder() -> None:
    job, holder = submitted(), submitted()
    wants = Change(verb=Verb.RETRY, rev=job.rev, job=job, key=KeyEffect.TAKE)
    assert judge(wants, None, job, holder) == Conflict(job, holder)
    assert judge(wants, None, replace(job, rev=5), holder) == Conflict(replace(job, rev=5))


def test_tallies_add_up() -> None:
    both = BatchTally(3, 1, 1).plus(BatchTally(1, -1, 0, 1))
    assert both == BatchTally(4, 0, 1, 1)
    assert (both.ended, both.live) == (2, 2)


# -- until_applied


def cancel(job: Job) -> Change | None:
    return actions.cancel(job, NOW, RULES)


def ended(steps: Any, answer: Any) -> Any:
    """What the generator returns once it is sent this."""
    with pytest.raises(StopIteration) as caught:
        steps.send(answer)
    return caught.value.value


def test_a_change_that_is_applied_is_the_last_one() -> None:
    steps = until_applied(JOB, cancel)
    change = next(steps)
    assert change == cancel(JOB)
    assert change is not None
    assert ended(steps, Applied(change.job)) == (change, Applied(change.job))


def test_a_job_that_moved_is_decided_about_again_at_once() -> None:
    steps, moved = until_applied(JOB, cancel), replace(JOB, rev=JOB.rev + 3)
    next(steps)
    again = steps.send(Conflict(moved))
    assert again == cancel(moved)
    assert again is not None
    assert again.rev == moved.rev


def test_a_job_that_has_not_moved_is_waited_for_and_decided_about_again() -> None:
    steps, seen = until_applied(JOB, lambda job: seen.append(job) or cancel(job)), list[Job]()  # type: ignore[func-returns-value]
    first = next(steps)
    for waits in range(1, 200):
        assert steps.send(Conflict(JOB, holder=JOB if waits % 2 else None)) is None
        assert len(seen) == waits, "not before it was waited"
        assert next(steps) == first


def test_a_stale_change_is_the_last_one() -> None:
    for verdict in (WasStale(None), WasStale(replace(JOB, epoch=9))):
        steps = until_applied(JOB, cancel)
        change = next(steps)
        assert ended(steps, verdict) == (change, verdict)


def test_where_nothing_is_to_be_changed_the_job_is_as_it_stands() -> None:
    assert ended(until_applied(JOB, lambda job: None), None) == (None, Applied(JOB))
    steps = until_applied(JOB, lambda job: cancel(job) if job.rev == JOB.rev else None)
    next(steps)
    moved = replace(JOB, rev=JOB.rev + 1)
    assert ended(steps, Conflict(moved)) == (None, Applied(moved))


def test_a_decision_that_is_refused_is_raised() -> None:
    def refuse(job: Job) -> Change | None:
        raise TransitionRefused(job, Verb.CANCEL)

    with pytest.raises(TransitionRefused):
        next(until_applied(JOB, refuse))


def test_a_job_that_never_stands_still_is_given_up() -> None:
    steps = until_applied(JOB, cancel)
    next(steps)
    with pytest.raises(Unavailable, match="changed 50 times while a decision about it was being written"):  # noqa: PT012
        for rev in range(JOB.rev + 1, JOB.rev + 51):
            steps.send(Conflict(replace(JOB, rev=rev)))
    assert rev == JOB.rev + 50
