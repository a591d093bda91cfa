"""The rules of families: notes, releases, refusals, ids and order."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise, permutations
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from hypothesis import strategies as st

from headrace.core.attempt import Completed, Failed
from headrace.core.batch import Batch
from headrace.core.change import Note
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, family, submission
from headrace.core.lifecycle.family import child_id, in_order
from headrace.core.status import ENDED, LIVE, Reason, Status, Verb
from headrace.errors import ConfigError, TransitionRefused
from tests.core.stand import NOW, OOPS, OTHER, RULES, given, running, submitted

IDS = [UUID(int=n) for n in range(1, 6)]


def waiting(**spec: Any) -> Job:
    return submitted(waits=2, after=(IDS[0], IDS[1]), **spec)


@pytest.mark.parametrize("status", sorted(LIVE))
def test_it_waits_while_a_parent_lives(status: Status) -> None:
    for when in ("succeeded", "ended"):
        assert family.release(waiting(after_when=when), [Status.COMPLETED, status], NOW) is None


def test_it_is_released_when_all_completed() -> None:
    for when in ("succeeded", "ended"):
        change = family.release(waiting(after_when=when), [Status.COMPLETED, Status.COMPLETED], NOW)
        assert change is not None
        assert (change.verb, change.job.status, change.job.waits) == (Verb.UNBLOCK, Status.QUEUED, 0)


@pytest.mark.parametrize("bad", [Status.FAILED, Status.CANCELLED])
@pytest.mark.parametrize("other", [Status.RUNNING, Status.COMPLETED])
def test_one_that_did_not_succeed_ends_it_at_once(bad: Status, other: Status) -> None:
    cancelled = family.release(waiting(), [other, bad], NOW)
    assert cancelled is not None
    assert (cancelled.job.status, cancelled.job.reason) == (Status.CANCELLED, Reason.PARENT)
    failed = family.release(waiting(on_parent_failure="fail"), [other, bad], NOW)
    assert failed is not None
    assert (failed.job.status, failed.job.reason) == (Status.FAILED, Reason.PARENT)
    assert failed.job.error is not None
    # It may be given another go, and waits again.
    again = actions.retry(failed.job, NOW)
    assert (again.job.status, again.job.waits) == (Status.WAITING, 2)


@pytest.mark.parametrize("end", [*sorted(ENDED), None])
def test_any_end_will_do_where_that_is_asked(end: Status | None) -> None:
    change = family.release(waiting(after_when="ended"), [Status.COMPLETED, end], NOW)
    assert change is not None
    assert change.job.status is Status.QUEUED


def test_a_parent_that_is_gone_is_no_hindrance() -> None:
    change = family.release(waiting(), [Status.COMPLETED, None], NOW)
    assert change is not None
    assert change.job.status is Status.QUEUED
    assert family.release(waiting(), [Status.RUNNING, None], NOW) is None


def test_whose_children_hear_of_a_cancel_that_came_too_late_for_it() -> None:
    done = execution.finish(running(), Completed("1"), NOW, 0.5, RULES).job
    assert family.passes_on(done)
    assert not family.passes_on(running())
    never_begun = actions.cancel(submitted(), NOW, RULES)
    assert never_begun is not None
    assert not family.passes_on(never_begun.job)


@pytest.mark.parametrize("first", [*Status, None])
@pytest.mark.parametrize("second", [*Status, None])
def test_who_is_not_looked_at_would_not_be_moved(first: Status | None, second: Status | None) -> None:
    if not family.may_move([first, second]):
        for when in ("succeeded", "ended"):
            assert family.release(waiting(after_when=when), [first, second], NOW) is None


def test_only_what_waits_is_released() -> None:
    assert family.release(submitted(), [Status.COMPLETED], NOW) is None
    assert family.release(running(), [Status.FAILED], NOW) is None


def test_what_is_noted() -> None:
    job = running()
    done = execution.finish(job, Completed("1"), NOW, 0.5, RULES)
    assert done.notes == (Note.ENDED,)
    assert execution.finish(job, Failed(error=OOPS), NOW, 0.5, RULES).notes == ()
    asked = actions.cancel(job, NOW, RULES)
    assert asked is not None
    assert asked.notes == (Note.CANCELLED,)
    never_begun = actions.cancel(submitted(), NOW, RULES)
    assert never_begun is not None
    assert never_begun.notes == (Note.ENDED,)
    # Discarding what has ended tells nobody anything new.
    assert actions.discard(done.job, NOW).notes == ()
    waits = family.release(waiting(), [Status.FAILED], NOW)
    assert waits is not None
    assert actions.retry(waits.job, NOW).notes == (Note.WAITS,)
    assert family.note_of_new(waiting()) == (Note.WAITS,)
    assert family.note_of_new(submitted()) == ()


def test_a_job_that_was_begun_once_may_have_children() -> None:
    back = execution.release(running(), NOW).job
    assert back.status is Status.QUEUED
    cancelled = actions.cancel(back, NOW, RULES)
    assert cancelled is not None
    assert cancelled.notes == (Note.ENDED, Note.CANCELLED)


def test_where_no_cancel_follows_what_it_waits_for_is_heard() -> None:
    stopped = Batch(id=IDS[4], created_at=NOW, touched_at=NOW, cancelled_at=NOW, cancelled_by="me")
    job = waiting(batch=IDS[4])
    ended = [Status.FAILED]
    by_parent = family.follow(job, ended, NOW, RULES, parent_cancelled=True, batch=stopped)
    assert by_parent is not None
    assert by_parent == family.cancel_child(job, NOW, RULES)
    by_batch = family.follow(job, ended, NOW, RULES, batch=stopped)
    assert by_batch is not None
    assert by_batch.job.reason is Reason.USER
    heard = family.follow(job, ended, NOW, RULES)
    assert heard == family.release(job, ended, NOW)
    assert family.follow(job, [Status.QUEUED], NOW, RULES) is None
    assert family.follow(by_batch.job, ended, NOW, RULES, parent_cancelled=True, batch=stopped) is None


def test_a_cancelled_parent_ends_its_children() -> None:
    idle = family.cancel_child(submitted(), NOW, RULES)
    assert idle is not None
    assert (idle.job.status, idle.job.reason) == (Status.CANCELLED, Reason.PARENT)
    asked = family.cancel_child(given(submitted()), NOW, RULES)
    assert asked is not None
    assert asked.job.cancel_requested_at == NOW
    assert family.cancel_child(asked.job, NOW, RULES) is None
    assert family.cancel_child(idle.job, NOW, RULES) is None


def test_a_cancel_is_told_until_it_is_taken_back() -> None:
    asked = actions.cancel(running(), NOW, RULES)
    assert asked is not None
    assert family.still_cancelled(asked.job)
    ended = execution.finish(asked.job, Failed(error=OOPS), NOW, 0.5, RULES).job
    assert family.still_cancelled(ended)
    assert not family.still_cancelled(actions.retry(ended, NOW).job)
    # One that had ended before passes the cancel of its parent on.
    assert family.still_cancelled(execution.finish(running(), Completed("1"), NOW, 0.5, RULES).job)


def test_who_may_be_looked_for_by_its_parent() -> None:
    gone_or_done = {None, Status.COMPLETED}
    assert all(family.may_be_looked_for(one) == (one not in gone_or_done) for one in [*Status, None])


def test_who_may_have_children() -> None:
    for status in [*Status, None]:
        refused = family.refusal(OTHER, status, False, submitted())
        assert isinstance(refused, TransitionRefused) == (status is Status.CANCELLED)
        assert isinstance(family.refusal(OTHER, status, True, submitted()), TransitionRefused)


def test_ids_of_children() -> None:
    parent = UUID("01920000-0000-7000-8000-000000000001")
    ids = {child_id(parent, call, place) for call in ("a()", "b()") for place in range(3)}
    assert len(ids) == 6
    assert child_id(parent, "a()", 1) == child_id(parent, "a()", 1)
    assert child_id(OTHER, "a()", 1) not in ids
    for id in ids:
        assert (id.version, id.variant) == (7, parent.variant)
        assert str(id)[:13] == str(parent)[:13]


def test_parents_come_first_in_any_order() -> None:
    a, b, c, d, outside = IDS
    waits = {a: (), b: (a,), c: (a, outside), d: (b, c)}
    for order in permutations(waits):
        found = in_order({id: waits[id] for id in order})
        assert sorted(found) == sorted(waits)
        for id in found:
            assert all(found.index(one) < found.index(id) for one in waits[id] if one in waits)
    assert in_order(dict.fromkeys(IDS, ())) == IDS


@pytest.mark.parametrize("circle", [1, 2, 5])
def test_circles_are_refused(circle: int) -> None:
    ids = IDS[:circle]
    with pytest.raises(ConfigError, match="circle") as caught:
        in_order({id: (ids[n - 1],) for n, id in enumerate(ids)})
    assert all(str(id) in str(caught.value) for id in ids)


def test_long_chains_are_no_matter_of_depth() -> None:
    ids = [UUID(int=n) for n in range(1, 20_000)]
    waits = {id: (before,) for before, id in pairwise(ids)} | {ids[0]: ()}
    assert in_order(waits) == ids


@hypothesis.given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_an_order_is_found_if_there_is_one(edges: list[tuple[int, int]]) -> None:
    ids = [UUID(int=n + 1) for n in range(10)]
    down = {ids[n]: tuple(dict.fromkeys(ids[b] for a, b in edges if a == n and b < n)) for n in range(10)}
    found = in_order(down)
    assert all(found.index(one) < found.index(id) for id, before in down.items() for one in before)


def test_a_job_released_early_keeps_its_time() -> None:
    later = NOW + timedelta(hours=1)
    job = submission.submit(OTHER, waiting().spec, "{}", NOW, available_at=later, waits=2)
    change = family.release(job, [Status.COMPLETED], NOW)
    assert change is not None
    assert (change.job.status, change.job.available_at) == (Status.SCHEDULED, later)
