"""Actions: jobs are postponed, run now, moved to other queues, given other priorities, and prepared for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.jobs.limits import fill, free, keys, rule
from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Event, Failed, Released, Snoozed
from headrace.core.change import Applied, Change, Conflict, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, submission
from headrace.core.lifecycle.retry import Retry
from headrace.core.limits.settings import Bound
from headrace.core.query import Filter
from headrace.core.status import Status
from headrace.errors import Unstorable

__all__ = ["Acting"]

IDLE = [Status.WAITING, Status.QUEUED, Status.SCHEDULED, Status.RETRYING]


async def moved(lab: Lab, job: Job, queue: str) -> Job:
    """Return the job in another queue."""
    return await lab.do(actions.move(job, queue, lab.now, by="ann"))


async def ranked(lab: Lab, job: Job, priority: int) -> Job:
    """Return the job with another priority."""
    return await lab.do(actions.reprioritise(job, priority, lab.now, by="ann"))


async def counts(lab: Lab) -> dict[tuple[str, Status], int]:
    """Return how many jobs are in each queue and status."""
    return {(one.queue, one.status): one.jobs for one in await lab.engine.records.count(lab.now)}


class Acting(Part):
    """What ``apply`` promises of actions that leave a job live, and what claims make of them."""

    # -- when

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_postponed_job_is_in_line_again_at_its_time(self, lab: Lab, worker: UUID, key: str | None) -> None:
        job = await lab.put(concurrency_key=key)
        job = await lab.do(actions.postpone(job, lab.at(60), lab.now, by="ann"))
        assert (job.status, job.available_at) == (Status.SCHEDULED, lab.at(60))
        assert await lab.claim(worker) == []
        lab.later(60)
        [taken] = await lab.claim(worker)
        assert (taken.id, taken.arrived_at) == (job.id, lab.now)

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_job_that_runs_now_is_in_line_at_once(self, lab: Lab, worker: UUID, key: str | None) -> None:
        later = await lab.put(concurrency_key=key, delay=60)
        failed = await lab.finish(await lab.running(worker, "fail", concurrency_key=key), Failed(error=OOPS))
        assert (failed.status, await lab.claim(worker)) == (Status.RETRYING, [])
        lab.later(1)
        for job in (later, failed):
            now = await lab.do(actions.run_now(job, lab.now, by="ann"))
            assert (now.status, now.available_at, now.arrived_at) == (Status.QUEUED, lab.now, lab.now)
        assert {job.id for job in await lab.claim(worker)} == {later.id, failed.id}

    async def test_a_retry_with_a_delay_waits_for_it(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work", dedup="k")
        job = await lab.do(actions.retry(job, lab.now, delay=30))
        assert (job.status, job.available_at) == (Status.SCHEDULED, lab.at(30))
        assert await lab.claim(await lab.worker()) == []
        lab.later(30)
        assert [one.id for one in await lab.claim(await lab.worker())] == [job.id]

    # -- where

    @pytest.mark.parametrize("status", IDLE)
    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_moved_job_is_given_from_its_new_queue(self, lab: Lab, status: Status, key: str | None) -> None:
        worker = await lab.worker()
        job = await lab.stand(status, "work", queue="a", concurrency_key=key)
        job = await moved(lab, job, "b")
        assert (job.queue, job.asked_queue, job.status) == ("b", "a", status)
        assert await counts(lab) == {("b", status): 1}
        lab.later(3600)
        if status is Status.WAITING:
            job = await lab.do(submission.unblock(job, lab.now))
        assert await lab.claim(worker, queues=("a",)) == []
        [taken] = await lab.claim(worker, queues=("b",))
        assert (taken.id, taken.queue) == (job.id, "b")

    async def test_it_keeps_its_arrival(self, lab: Lab, worker: UUID) -> None:
        first = await lab.put(queue="a")
        lab.later(1)
        second = await lab.put(queue="b")
        lab.later(1)
        third = await lab.put(queue="a")
        lab.later(1)
        for job in (third, first):
            await moved(lab, job, "b")
        assert [job.id for job in await lab.claim(worker)] == [first.id, second.id, third.id]

    async def test_it_can_be_moved_back(self, lab: Lab) -> None:
        job = await moved(lab, await lab.put(queue="a"), "b")
        back = await moved(lab, job, "a")
        assert (back.queue, back.moved_to) == ("a", None)
        assert [one.id for one in await lab.claim(await lab.worker(), queues=("a",))] == [job.id]

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_jobs_are_given_by_their_new_priorities(self, lab: Lab, worker: UUID, key: str | None) -> None:
        jobs = await lab.put_all(*(lab.job(concurrency_key=key) for _ in range(5)))
        priorities = (10, 90, 50, 0, 100)
        for job, priority in zip(jobs, priorities, strict=True):
            if priority != job.priority:
                done = await ranked(lab, job, priority)
                assert (done.priority, done.asked_priority, done.arrived_at) == (priority, 50, job.arrived_at)
        taken = await lab.claim(worker)
        assert [job.priority for job in taken] == [100, 90, 50, 10, 0]

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_queue_and_priority_outlast_attempts(self, lab: Lab, worker: UUID, key: str | None) -> None:
        job = await lab.put(queue="a", concurrency_key=key, retry=Retry(3, initial=0))
        job = await ranked(lab, await moved(lab, job, "b"), 70)
        for ending in (Released(), Snoozed(0), Failed(error=OOPS), Completed("1")):
            lab.later(60)
            [taken] = await lab.claim(worker, queues=("b",))
            job = await lab.finish(await lab.start(taken), ending)
            assert (job.queue, job.priority, job.spec.queue, job.spec.priority) == ("b", 70, "a", 50)
            assert await lab.get(job) == job

    async def test_a_start_that_rides_keeps_them_too(self, lab: Lab, worker: UUID) -> None:
        await ranked(lab, await moved(lab, await lab.put(queue="a"), "b"), 70)
        [taken] = await lab.claim(worker)
        done = await lab.do(lab.end(taken, Completed("1"), started_at=lab.now))
        assert (done.queue, done.priority, done.status) == ("b", 70, Status.COMPLETED)
        again = await lab.do(actions.note_rerun(done, lab.new_id(), lab.now))
        assert (again.queue, again.result_text) == ("b", "1")

    async def test_a_retried_job_stands_where_it_was_moved_to(self, lab: Lab, worker: UUID) -> None:
        job = await ranked(lab, await moved(lab, await lab.put(queue="a", dedup="k"), "b"), 70)
        job = await lab.do(actions.retry(await lab.cancel(job), lab.now))
        other = await lab.put(queue="b", priority=60)
        assert [one.id for one in await lab.claim(worker, queues=("b",))] == [job.id, other.id]

    # -- keys and limits

    async def test_the_first_of_a_key_leaves_its_line_to_the_next(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        first, second, _ = await fill(lab, 3, queue="a", concurrency_key="x")
        other = (await fill(lab, 1, queue="b", concurrency_key="x"))[0]
        lab.later(1)
        await moved(lab, first, "b")
        [one] = await lab.claim(worker, queues=("a",))
        assert one.id == second.id
        assert await lab.claim(worker, queues=("b",)) == [], "the slot of the key is taken, in whichever queue"
        await free(lab, one)
        lab.later(1)
        [two] = await lab.claim(worker, queues=("b",))
        assert two.id == first.id
        await free(lab, two)
        lab.later(1)
        [three] = await lab.claim(worker, queues=("b",))
        assert three.id == other.id

    async def test_keys_take_turns_after_a_move(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        jobs = [
            *await fill(lab, 2, queue="a", concurrency_key="x"),
            *await fill(lab, 2, queue="a", concurrency_key="y"),
        ]
        for job in jobs:
            await moved(lab, job, "b")
        for _ in range(2):
            lab.later(1)
            taken = await lab.claim(worker)
            assert sorted(map(str, keys(taken))) == ["x", "y"]
            await free(lab, *taken)
        assert await lab.claim(worker) == []

    async def test_whoever_moved_while_its_key_was_full_is_claimed_when_that_is_free(self, lab: Lab) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        names = [f"k{number:02}" for number in range(60)]
        await lab.put_all(*(lab.job(queue="old", concurrency_key=name) for name in names))
        lab.later(1)
        waiting = await lab.put_all(*(lab.job(queue="old", concurrency_key=name) for name in names))
        worker = await lab.worker()
        held = await lab.claim(worker, 60)
        assert (len(held), await lab.claim(worker, 1)) == (60, [])
        for job in waiting:
            await moved(lab, job, "new")
        assert await lab.claim(worker, 1) == []
        await free(lab, *held)
        assert {job.id for job in await lab.claim(worker, 60)} == {job.id for job in waiting}

    async def test_the_limits_of_its_new_queue_hold(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "queue:b", max_concurrency=1)
        for job in await fill(lab, 3, queue="a"):
            await moved(lab, job, "b")
        [taken] = await lab.claim(worker)
        bound: Bound = ("queue", "b")
        assert (await lab.engine.records.usage([])).held.get(bound) == 1
        assert await lab.claim(worker) == []
        await free(lab, taken)
        assert len(await lab.claim(worker)) == 1

    async def test_a_paused_queue_keeps_what_was_moved_there(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "queue:b", paused=True)
        job = await moved(lab, await lab.put(queue="a"), "b")
        assert await lab.claim(worker) == []
        await moved(lab, job, "a")
        assert [one.id for one in await lab.claim(worker)] == [job.id]

    # -- reading

    async def test_it_is_found_and_counted_in_its_new_queue(self, lab: Lab) -> None:
        stays = await lab.put(queue="b")
        lab.later(1)
        job = await ranked(lab, await moved(lab, await lab.put(queue="a"), "b"), 90)
        for queue, ids in (("a", []), ("b", [job.id, stays.id])):
            found = await lab.engine.records.find(Filter(queue=frozenset({queue})), lab.now, 10)
            assert [one.id for one in found.items] == ids
        assert await counts(lab) == {("b", Status.QUEUED): 2}
        for one, ahead in ((job, 0), (await lab.get(stays), 1)):
            position = await lab.engine.records.position(one, lab.now)
            assert position is not None
            assert position.ahead == ahead

    async def test_a_job_that_was_moved_elsewhere_is_inserted_as_it_is(self, lab: Lab) -> None:
        job = replace(lab.job(queue="a"), moved_to="b", reprioritised_to=90)
        stored = (await lab.put_all(lab.job(queue="b"), job))[1]
        assert (await lab.get(stored), stored.queue) == (stored, "b")
        assert (await lab.claim(await lab.worker(), queues=("b",)))[0].id == job.id

    # -- the audit

    async def test_every_act_is_on_record(self, lab: Lab) -> None:
        job = await lab.put(queue="a")
        job = await ranked(lab, await moved(lab, job, "b"), 70)
        job = await lab.do(actions.postpone(job, lab.at(60), lab.now, by="bob"))
        job = await lab.do(actions.run_now(job, lab.now, by="eve"))
        job = await lab.do(actions.resolve(job, lab.now, result_text="1", by="eve"))
        await lab.do(actions.note_rerun(job, job.id, lab.now, by="bob"))
        until = "2030-01-02T03:05:05.678901Z"
        assert (await lab.engine.records.history(job.id)).events == (
            Event("move", lab.now, "ann", details={"from": "a", "to": "b"}),
            Event("reprioritise", lab.now, "ann", details={"from": 50, "to": 70}),
            Event("postpone", lab.now, "bob", details={"until": until}),
            Event("run_now", lab.now, "eve"),
            Event("resolve", lab.now, "eve"),
            Event("rerun", lab.now, "bob", details={"job": str(job.id)}),
        )

    # -- fences

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_an_act_that_comes_too_late_moves_nothing(self, lab: Lab, key: str | None) -> None:
        job = await lab.put(queue="a", concurrency_key=key)
        decide: list[Callable[[], Change | None]] = [
            lambda: actions.move(job, "b", lab.now),
            lambda: actions.reprioritise(job, 90, lab.now),
            lambda: actions.postpone(job, lab.at(9), lab.now),
        ]
        late = [change for one in decide if (change := one()) is not None]
        [taken] = await lab.claim(await lab.worker())
        for change in late:
            [verdict] = await lab.apply(change)
            assert isinstance(verdict, Conflict)
        assert await lab.get(job) == taken
        back = await lab.finish(await lab.start(taken), Released())
        assert await counts(lab) == {("a", Status.QUEUED): 1}
        assert [one.id for one in await lab.claim(await lab.worker(), queues=("a",))] == [back.id]

    async def test_many_are_moved_in_one_call(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(f"t{n % 3}", queue="a") for n in range(30)))
        changes = [
            change
            for n, job in enumerate(jobs)
            if (change := actions.move(job, f"q{n % 2}", lab.now) if n % 5 else actions.reprioritise(job, 90, lab.now))
        ]
        stamped = [lab.stamp(change) for change in changes]
        for _ in range(2):  # a repeat changes nothing more
            verdicts = await lab.engine.jobs.apply(stamped, lab.now)
            assert [type(verdict) for verdict in verdicts] == [Applied] * 30
        assert [await lab.get(job) for job in jobs] == [change.job for change in changes]
        taken = await lab.claim(await lab.worker(), queues=("a",))
        assert [job.id for job in taken] == [job.id for job in jobs[::5]]

    @pytest.mark.parametrize("queue", ["a\0b", "a\ud800"])
    async def test_a_name_that_no_store_keeps_is_refused(self, lab: Lab, queue: str) -> None:
        job = await lab.put()
        with pytest.raises(Unstorable):
            await lab.do(actions.move(job, queue, lab.now))
        assert await lab.get(job) == job

    async def test_preparing_renews_the_start(self, lab: Lab, worker: UUID) -> None:
        job = await lab.held(worker, accept=False, timeout=100.0)
        for _ in range(3):
            lab.later(20)
            job = await lab.do(execution.prepare(job, lab.now, lab.rules))
            assert (job.status, job.act_by) == (Status.ACCEPTED, lab.at(30))
        lab.later(29)
        assert await lab.overdue() == []
        job = await lab.do(execution.prepare(job, lab.now, lab.rules))
        assert (job.assigned_at, job.act_by) == (lab.at(-89), lab.at(11)), "no longer than it may run"
        lab.later(11)
        assert await lab.overdue() == [job]

    async def test_who_lost_the_job_prepares_nothing(self, lab: Lab) -> None:
        job = await lab.held(await lab.worker())
        late = execution.prepare(job, lab.now, lab.rules)
        await lab.do(execution.release(job, lab.now))
        [verdict] = await lab.apply(late)
        assert isinstance(verdict, WasStale)
        assert job.act_by == lab.now + timedelta(seconds=lab.rules.start)
