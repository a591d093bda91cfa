"""What a submit does with the job that has its dedup key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.core.attempt import Completed, Failed
from headrace.core.change import KeyEffect
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.deduplication import has_lapsed, meet, replaces
from headrace.core.status import HELD, Reason, Status, Verb
from tests.core.stand import NOW, OOPS, OTHER, at, end, running, stand, submitted

S = Status


def other(*, delay: float = 0, **spec: Any) -> Job:
    job = submitted(delay=delay, **{"dedup": "k", "on_duplicate": "replace", **spec})
    return replace(job, id=OTHER, payload_text='{"n":2}')


def test_a_job_that_completes_keeps_its_key_for_the_rest_of_its_period() -> None:
    job = running(dedup="k", dedup_for=10.0)
    assert end(job, Completed(), now=at(9.999999)).key is KeyEffect.KEEP
    assert end(job, Completed(), now=at(10)).key is KeyEffect.RELEASE
    assert end(running(dedup="k"), Completed()).key is KeyEffect.RELEASE
    assert end(job, Failed(error=OOPS, reason=Reason.NON_RETRYABLE)).key is KeyEffect.RELEASE


def test_what_is_ended_by_hand_keeps_its_key_only_if_it_completed() -> None:
    job = submitted(dedup="k", dedup_for=10.0)
    assert actions.resolve(job, NOW, result_text="1").key is KeyEffect.KEEP
    assert actions.resolve(job, NOW, error=OOPS).key is KeyEffect.RELEASE
    done = actions.resolve(job, NOW, result_text="1").job
    assert actions.discard(done, NOW).key is KeyEffect.RELEASE


def test_the_period_counts_from_the_submit() -> None:
    done = end(running(dedup="k", dedup_for=10.0), Completed(), now=at(4)).job
    assert not has_lapsed(done, at(9.999999))
    assert has_lapsed(done, at(10))
    assert not has_lapsed(submitted(dedup="k", dedup_for=1.0), at(99)), "live jobs hold their keys"


@pytest.mark.parametrize("status", sorted(Status))
def test_only_who_asks_for_it_replaces_and_only_what_is_live(status: Status) -> None:
    holder = replace(stand(status), spec=replace(stand(status).spec, dedup="k", dedup_for=60.0))
    assert meet(holder, other(on_duplicate="return"), at(59)) is None
    assert meet(holder, other(on_duplicate="raise"), at(59)) is None
    change = meet(holder, other(), at(59))
    if status in (S.PENDING, S.COMPLETED, S.FAILED, S.CANCELLED):
        assert change is None
        return
    assert change is not None
    assert (change.verb, change.rev, change.worker, change.epoch) == (Verb.REPLACE, holder.rev, None, None)
    if status in HELD:
        assert (change.key, change.merges, change.inserts) == (KeyEffect.RELEASE, None, (other(),))
        assert change.job == replace(holder, rev=holder.rev + 1, updated_at=at(59))
    else:
        assert (change.key, change.merges, change.inserts) == (KeyEffect.KEEP, OTHER, ())
        assert (change.job.id, change.job.spec, change.job.payload_text) == (holder.id, holder.spec, '{"n":2}')


def test_a_replaced_job_has_a_whole_budget_and_what_is_known_of_it_stays() -> None:
    failed = end(running(dedup="k"), Failed(error=OOPS)).job
    change = meet(replace(failed, suspect=1), other(queue="q", priority=7), at(1))
    assert change is not None
    made = change.job
    assert (made.charged, made.attempt, made.suspect, made.error) == (0, 1, 1, OOPS)
    assert (made.queue, made.asked_queue, made.priority, made.asked_priority) == ("q", "default", 7, 50)
    assert change.moves
    assert change.event is not None
    assert change.event.details == {
        "submit": str(OTHER),
        "from_queue": "default",
        "to_queue": "q",
        "from_priority": 50,
        "to_priority": 7,
    }


def test_the_last_submit_says_when_it_runs() -> None:
    queued = submitted(dedup="k")
    later = meet(queued, other(delay=30), NOW)
    assert later is not None
    assert (later.job.status, later.job.available_at, later.job.arrived_at) == (S.SCHEDULED, at(30), at(30))
    assert later.event is not None
    assert later.event.details == {"submit": str(OTHER), "until": "2030-05-06T07:08:39.123456Z"}
    sooner = meet(later.job, other(delay=5), NOW)
    assert sooner is not None
    assert sooner.job.available_at == at(5)
    at_once = meet(later.job, other(), at(1))
    assert at_once is not None
    assert (at_once.job.status, at_once.job.arrived_at) == (S.QUEUED, at(1))
    in_line = meet(queued, other(), at(1))
    assert in_line is not None
    assert (in_line.job.status, in_line.job.arrived_at) == (S.QUEUED, NOW), "it keeps its place"


def test_its_last_moment_is_that_of_the_last_submit() -> None:
    holder = submitted(dedup="k", not_after=9)
    change = meet(holder, replace(other(), not_after=at(60)), NOW)
    assert change is not None
    assert (change.job.not_after, change.job.act_by) == (at(60), at(60))
    change = meet(holder, other(), NOW)
    assert change is not None
    assert (change.job.not_after, change.job.act_by) == (None, None)
    begun = replace(end(running(dedup="k"), Failed(error=OOPS)).job, not_after=None)
    change = meet(begun, replace(other(), not_after=at(60)), NOW)
    assert change is not None
    assert change.job.act_by is None, "it has been started before, and expires no more"


def test_a_holder_whose_period_is_over_gives_way() -> None:
    done = end(running(dedup="k", dedup_for=10.0), Completed()).job
    new = other(on_duplicate="return")
    assert meet(done, new, at(9)) is None
    change = meet(done, new, at(10))
    assert change is not None
    assert (change.verb, change.key, change.inserts) == (Verb.LAPSE, KeyEffect.RELEASE, (new,))
    assert change.job == replace(done, rev=done.rev + 1, updated_at=at(10))
    again = actions.rerun(done, OTHER, at(1))
    change = meet(done, again, at(1))
    assert change is not None
    assert change.inserts == (again,), "a rerun does not wait for the end of the period"


def test_the_same_request_sent_again_changes_nothing() -> None:
    done = end(running(dedup="k", dedup_for=1.0, request_key="r"), Completed()).job
    assert meet(done, other(request_key="r"), at(9)) is None
    assert meet(done, other(request_key="s"), at(9)) is not None


def test_a_rerun_has_the_period_of_the_old_one_and_replaces_nothing() -> None:
    done = end(running(dedup="k", dedup_for=10.0, on_duplicate="replace"), Completed()).job
    again = actions.rerun(done, OTHER, NOW + timedelta(seconds=3))
    assert (again.spec.dedup_for, again.spec.on_duplicate) == (10.0, "return")
    assert not replaces(again.spec)
    assert replaces(other().spec)
    assert not replaces(other(dedup=None).spec)
