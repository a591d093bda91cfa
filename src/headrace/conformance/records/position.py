"""Position: how many jobs are before one, and the recent work of its queue, as the core computes it from all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from headrace.conformance.lab import OOPS, Choices, Lab, Part
from headrace.core.attempt import Completed, Ending, Failed, Released
from headrace.core.explain.position import BY_WORK, Position
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.claim import order
from headrace.core.lifecycle.decision import expired
from headrace.core.lifecycle.retry import Retry
from headrace.core.query import Filter, as_seen
from headrace.core.status import Reason, Status

__all__ = ["Positions"]

_ENDINGS: tuple[Ending, ...] = (
    Completed(),
    Failed(error=OOPS, reason=Reason.NON_RETRYABLE),
    Failed(error=OOPS),
    Released(),
)


def model(jobs: Sequence[Job], job: Job, now: datetime, window: float) -> Position:
    """Return the position computed from every job."""
    place, since = order(as_seen(job, now), 0), now - timedelta(seconds=window)
    seen = [as_seen(one, now) for one in jobs if one.queue == job.queue]
    ahead = [one for one in seen if one.status is Status.QUEUED and order(one, 0) < place and not expired(one, now)]
    done = [
        one.assigned_at
        for one in seen
        if one.status in BY_WORK
        and one.assigned_at is not None
        and one.finished_at is not None
        and one.finished_at > since
    ]
    return Position(
        ahead=len(ahead),
        keyed=sum(one.concurrency_key is not None for one in ahead),
        more=False,
        ended=len(done),
        since=since,
        first_claimed_at=min(done, default=None),
    )


async def everything(lab: Lab) -> list[Job]:
    """Return every job, as stored."""
    found = (await lab.engine.records.find(Filter(), lab.now, 1000)).items
    return [job for job in await lab.engine.jobs.get([one.id for one in found]) if job is not None]


class Positions(Part):
    """What the position of a queued job promises."""

    async def test_priority_then_arrival_then_order_number(self, lab: Lab) -> None:
        last, low = await lab.put_all(lab.job(), lab.job(priority=20))
        lab.later(1)
        high, even = await lab.put_all(lab.job(priority=80), lab.job("other", requires={"gpu": True}))
        await lab.put(queue="elsewhere", priority=90)
        asked = [await lab.engine.records.position(job, lab.now) for job in (high, last, even, low)]
        assert [one.ahead for one in asked] == [0, 1, 2, 3]
        assert not any(one.more or one.keyed or one.ended for one in asked)

    async def test_a_due_job_has_its_place_before_it_is_promoted(self, lab: Lab) -> None:
        due, later = await lab.put_all(lab.job(delay=10), lab.job(delay=60))
        first = await lab.put()
        lab.later(20)
        last = await lab.put()
        for _ in range(2):
            jobs = [await lab.get(job) for job in (first, due, last)]
            assert [(await lab.engine.records.position(job, lab.now)).ahead for job in jobs] == [0, 1, 2]
            assert await lab.get(later) == later, "looking changes nothing"
            await lab.engine.jobs.promote(lab.now)

    async def test_a_due_job_of_another_queue_is_not_before_it(self, lab: Lab) -> None:
        await lab.put_all(
            *(lab.job(queue="elsewhere", delay=n, priority=90) for n in (1, 2)),
            lab.job(queue="elsewhere", delay=3, priority=90, concurrency_key="k"),
            lab.job(delay=4),
        )
        lab.later(10)
        job = await lab.put()
        for _ in range(2):
            position = await lab.engine.records.position(job, lab.now)
            assert (position.ahead, position.keyed) == (1, 0)
            await lab.engine.jobs.promote(lab.now)

    async def test_who_is_held_ended_or_expired_is_not_before_it(self, lab: Lab) -> None:
        for status in Status:
            if status is not Status.QUEUED:
                await lab.stand(status, status.value, retry=Retry(jitter=False))
        await lab.put(not_after=10)
        job = await lab.put()
        assert (await lab.engine.records.position(job, lab.now)).ahead == 1
        lab.later(10)
        assert (await lab.engine.records.position(job, lab.now)).ahead == 0

    async def test_keys_are_counted_by_order(self, lab: Lab) -> None:
        await lab.put_all(*(lab.job(concurrency_key=key) for key in "abacab"))
        job = (await lab.put_all(lab.job(), lab.job(concurrency_key="b")))[1]
        position = await lab.engine.records.position(job, lab.now)
        assert (position.ahead, position.keyed) == (7, 6)

    async def test_what_was_done_in_the_window(self, lab: Lab, worker: UUID) -> None:
        job = await lab.put("asked")
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.RETRYING):
            await lab.stand(status, status.value)
        await lab.running(worker, "elsewhere", queue="elsewhere")
        begun = lab.now
        running = await lab.running(worker, "long")
        lab.later(50)
        await lab.finish(running)
        position = await lab.engine.records.position(job, lab.now, 60.0)
        assert (position.ended, position.first_claimed_at) == (3, begun)
        assert position.since == lab.at(-60)
        lab.later(10)
        position = await lab.engine.records.position(job, lab.now, 60.0)
        assert (position.ended, position.first_claimed_at) == (1, begun), "who ended at its very beginning is not in it"
        lab.later(50)
        position = await lab.engine.records.position(job, lab.now, 60.0)
        assert (position.ended, position.first_claimed_at) == (0, None)

    async def test_what_was_set_by_hand_is_not_the_work_of_a_queue(self, lab: Lab) -> None:
        job, *others = await lab.put_all(*(lab.job() for _ in range(3)))
        await lab.do(actions.resolve(others[0], lab.now, result_text="1"))
        await lab.cancel(others[1])
        assert (await lab.engine.records.position(job, lab.now)).ended == 0

    async def test_no_more_are_looked_at_than_told(self, lab: Lab) -> None:
        *_, job = await lab.put_all(*(lab.job("ab"[n % 2]) for n in range(10)))
        assert [
            (found.ahead, found.more)
            for found in [await lab.engine.records.position(job, lab.now, 60.0, most) for most in (8, 9, 10)]
        ] == [(8, True), (9, False), (9, False)]

    async def test_nor_of_those_that_are_due(self, lab: Lab) -> None:
        *_, job = await lab.put_all(*(lab.job(delay=n) for n in range(1, 11)))
        lab.later(20)
        found = await lab.engine.records.position(job, lab.now, 60.0, 5)
        assert found.more
        assert found.ahead <= 5
        assert (await lab.engine.records.position(job, lab.now, 60.0, 10)).ahead == 9

    async def test_nor_keys(self, lab: Lab) -> None:
        *_, job = await lab.put_all(*(lab.job(concurrency_key=f"k{n}") for n in range(10)))
        found = await lab.engine.records.position(job, lab.now, 60.0, 5)
        assert found.more
        assert found.ahead <= 5
        assert (await lab.engine.records.position(job, lab.now, 60.0, 10)).ahead == 9

    async def test_nor_of_those_that_ended(self, lab: Lab) -> None:
        job = await lab.put("asked", queue="mine")
        ends: list[datetime] = []
        for n in range(6):
            lab.later(1)
            status = Status.FAILED if n % 2 else Status.COMPLETED
            await lab.stand(status, f"t{n}", queue="other" if n == 4 else "mine")
            ends.append(lab.now)
        found = await lab.engine.records.position(job, lab.now, 60.0, 3)
        assert (found.since, found.ended, found.first_claimed_at) == (ends[2], 2, ends[3])
        found = await lab.engine.records.position(job, lab.now, 60.0, 6)
        assert (found.since, found.ended, found.first_claimed_at) == (lab.at(-60), 5, ends[0])

    @pytest.mark.parametrize("seed", range(4))
    async def test_it_agrees_with_the_core(self, lab: Lab, worker: UUID, seed: int) -> None:
        choose = Choices(seed)
        for _ in range(8):
            await lab.put_all(
                *(
                    lab.job(
                        choose("a", "b"),
                        queue=choose("q", "r"),
                        priority=choose(10, 50, 90),
                        concurrency_key=choose(None, None, "x", "y"),
                        delay=choose(0, 0, 5, 50),
                        not_after=choose(None, None, 30.0),
                    )
                    for _ in range(8)
                )
            )
            lab.later(choose(0.0, 0.5, 5.0))
            for job in await lab.claim(worker, choose(1, 4)):
                await lab.finish(await lab.start(job), choose(*_ENDINGS))
            lab.later(choose(0.0, 5.0))  # some become due that no claim has promoted yet
            window = choose(1.0, 5.0, 300.0)
            jobs = await everything(lab)
            for job in jobs:
                if as_seen(job, lab.now).status is Status.QUEUED:
                    assert await lab.engine.records.position(job, lab.now, window) == model(jobs, job, lab.now, window)
