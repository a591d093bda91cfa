"""Claims: order, permissions, repeats, and the end of a worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Choices, Lab, Part
from headrace.core.attempt import Completed, Failed, Released, Snoozed
from headrace.core.job import Job
from headrace.core.lifecycle import execution, loss
from headrace.core.lifecycle.claim import ClaimRequest, order, pick
from headrace.core.lifecycle.retry import Retry
from headrace.core.matching.match import serves
from headrace.core.status import Cause, Status
from headrace.engine import MAX_BATCH, Claimed, Dead

__all__ = ["Claiming"]


async def pause(lab: Lab, queue: str, document: str = '{"paused":true}') -> None:
    """Write a queue's document, whatever it was."""
    await lab.set(f"queue:{queue}", document)


async def lose(lab: Lab, job: Job) -> Job:
    """Take a held job from its worker as the sweeper does."""
    return await lab.do(loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules))


class Claiming(Part):
    """What ``claim`` promises."""

    async def test_an_empty_store_gives_nothing(self, lab: Lab) -> None:
        claimed = await lab.claimed(await lab.worker())
        assert (claimed.jobs, claimed.next_due) == ((), None)

    async def test_a_claimed_job_is_in_the_workers_hands(self, lab: Lab) -> None:
        job, worker = await lab.put(), await lab.worker()
        lab.later(1)
        [taken] = await lab.claim(worker, request=77)
        assert taken == replace(
            job,
            status=Status.ACCEPTED,
            rev=job.rev + 1,
            epoch=taken.epoch,
            worker=worker,
            claim=77,
            assigned_at=lab.now,
            accepted_at=lab.now,
            act_by=lab.at(lab.rules.start),
            updated_at=lab.now,
        )
        assert taken.epoch > job.epoch
        assert await lab.get(job) == taken

    async def test_an_offered_job_waits_to_be_accepted(self, lab: Lab) -> None:
        job, worker = await lab.put(), await lab.worker()
        [taken] = await lab.claim(worker, accept=False)
        assert (taken.status, taken.assigned_at, taken.accepted_at) == (Status.ASSIGNED, lab.now, None)
        assert taken.act_by == lab.at(lab.rules.accept)
        assert taken.epoch > job.epoch
        assert await lab.get(job) == taken

    async def test_a_job_is_given_once(self, lab: Lab, one: UUID, two: UUID) -> None:
        jobs = await lab.put_all(*(lab.job() for _ in range(7)))
        given = [await lab.claim(worker, 3) for worker in (one, two, one)]
        assert [len(jobs) for jobs in given] == [3, 3, 1]
        assert [job.id for part in given for job in part] == [job.id for job in jobs]

    @pytest.mark.parametrize("n", [0, 1, 5, 6])
    async def test_no_more_than_asked_for(self, lab: Lab, n: int) -> None:
        await lab.put_all(*(lab.job() for _ in range(5)))
        assert len(await lab.claim(await lab.worker(), n)) == min(n, 5)

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.QUEUED}))
    async def test_only_queued_jobs_are_given(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", retry=Retry(jitter=False))
        assert await lab.claim(await lab.worker()) == []
        assert await lab.get(job) == job

    # -- order

    async def test_order_is_queue_priority_then_priority_then_arrival_then_order_number(self, lab: Lab) -> None:
        await pause(lab, "urgent", '{"priority":1}')
        await pause(lab, "idle", '{"priority":-1,"paused":false}')
        last = await lab.put(queue="idle", priority=100)
        fourth = await lab.put(priority=50)
        fifth = await lab.put(priority=50)
        third = await lab.put(priority=51)
        second = await lab.put(queue="urgent", priority=0)
        first = await lab.put(queue="urgent", priority=1)
        sixth = await lab.put(priority=49)
        wanted = [first, second, third, fourth, fifth, sixth, last]
        assert [job.id for job in await lab.claim(await lab.worker())] == [job.id for job in wanted]

    async def test_arrival_counts_before_the_order_number(self, lab: Lab) -> None:
        late = await lab.put(delay=20)
        early = await lab.put(delay=10)
        lab.later(15)
        middle = await lab.put()
        lab.later(15)
        assert [job.id for job in await lab.claim(await lab.worker())] == [early.id, middle.id, late.id]

    async def test_what_is_released_or_lost_unstarted_keeps_its_place(self, lab: Lab, worker: UUID) -> None:
        one, two = await lab.put(), await lab.put()
        lab.later(1)
        [first] = await lab.claim(worker, 1)
        [second] = await lab.claim(worker, 1)
        third = await lab.put()
        lab.later(1)
        await lose(lab, second)
        await lab.do(lab.end(await lab.start(first), Released()))
        assert [job.id for job in await lab.claim(worker)] == [one.id, two.id, third.id]

    async def test_what_waited_for_its_time_arrives_when_due(self, lab: Lab, worker: UUID) -> None:
        snoozed = await lab.finish(await lab.running(worker), Snoozed(10))
        lab.later(11)
        other = await lab.put()
        assert [job.id for job in await lab.claim(worker)] == [snoozed.id, other.id]

    async def test_a_changed_queue_priority_rules_the_next_claim(self, lab: Lab, worker: UUID) -> None:
        one, two = await lab.put_all(lab.job(queue="a"), lab.job(queue="b"))
        await lab.put_all(lab.job(queue="a"), lab.job(queue="b"))
        await pause(lab, "b", '{"priority":5}')
        assert [job.id for job in await lab.claim(worker, 1)] == [two.id]
        await pause(lab, "b", '{"priority":-5}')
        assert [job.id for job in await lab.claim(worker, 1)] == [one.id]

    @pytest.mark.parametrize("seed", range(5))
    async def test_the_result_is_what_the_core_picks(self, lab: Lab, worker: UUID, seed: int) -> None:
        choose = Choices(seed)
        queues = {"a": choose(-1, 0, 1), "b": choose(-1, 0, 1), "c": 0}
        for queue, priority in queues.items():
            await pause(lab, queue, f'{{"priority":{priority},"paused":{str(queue == "c").lower()}}}')
        here: dict[object, Job] = {}
        for _ in range(8):
            for job in await lab.put_all(
                *(
                    lab.job(
                        choose("one", "two", "three"),
                        queue=choose("a", "b", "c"),
                        priority=choose(0, 50, 50, 100),
                        delay=choose(0, 0, 3),
                        not_after=choose(None, None, 5),
                        requires=choose({}, {"gpu": True}),
                    )
                    for _ in range(9)
                )
            ):
                here[job.id] = job
            lab.later(choose(0, 1.5))
            await lab.engine.jobs.promote(lab.now)
            n, free = choose(*range(10)), choose(*range(5))
            tasks, served = ("one", "two"), ("a", "c", "b")[: choose(1, 2, 3)]
            line = [
                job
                for job in [await lab.get(job) for job in here.values()]
                if job.status is Status.QUEUED and job.task in tasks and job.queue in served and job.queue != "c"
            ]
            line.sort(key=lambda job: order(job, queues[job.queue]))
            wanted = pick(line, ClaimRequest(n=n, free=free, profiles=frozenset()), lab.now, lab.rules)
            given = await lab.claim(worker, n, free=free, tasks=tasks, queues=served)
            assert [job.id for job in given] == [job.id for job in wanted]
            for job in given[::2]:
                await lose(lab, job)

    # -- what may be taken

    async def test_only_profiles_asked_for_are_given(self, lab: Lab) -> None:
        await lab.put("one")
        two = await lab.put("two")
        assert [job.id for job in await lab.claim(await lab.worker(), tasks=("two", "three"))] == [two.id]
        assert await lab.claim(await lab.worker(), tasks=()) == []

    async def test_jobs_that_a_worker_cannot_take_hold_up_nobody(self, lab: Lab) -> None:
        large: dict[str, Any] = {"requires": {"hardware": {"gpu_memory_gb": 24}}, "priority": 90}
        small: dict[str, Any] = {"requires": {"hardware": {"gpu_memory_gb": 8}}}
        others: dict[str, Any] = {"requires": {"hardware": {"not": {"gpu_memory_gb": 16}}}}
        first = await lab.put_all(*(lab.job(**large) for _ in range(5)))
        jobs = await lab.put_all(*(lab.job(**kind) for kind in (small, {}, others, small, {})))
        known = (await lab.engine.documents.profiles()).profiles
        for memory, may in ((16, [0, 1, 3, 4]), (8, [2]), (24, [])):
            offers = {"hardware": {"gpu_memory_gb": memory}}
            served = frozenset(one.id for one in known if serves(one, frozenset({"work"}), offers))
            answer = await lab.engine.jobs.claim(
                await lab.worker(), ClaimRequest(n=9, free=9, profiles=served), memory, lab.now
            )
            assert isinstance(answer, Claimed)
            wanted = [*(first if memory == 24 else ()), *(jobs[at] for at in may)]
            assert [job.id for job in answer.jobs] == [job.id for job in wanted]

    async def test_only_queues_asked_for_are_given(self, lab: Lab, worker: UUID) -> None:
        await lab.put_all(*(lab.job(queue=queue) for queue in "abc"))
        assert await lab.claim(worker, queues=()) == []
        assert [job.queue for job in await lab.claim(worker, queues=("c", "nope", "a"))] == ["a", "c"]
        assert [job.queue for job in await lab.claim(worker)] == ["b"]

    async def test_a_paused_queue_gives_nothing_until_it_is_resumed(self, lab: Lab, worker: UUID) -> None:
        job = await lab.put(queue="q")
        await pause(lab, "q")
        assert await lab.claim(worker) == []
        assert await lab.claim(worker, queues=("q",)) == []
        assert await lab.get(job) == job
        await pause(lab, "q", '{"paused":false}')
        assert [taken.id for taken in await lab.claim(worker)] == [job.id]

    async def test_a_paused_task_gives_nothing_until_it_is_resumed(self, lab: Lab, worker: UUID) -> None:
        jobs = [await lab.put("held", queue=queue, concurrency_key=key) for queue in "ab" for key in (None, "k")]
        other = await lab.put("other")
        assert await lab.claim(worker, n=0) == []  # the session knows the subqueues by now
        await lab.set("limit:held", '{"paused":true}')
        assert [taken.id for taken in await lab.claim(worker)] == [other.id]
        assert await lab.claim(worker, queues=("a",)) == []
        assert [await lab.get(job) for job in jobs] == jobs
        await lab.set("limit:other", '{"max_concurrency":1}')  # the claims select under limits now
        assert await lab.claim(worker) == []
        await lab.set("limit:held", '{"paused":false}')
        assert {taken.id for taken in await lab.claim(worker)} == {job.id for job in jobs}

    async def test_a_deleted_task_document_ends_the_pause(self, lab: Lab) -> None:
        worker, job = await lab.worker(), await lab.put("held")
        await lab.set("limit:held", '{"paused":true}')
        assert await lab.claim(worker) == []
        [setting] = await lab.engine.documents.settings("limit:held")
        await lab.engine.documents.put_setting("limit:held", None, setting.rev)
        assert [taken.id for taken in await lab.claim(worker)] == [job.id]

    async def test_a_deleted_queue_document_leaves_the_defaults(self, lab: Lab) -> None:
        worker, job = await lab.worker(), await lab.put(queue="q")
        await pause(lab, "q")
        [setting] = await lab.engine.documents.settings("queue:q")
        await lab.engine.documents.put_setting("queue:q", None, setting.rev)
        assert [taken.id for taken in await lab.claim(worker)] == [job.id]

    async def test_a_job_past_its_last_moment_is_passed_over(self, lab: Lab) -> None:
        missed, last, free = await lab.put(not_after=10), await lab.put(not_after=10.000001), await lab.put()
        lab.later(10)
        assert [job.id for job in await lab.claim(await lab.worker())] == [last.id, free.id]
        assert await lab.get(missed) == missed

    @pytest.mark.parametrize(("tasks", "each"), [(1, 100), (2, 100), (50, 10)])
    async def test_jobs_past_their_last_moment_take_nobodys_place(self, lab: Lab, tasks: int, each: int) -> None:
        names = [f"task{at}" for at in range(tasks)]
        missed = await lab.put_all(*(lab.job(name, not_after=5, priority=60) for name in names for _ in range(each)))
        late = await lab.put_all(*(lab.job(name, not_after=9) for name in names))
        free = await lab.put_all(*(lab.job(name) for name in names))
        lab.later(6)
        taken = await lab.claim(await lab.worker(), 2 * tasks)
        assert [job.id for job in taken] == [job.id for job in (*late, *free)]
        assert await lab.claim(await lab.worker()) == []
        assert await lab.engine.jobs.get([job.id for job in missed]) == missed

    async def test_a_job_that_was_started_in_time_is_given_again_after_it(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, not_after=10)
        await lab.finish(job, Failed(error=OOPS))
        lab.later(1000)
        assert [taken.id for taken in await lab.claim(worker)] == [job.id]

    async def test_a_fragile_job_goes_only_straight_into_a_free_slot(self, lab: Lab, worker: UUID) -> None:
        fragile = await lab.put()
        for _ in range(lab.rules.fragile_after):
            [taken] = await lab.claim(worker)
            await lose(lab, taken)
        before, after = await lab.put(priority=60), await lab.put()
        assert [job.id for job in await lab.claim(worker, 3, free=0)] == [before.id], "it stops in front of it"
        assert await lab.claim(worker, 3, free=0) == [], "and does not pass it over"
        assert [job.id for job in await lab.claim(worker, 3, free=1)] == [fragile.id, after.id]

    # -- promotion inside

    @pytest.mark.parametrize("limited", [False, True])
    async def test_a_repeat_promotes_what_is_due_by_then(self, lab: Lab, limited: bool) -> None:
        if limited:
            await lab.engine.documents.put_setting("limit:work", '{"max_concurrency":5}', 0)
        worker, job, due = await lab.worker(), await lab.put(), await lab.put(delay=2)
        first = await lab.claimed(worker, 1, request=7)
        assert ([one.id for one in first.jobs], first.next_due) == ([job.id], lab.at(2))
        lab.later(2)
        again = await lab.claimed(worker, 1, request=7)
        assert (again.jobs, again.next_due) == (first.jobs, None)
        assert (await lab.get(due)).status is Status.QUEUED

    async def test_what_is_due_is_promoted_first(self, lab: Lab, worker: UUID) -> None:
        scheduled = await lab.put(delay=5)
        failed = await lab.finish(
            await lab.running(worker, "other", retry=Retry(backoff=[4], jitter=False)), Failed(error=OOPS)
        )
        assert await lab.claim(worker) == []
        lab.later(5)
        taken = await lab.claim(worker)
        assert [job.id for job in taken] == [failed.id, scheduled.id]
        assert [job.arrived_at for job in taken] == [lab.at(-1), lab.now]
        assert taken[1].rev == scheduled.rev + 2, "a promotion and a claim"

    @pytest.mark.parametrize("limit", [None, 50])
    async def test_all_that_is_due_is_promoted_however_much_it_is(self, lab: Lab, limit: int | None) -> None:
        if limit is not None:
            await lab.set("limit:work", f'{{"max_concurrency":{limit}}}')
        worker = await lab.worker()
        for n in range(11):
            await lab.put_all(*(lab.job(delay=1 + n) for _ in range(MAX_BATCH)))
        first = await lab.put(delay=12, priority=60)
        lab.later(12)
        assert [job.id for job in await lab.claim(worker, 1)] == [first.id], "the last that fell due goes first"

    async def test_the_next_due_moment_is_told(self, lab: Lab, worker: UUID) -> None:
        await lab.put(delay=50)
        await lab.put(delay=20)
        claimed = await lab.claimed(worker)
        assert claimed.next_due == lab.at(20)
        lab.later(30)
        claimed = await lab.claimed(worker)
        assert claimed.next_due == lab.at(20)

    # -- repeats

    async def test_a_repeated_request_gives_the_same_jobs(self, lab: Lab, worker: UUID) -> None:
        await lab.put_all(*(lab.job(priority=n) for n in range(6)))
        first = await lab.claim(worker, 3, request=5)
        lab.later(2)
        assert await lab.claim(worker, 3, request=5) == first
        assert len(await lab.claim(worker, 3, request=6)) == 3

    async def test_a_repeated_request_gives_them_in_the_order_that_holds_by_then(self, lab: Lab, worker: UUID) -> None:
        here, there = await lab.put(), await lab.put(queue="there")
        assert [job.id for job in await lab.claim(worker, 2, request=5)] == [here.id, there.id]
        await pause(lab, "there", '{"priority":1}')
        assert [job.id for job in await lab.claim(worker, 2, request=5)] == [there.id, here.id]

    async def test_a_repeated_request_gives_only_what_is_still_held_unstarted(self, lab: Lab) -> None:
        worker, other = await lab.worker(), await lab.worker()
        await lab.put_all(*(lab.job() for _ in range(5)))
        started, lost, accepted, kept = await lab.claim(worker, 4, request=5, accept=False)
        await lab.start(started)
        await lose(lab, lost)
        accepted = await lab.do(execution.accept(accepted, lab.now, lab.rules))
        assert await lab.claim(worker, 4, request=5) == [accepted, kept]
        assert [job.id for job in await lab.claim(other, 1, request=5)] == [lost.id], "requests are a worker's own"

    # -- the worker

    async def test_an_unknown_worker_is_told_so_and_given_nothing(self, lab: Lab) -> None:
        job = await lab.put()
        assert await lab.ask(lab.new_id()) == Dead()
        assert await lab.get(job) == job

    @pytest.mark.parametrize("end", ["bury", "retire"])
    async def test_a_dead_worker_is_given_nothing(self, lab: Lab, end: str) -> None:
        worker, job = await lab.worker(), await lab.put()
        if end == "bury":
            assert await lab.engine.workers.bury(worker, 0)
        else:
            await lab.engine.workers.retire(worker)
        assert await lab.ask(worker) == Dead()
        assert await lab.get(job) == job

    async def test_a_dead_worker_is_not_even_given_what_it_had(self, lab: Lab) -> None:
        worker, _ = await lab.worker(), await lab.put()
        assert len(await lab.claim(worker, request=1)) == 1
        await lab.engine.workers.bury(worker, 0)
        assert await lab.ask(worker, request=1) == Dead()

    async def test_a_finished_job_makes_room_for_nothing_but_itself(self, lab: Lab, worker: UUID) -> None:
        job = await lab.finish(await lab.running(worker), Completed("1"))
        lab.later(timedelta(days=400).total_seconds())
        assert await lab.claim(worker) == []
        assert await lab.get(job) == job
