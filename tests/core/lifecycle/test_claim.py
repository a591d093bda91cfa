"""Who is next, what a worker may be given, and what being given means."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given as sample
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, grant, order, pick, promoted, stops
from headrace.core.limits.settings import QueueRule, queue_rule
from headrace.core.status import Status
from headrace.errors import TransitionRefused
from tests.core.stand import NOW, RULES, WORKER, at, given, stand, submitted


def line(*jobs: Job) -> list[Job]:
    return [replace(job, seq=n) for n, job in enumerate(jobs, 1)]


def ask(n: int, free: int | None = None) -> ClaimRequest:
    return ClaimRequest(n=n, free=n if free is None else free, profiles=frozenset())


def picked(jobs: list[Job], wish: ClaimRequest) -> list[int]:
    return [job.seq for job in pick(jobs, wish, NOW, RULES)]


# Order


def test_queue_priority_comes_before_all_else() -> None:
    low, high = submitted(priority=100), submitted(priority=0)
    assert order(high, 1) < order(low, 0) < order(low, -1)


def test_then_priority_then_arrival_then_order_number() -> None:
    job = replace(submitted(priority=50), seq=5)
    assert order(replace(job, spec=replace(job.spec, priority=51), arrived_at=at(9)), 0) < order(job, 0)
    assert order(replace(job, arrived_at=at(-1), seq=9), 0) < order(job, 0)
    assert order(replace(job, seq=4), 0) < order(job, 0)


@sample(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_the_order_is_total(rows: list[tuple[int, int, int]]) -> None:
    keys = [
        order(replace(submitted(priority=priority), arrived_at=at(arrival), seq=seq), queue)
        for seq, (queue, priority, arrival) in enumerate(rows)
    ]
    assert len(set(keys)) == len(keys)
    assert sorted(range(len(rows)), key=lambda n: keys[n]) == sorted(
        range(len(rows)), key=lambda n: (-rows[n][0], -rows[n][1], rows[n][2], n)
    )


# Pick


def test_as_many_as_asked_for_from_the_front() -> None:
    jobs = line(*(submitted() for _ in range(5)))
    assert picked(jobs, ask(3)) == [1, 2, 3]
    assert picked(jobs, ask(9)) == [1, 2, 3, 4, 5]
    assert picked(jobs, ask(0)) == []
    assert picked([], ask(3)) == []


def test_what_expired_is_passed_over_unless_it_was_started() -> None:
    gone, begun = submitted(not_after=0), replace(submitted(not_after=0), first_started_at=at(-5))
    assert picked(line(gone, begun, submitted(not_after=0.000001), submitted()), ask(2)) == [2, 3]


def test_a_fragile_job_is_given_only_into_a_free_slot_and_never_passed_over() -> None:
    fragile = replace(submitted(), unstarted_losses=2)
    jobs = line(submitted(), fragile, submitted())
    assert picked(jobs, ask(3, free=3)) == [1, 2, 3]
    assert picked(jobs, ask(3, free=2)) == [1, 2, 3]
    assert picked(jobs, ask(3, free=1)) == [1]
    assert picked(jobs[1:], ask(3, free=0)) == []
    once = replace(fragile, unstarted_losses=1)
    assert picked(line(submitted(), once), ask(2, free=0)) == [1, 2]


@pytest.mark.parametrize(
    ("taken", "losses", "free", "ends"), [(0, 2, 0, True), (0, 2, 1, False), (1, 9, 1, True), (5, 1, 0, False)]
)
def test_where_claiming_ends(taken: int, losses: int, free: int, ends: bool) -> None:
    assert stops(taken, losses, ask(9, free), RULES) is ends


@sample(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12), st.integers(0, 6), st.integers(0, 6))
def test_nothing_claimable_is_passed_over(rows: list[tuple[bool, int]], n: int, free: int) -> None:
    jobs = line(*(replace(submitted(not_after=0 if late else None), unstarted_losses=lost) for late, lost in rows))
    got = pick(jobs, ask(n, free), NOW, RULES)
    claimable = [job for job in jobs if job.not_after is None]
    assert got == claimable[: len(got)]
    assert len(got) <= n
    assert all(job.unstarted_losses < 2 or place < free for place, job in enumerate(got))
    if len(got) < min(n, len(claimable)):
        blocked = jobs[jobs.index(got[-1]) + 1 :] if got else jobs
        assert any(job.unstarted_losses >= 2 for job in blocked)
        assert len(got) >= free


# Being given, and promotion


@pytest.mark.parametrize(("accept", "status"), [(True, Status.ACCEPTED), (False, Status.ASSIGNED)])
def test_being_given(accept: bool, status: Status) -> None:
    job = submitted(not_after=500)
    rules = Rules(accept=11, start=22)
    got = grant(WORKER, replace(ask(1), accept=accept), 42, at(5), rules).on(job)
    assert got == replace(
        job,
        status=status,
        worker=WORKER,
        claim=42,
        rev=2,
        epoch=1,
        assigned_at=at(5),
        accepted_at=at(5) if accept else None,
        act_by=at(5 + (22 if accept else 11)),
        updated_at=at(5),
    )


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.QUEUED}))
def test_only_queued_jobs_are_given(status: Status) -> None:
    with pytest.raises(TransitionRefused):
        given(stand(status))


def test_a_promoted_job_arrived_when_it_fell_due() -> None:
    job = submitted(delay=5, not_after=50)
    after = promoted(job, at(9))
    assert after == replace(job, status=Status.QUEUED, arrived_at=at(5), updated_at=at(9), rev=2)
    assert after.arrived_at - NOW == timedelta(seconds=5)


# What a queue's document says


def test_a_queue_without_a_document_has_the_defaults() -> None:
    assert queue_rule(None) == queue_rule("{}") == QueueRule(0, False)
    assert queue_rule('{"paused":true}') == QueueRule(0, True)
    assert queue_rule('{"priority":-3,"limits":{"x":1}}') == QueueRule(-3, False)
    with pytest.raises(msgspec.DecodeError):
        queue_rule("what?")
