"""Keys that return: their jobs leave the queue without a turn, and come back in every way there is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.jobs.key_rotation import done
from headrace.conformance.jobs.limits import fill, free, keys, rule
from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Failed, Released, Snoozed
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss
from headrace.core.status import Cause, Reason, Status

__all__ = ["Rejoining"]

# -- ways back into the queue: each takes a held job and leaves it queued


async def _retried(lab: Lab, held: Job) -> None:
    job = await lab.finish(await lab.start(held), Failed(error=OOPS))
    assert job.status is Status.RETRYING
    lab.later((job.available_at - lab.now).total_seconds())


async def _released(lab: Lab, held: Job) -> None:
    await lab.do(execution.release(held, lab.now))


async def _handed_back(lab: Lab, held: Job) -> None:
    await lab.finish(await lab.start(held), Released())


async def _lost(lab: Lab, held: Job) -> None:
    job = await lab.do(loss.lose(await lab.start(held), Cause.LEASE, lab.now, 0.5, lab.rules))
    lab.later(max((job.available_at - lab.now).total_seconds(), 0))


async def _lost_before_its_start(lab: Lab, held: Job) -> None:
    job = await lab.do(loss.lose(held, Cause.LEASE, lab.now, 0.5, lab.rules))
    lab.later(max((job.available_at - lab.now).total_seconds(), 0))


async def _snoozed(lab: Lab, held: Job) -> None:
    await lab.finish(await lab.start(held), Snoozed(60))
    lab.later(60)


async def _promoted(lab: Lab, held: Job) -> None:
    await _snoozed(lab, held)
    assert await lab.engine.jobs.promote(lab.now) == 1


async def _retried_by_hand(lab: Lab, held: Job) -> None:
    job = await lab.finish(await lab.start(held), Failed(error=OOPS, reason=Reason.NON_RETRYABLE))
    assert job.status is Status.FAILED
    await lab.do(actions.retry(job, lab.now))


_WAYS_BACK: list[Callable[[Lab, Job], Coroutine[Any, Any, None]]] = [
    _retried,
    _released,
    _handed_back,
    _lost,
    _lost_before_its_start,
    _snoozed,
    _promoted,
    _retried_by_hand,
]


class Rejoining(Part):
    """What claims promise to keys that come and go."""

    # -- leaving the queue without a turn

    @pytest.mark.parametrize("how", ["cancel", "expire"])
    async def test_behind_a_first_job_that_left_the_next_one_stands(self, lab: Lab, worker: UUID, how: str) -> None:
        first = await lab.put(concurrency_key="a", not_after=5, priority=90)
        only = await lab.put(concurrency_key="b", not_after=5, priority=90)
        lab.later(1)
        between = await lab.put(concurrency_key="c")
        lab.later(1)
        second = await lab.put(concurrency_key="a")
        lab.later(10)
        for job in (first, only):
            await lab.do(actions.expire(job, lab.now) if how == "expire" else actions.cancel(job, lab.now, lab.rules))
        assert [job.id for job in await lab.claim(worker, 1)] == [between.id]
        assert [job.id for job in await lab.claim(worker, 1)] == [second.id]
        assert await lab.claim(worker) == []

    async def test_a_key_whose_only_job_was_cancelled_comes_back(self, lab: Lab, worker: UUID) -> None:
        await lab.cancel(await lab.put(concurrency_key="a"))
        assert await lab.claim(worker) == []
        again = await lab.put(concurrency_key="a")
        assert [job.id for job in await lab.claim(worker)] == [again.id]

    async def test_among_keys_of_one_claim_the_oldest_job_goes_first_whoever_was_cancelled(self, lab: Lab) -> None:
        worker = await lab.worker()
        await lab.put_all(*(lab.job(concurrency_key=key) for key in "ab"))
        early = await lab.put(concurrency_key="b", delay=2)  # it is queued after those with higher numbers
        await lab.put(concurrency_key="a")
        first = await lab.put(concurrency_key="b")
        lab.later(3)
        assert keys(await lab.claim(worker, 2)) == ["a", "b"]
        lab.later(1)
        await lab.cancel(first)
        assert [job.id for job in await lab.claim(worker, 1)] == [early.id]

    # -- coming back into the queue

    @pytest.mark.parametrize("way", _WAYS_BACK, ids=lambda way: way.__name__.strip("_"))
    @pytest.mark.parametrize("more", [0, 2])
    async def test_a_key_comes_back_into_line(
        self, lab: Lab, worker: UUID, way: Callable[[Lab, Job], Coroutine[Any, Any, None]], more: int
    ) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        held = await lab.held(worker, concurrency_key="a")
        await fill(lab, more, concurrency_key="a")
        assert await lab.claim(worker) == []
        await way(lab, held)
        order = list[UUID]()
        while taken := await lab.claim(worker):
            assert keys(taken) == ["a"]
            order.append(taken[0].id)
            await free(lab, *taken)
        assert len(order) == more + 1
        assert held.id in order

    async def test_a_key_comes_with_a_job_that_was_deferred(self, lab: Lab, worker: UUID) -> None:
        await fill(lab, 1, concurrency_key="a", delay=5)
        lab.later(1)
        await fill(lab, 1, concurrency_key="b")
        lab.later(6)
        await fill(lab, 1, concurrency_key="c")
        # It arrived when it was due, not when it was stored.
        assert keys(await lab.claim(worker, 10)) == ["b", "a", "c"]

    async def test_a_key_comes_with_a_job_that_waited_for_another(self, lab: Lab, worker: UUID) -> None:
        parent = await lab.running(worker, "parent")
        child = lab.job(concurrency_key="a", waits=1, after=(parent.id,))
        await lab.put_all(child)
        assert await lab.claim(worker) == []
        await lab.finish(parent)
        await lab.process_notes()
        assert [job.id for job in await lab.claim(worker)] == [child.id]

    async def test_a_key_that_was_emptied_is_filled_again(self, lab: Lab, worker: UUID) -> None:
        for _ in range(3):
            await fill(lab, 2, concurrency_key="a")
            lab.later(1)
            await fill(lab, 1, concurrency_key="b")
            lab.later(1)
            taken = await lab.claim(worker, 10)
            assert keys(taken) == ["a", "b", "a"]
            await done(lab, taken)
            lab.later(1)

    async def test_the_turn_of_a_key_that_was_emptied_is_remembered(self, lab: Lab, worker: UUID) -> None:
        deferred = await lab.put(concurrency_key="a", delay=3)
        await fill(lab, 1, concurrency_key="a")
        lab.later(4)  # due at three, but behind a turn at five
        waits = await lab.put(concurrency_key="b")
        assert await lab.engine.jobs.promote(lab.now) == 1
        lab.later(1)
        assert keys(await lab.claim(worker, 1)) == ["a"]
        assert [job.id for job in await lab.claim(worker, 2)] == [waits.id, deferred.id]

    @pytest.mark.parametrize(
        ("key", "document"),
        [
            ("queue:default", {"max_concurrency": 1}),
            ("limit:work", {"max_concurrency": 1}),
            ("limit:work", {"max_per_key": 1}),
        ],
        ids=str,
    )
    async def test_who_waits_for_a_slot_is_told_so(self, lab: Lab, key: str, document: dict[str, Any]) -> None:
        await rule(lab, key, **document)
        worker = await lab.worker()
        await fill(lab, 2, concurrency_key="a")
        [job] = await lab.claim(worker, 1)
        claimed = await lab.claimed(worker, 1)
        assert (claimed.jobs, claimed.full) == ((), True)
        await free(lab, job)
        claimed = await lab.claimed(worker, 2)
        assert (len(claimed.jobs), claimed.full) == (1, False)
