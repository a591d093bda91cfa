"""Limits: how many jobs at once, how many in a span of time, which key is next, and rules that cannot be read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headrace.conformance.lab import Choices, Lab, Part
from headrace.core.attempt import Completed, Ending, Released, Snoozed
from headrace.core.job import Job
from headrace.core.lifecycle import execution, loss
from headrace.core.limits.rate import Rate
from headrace.core.status import Cause, Status
from headrace.engine import Claimed

__all__ = ["Limiting", "Unreadable"]


_ENDINGS: tuple[Ending, ...] = (Completed(), Released(), Snoozed(1.0))


async def rule(lab: Lab, key: str, **document: Any) -> None:
    """Write a setting, whatever it was."""
    await lab.set(key, msgspec.json.encode(document).decode())


async def rate(lab: Lab, name: str, *args: Any, **options: Any) -> None:
    """Write a rate."""
    await rule(lab, f"rate:{name}", **msgspec.to_builtins(Rate(*args, **options)))


async def fill(lab: Lab, n: int, task: str = "work", **spec: Any) -> list[Job]:
    """Queue so many jobs."""
    return await lab.put_all(*(lab.job(task, **spec) for _ in range(n)))


async def free(lab: Lab, *jobs: Job) -> None:
    """Complete held jobs."""
    for job in jobs:
        await lab.do(lab.end(job, Completed(), started_at=lab.now))


def keys(jobs: list[Job]) -> list[str | None]:
    """Return the keys of the jobs."""
    return [job.concurrency_key for job in jobs]


class Limiting(Part):
    """What claims promise about limits."""

    @pytest.mark.parametrize("key", ["queue:default", "limit:work"])
    async def test_no_more_are_held_than_the_limit(self, lab: Lab, one: UUID, two: UUID, key: str) -> None:
        await rule(lab, key, max_concurrency=3)
        jobs = await fill(lab, 10)
        first = await lab.claim(one, 2)
        second = await lab.claim(two, 10)
        assert [job.id for job in (*first, *second)] == [job.id for job in jobs[:3]]
        assert await lab.claim(one, 10) == []
        await free(lab, first[0])
        assert [job.id for job in await lab.claim(two, 10)] == [jobs[3].id]

    @pytest.mark.parametrize("how", ["complete", "release", "snooze", "lose", "fail"])
    async def test_a_slot_is_free_however_its_job_left(self, lab: Lab, worker: UUID, how: str) -> None:
        await rule(lab, "limit:work", max_concurrency=1)
        await fill(lab, 2)
        [held] = await lab.claim(worker, 10)
        assert await lab.claim(worker, 10) == []
        running = await lab.start(held)
        match how:
            case "complete":
                await lab.finish(running)
            case "release":
                await lab.finish(running, Released())
            case "snooze":
                await lab.finish(running, Snoozed(60))
            case "lose":
                await lab.do(loss.lose(running, Cause.LEASE, lab.now, 0.5, lab.rules))
            case "fail":
                await lab.do(loss.lose(running, Cause.TIMEOUT, lab.now, 0.5, lab.rules))
        assert len(await lab.claim(worker, 10)) == 1

    async def test_a_slot_is_held_while_a_cancelled_job_is_not_let_go_of(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_concurrency=1)
        await fill(lab, 2)
        [held] = await lab.claim(worker, 10)
        asked = await lab.cancel(await lab.start(held))
        assert await lab.claim(worker, 10) == []
        await lab.finish(asked, Released())
        assert len(await lab.claim(worker, 10)) == 1

    async def test_all_limits_apply_together(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "queue:mail", max_concurrency=4)
        await rule(lab, "limit:a", max_concurrency=3)
        await rule(lab, "limit:b", max_per_key=1)
        await fill(lab, 9, "a", queue="mail")
        await fill(lab, 2, "b", queue="mail", concurrency_key="x")
        await fill(lab, 2, "b", queue="other", concurrency_key="x")
        taken = await lab.claim(worker, 100)
        assert [(job.task, job.queue) for job in taken] == [("a", "mail")] * 3 + [("b", "mail")]
        await free(lab, taken[3])
        assert [(job.task, job.queue) for job in await lab.claim(worker, 100)] == [("b", "mail")]

    async def test_what_is_full_keeps_nobody_else_waiting(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:narrow", max_concurrency=1)
        await fill(lab, 5, "narrow", priority=90)
        await fill(lab, 5, "wide")
        assert [job.task for job in await lab.claim(worker, 4)] == ["narrow", "wide", "wide", "wide"]
        assert [job.task for job in await lab.claim(worker, 4)] == ["wide", "wide"]

    async def test_a_limited_job_is_given_into_a_free_slot_only(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:narrow", max_concurrency=5)
        await fill(lab, 5, "narrow", priority=90)
        await fill(lab, 5, "wide")
        assert [job.task for job in await lab.claim(worker, 4, free=2)] == ["narrow", "narrow", "wide", "wide"]
        assert [job.task for job in await lab.claim(worker, 4, free=0)] == ["wide", "wide", "wide"]

    async def test_a_limit_that_is_changed_holds_at_once(self, lab: Lab, worker: UUID) -> None:
        await fill(lab, 10)
        assert len(await lab.claim(worker, 4)) == 4
        await rule(lab, "limit:work", max_concurrency=5)
        taken = await lab.claim(worker, 10)
        assert len(taken) == 1
        await rule(lab, "limit:work", max_concurrency=2)
        await free(lab, *taken)
        assert await lab.claim(worker, 10) == []
        await rule(lab, "limit:work")
        assert len(await lab.claim(worker, 10)) == 5

    async def test_what_is_said_while_running_goes_before_what_the_code_says(self, lab: Lab, worker: UUID) -> None:
        await fill(lab, 10)
        await rule(lab, "limit:work", code={"max_concurrency": 1})
        assert len(await lab.claim(worker, 10)) == 1
        await rule(lab, "limit:work", code={"max_concurrency": 1}, max_concurrency=3)
        assert len(await lab.claim(worker, 10)) == 2

    async def test_a_repeated_claim_of_limited_jobs_gives_the_same(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_concurrency=2)
        await fill(lab, 5)
        first = await lab.claim(worker, 5, request=9)
        assert await lab.claim(worker, 5, request=9) == first
        assert len(first) == 2

    async def test_a_dead_worker_is_given_nothing_within_a_limit_either(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_concurrency=2)
        await fill(lab, 5)
        assert await lab.engine.workers.bury(worker, 0)
        assert not isinstance(await lab.ask(worker), Claimed)

    # -- keys

    async def test_each_key_has_its_own_slots(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=2)
        await fill(lab, 4, concurrency_key="a")
        await fill(lab, 1, concurrency_key="b")
        await fill(lab, 1)
        assert sorted(keys(await lab.claim(worker, 100)), key=str) == [None, "a", "a", "b"]
        assert await lab.claim(worker, 100) == []

    async def test_keys_take_turns(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=10)
        await fill(lab, 6, concurrency_key="noisy")
        lab.later(1)
        await fill(lab, 3, concurrency_key="b")
        lab.later(1)
        await fill(lab, 3, concurrency_key="c")
        lab.later(1)
        assert keys(await lab.claim(worker, 7)) == ["noisy", "b", "c", "noisy", "b", "c", "noisy"]

    async def test_a_key_that_was_served_lately_goes_behind_those_that_wait(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=2)
        await fill(lab, 9, concurrency_key="noisy")
        lab.later(1)
        first = await lab.claim(worker, 2)
        lab.later(1)
        await fill(lab, 2, concurrency_key="late")
        lab.later(1)
        await free(lab, first[0])
        # By arrival alone the noisy key would always be first.
        assert keys(await lab.claim(worker, 1)) == ["noisy"]
        lab.later(1)
        await free(lab, first[1])
        assert keys(await lab.claim(worker, 1)) == ["late"]

    async def test_a_turn_is_remembered_when_its_job_is_done(self, lab: Lab, worker: UUID) -> None:
        await fill(lab, 5, concurrency_key="noisy")
        await fill(lab, 2, concurrency_key="quiet")
        turns = []
        for _ in range(4):
            lab.later(1)
            [job] = await lab.claim(worker, 1)
            turns.append(job.concurrency_key)
            await free(lab, job)
        assert turns == ["noisy", "quiet", "noisy", "quiet"]

    async def test_urgent_jobs_go_first_whosever_turn_it_is(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=3)
        await fill(lab, 3, concurrency_key="a")
        await fill(lab, 3, concurrency_key="b", priority=80)
        assert keys(await lab.claim(worker, 4)) == ["b", "b", "b", "a"]

    async def test_a_long_line_of_a_full_key_hides_nobody(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        await fill(lab, 900, concurrency_key="noisy")
        await fill(lab, 900, concurrency_key="noisy")
        await fill(lab, 3, concurrency_key="quiet")
        await fill(lab, 2)
        assert keys(await lab.claim(worker, 100)) == ["noisy", "quiet", None, None]
        await fill(lab, 1)
        assert keys(await lab.claim(worker, 100)) == [None]

    async def test_a_key_comes_back_with_its_job(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        await fill(lab, 1, concurrency_key="a", delay=5)
        assert await lab.claim(worker, 10) == []
        lab.later(5)
        [job] = await lab.claim(worker, 10)
        assert (job.concurrency_key, job.status) == ("a", Status.ACCEPTED)
        back = await lab.do(execution.release(job, lab.now))
        [again] = await lab.claim(worker, 10)
        assert (again.id, again.concurrency_key) == (back.id, "a")

    # -- rates

    @pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
    @pytest.mark.parametrize("where", ["queue:default", "limit:work"])
    async def test_no_more_begin_than_the_rate_allows(self, lab: Lab, worker: UUID, kind: Any, where: str) -> None:
        await rate(lab, "api", 3, per=60, kind=kind)
        await rule(lab, where, rates=["api"])
        await fill(lab, 9)
        lab.now = lab.now.replace(second=1)
        assert len(await lab.claim(worker, 2)) == 2
        claimed = await lab.claimed(worker, 10)
        assert len(claimed.jobs) == 1
        claimed = await lab.claimed(worker, 10)
        assert (claimed.jobs, claimed.next_due is not None) == ((), True)
        assert claimed.next_due is not None
        lab.later((claimed.next_due - lab.now).total_seconds())
        assert len(await lab.claim(worker, 10)) == (1 if kind == "bucket" else 3)

    async def test_a_job_that_ends_gives_no_permit_back(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 1, per=60, kind="sliding")
        await rule(lab, "limit:work", rates=["api"])
        await fill(lab, 3)
        await free(lab, *await lab.claim(worker, 10))
        assert await lab.claim(worker, 10) == []

    async def test_two_tasks_share_a_rate(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 3, per=60)
        await rule(lab, "limit:a", rates=["api"])
        await rule(lab, "limit:b", rates=["api"])
        await fill(lab, 2, "a")
        await fill(lab, 2, "b")
        await fill(lab, 1, "c")
        assert [job.task for job in await lab.claim(worker, 10)] == ["a", "a", "b", "c"]

    async def test_a_keyed_rate_is_counted_for_each_key(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 1, per=60, keyed=True)
        await rule(lab, "limit:work", rates=["api"], max_per_key=5)
        await fill(lab, 2, concurrency_key="a")
        await fill(lab, 2, concurrency_key="b")
        await fill(lab, 2)  # without a key there is nothing to count
        assert keys(await lab.claim(worker, 10)) == ["a", "b", None, None]
        lab.later(61)
        assert keys(await lab.claim(worker, 10)) == ["a", "b"]

    @pytest.mark.parametrize("kind", ["fixed", "sliding", "bucket"])
    async def test_a_permit_counts_until_its_job_can_have_begun_a_window_ago(self, lab: Lab, kind: Any) -> None:
        """With a lead of 5 s, claimed 2 s before the end of a fixed window, it counts in the next window, too."""
        await rate(lab, "api", 3, per=60, kind=kind)
        await rule(lab, "limit:work", rates=["api"])
        worker = await lab.worker()
        await fill(lab, 9)
        lab.now = lab.now.replace(second=58, microsecond=0)
        wanted = 2 if kind == "bucket" else 3  # a bucket is smaller by what comes in during the lead
        assert len(await lab.claim(worker, 10, lead=5)) == wanted
        claimed = await lab.claimed(worker, 10, lead=5)
        assert (claimed.jobs, claimed.paced, claimed.next_due) == (
            (),
            frozenset(),
            lab.at({"fixed": 62, "sliding": 65, "bucket": 5}[kind]),
        )
        assert claimed.next_due is not None
        lab.now = claimed.next_due - timedelta(milliseconds=1)
        assert await lab.claim(worker, 10, lead=5) == []
        lab.later(0.001)
        assert len(await lab.claim(worker, 10, lead=5)) == (1 if kind == "bucket" else 3)

    async def test_a_claim_says_which_jobs_spent_a_permit(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 3, per=60)
        await rate(lab, "own", 3, per=60, keyed=True)
        await rule(lab, "queue:slow", rates=["api"])
        await rule(lab, "limit:work", rates=["own"], max_per_key=5)
        await rule(lab, "limit:narrow", max_concurrency=1)
        jobs = [
            lab.job("other", queue="slow"),
            lab.job("work", concurrency_key="k"),
            lab.job("work"),
            lab.job("narrow"),
            lab.job("other"),
        ]
        await lab.put_all(*jobs)
        first = await lab.claimed(worker, 10, request=7, lead=1)
        assert {job.id for job in first.jobs} == {job.id for job in jobs}
        assert first.paced == {jobs[0].id, jobs[1].id}
        # A repeat spends nothing more, and returns the same for jobs that are held but not started.
        await lab.start(next(job for job in first.jobs if job.id == jobs[0].id))
        before = await lab.engine.records.usage([("rate", "api")])
        lab.later(1)
        again = await lab.claimed(worker, 10, request=7, lead=1)
        assert again.paced == {jobs[1].id}
        assert (await lab.engine.records.usage([("rate", "api")])).spent == before.spent

    async def test_where_nothing_has_a_rate_no_job_spent_a_permit(self, lab: Lab) -> None:
        await rate(lab, "api", 3, per=60)
        await rule(lab, "queue:elsewhere", rates=["api"])
        await fill(lab, 2)
        claimed = await lab.claimed(await lab.worker(), 10, lead=1)
        assert (len(claimed.jobs), claimed.paced) == (2, frozenset())

    async def test_a_job_that_is_given_back_unstarted_keeps_its_place_and_loses_its_permit(self, lab: Lab) -> None:
        await rate(lab, "api", 2, per=60, kind="sliding")
        await rule(lab, "limit:work", rates=["api"])
        worker = await lab.worker()
        await fill(lab, 3)
        first, second = await lab.claim(worker, 10, lead=1)
        back = await lab.do(execution.release(first, lab.now))
        assert (back.charged, back.attempt) == (0, 0)
        assert await lab.claim(worker, 10, lead=1) == []
        lab.later(62)
        await free(lab, second)
        assert [job.id for job in await lab.claim(worker, 1, lead=1)] == [first.id]

    async def test_a_rate_that_nobody_defined_limits_nothing(self, lab: Lab) -> None:
        await rule(lab, "limit:work", rates=["nothing"])
        await fill(lab, 2)
        assert len(await lab.claim(await lab.worker(), 10)) == 2

    # -- reading

    async def test_what_is_in_use_can_be_asked(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 5, per=60)
        await rule(lab, "limit:work", rates=["api"], max_per_key=2)
        await fill(lab, 2, queue="mail", concurrency_key="a")
        await fill(lab, 1, "other")
        assert len(await lab.claim(worker, 10)) == 3
        usage = await lab.engine.records.usage([("rate", "api")])
        assert usage.held == {
            ("queue", "mail"): 2,
            ("queue", "default"): 1,
            ("task", "work"): 2,
            ("task", "other"): 1,
            ("key", "work", "a"): 2,
        }
        assert sum(count for _, count in usage.spent["rate", "api"]) == 2

    # -- all of it, at random

    @pytest.mark.parametrize("seed", range(4))
    async def test_whatever_happens_no_limit_is_exceeded(self, lab: Lab, seed: int) -> None:
        choose = Choices(seed)
        await rule(lab, "queue:q1", max_concurrency=5)
        await rule(lab, "limit:a", max_concurrency=4, max_per_key=2)
        await rule(lab, "limit:b", max_per_key=1)
        workers: list[UUID] = [await lab.worker() for _ in range(3)]
        held: dict[UUID, Job] = {}
        given = 0
        for _ in range(60):
            lab.later(choose(0.0, 0.5, 2.0))
            jobs = [
                lab.job(choose("a", "b", "c"), queue=choose("q1", "q2"), concurrency_key=choose(None, "x", "y", "z"))
                for _ in range(choose(0, 1, 5))
            ]
            if jobs:
                await lab.put_all(*jobs)
            for job in await lab.claim(choose(*workers), choose(1, 3, 10), free=choose(1, 3, 10)):
                assert job.id not in held
                held[job.id] = job
                given += 1
            assert sum(job.queue == "q1" for job in held.values()) <= 5
            assert sum(job.task == "a" for job in held.values()) <= 4
            for key in ("x", "y", "z"):
                owners = [job.task for job in held.values() if job.concurrency_key == key]
                assert (owners.count("a") <= 2, owners.count("b") <= 1) == (True, True)
            for id in list(held):
                if choose(True, False, False):
                    job = held.pop(id)
                    ending = choose(*_ENDINGS)
                    await lab.do(lab.end(await lab.start(job), ending))
        assert given > 30


_WRONG = {
    "queue:mail": '{"max_concurrency":{"normal":5,"night":50}}',
    "limit:send": '{"code":{"max_concurrency":"many"}}',
    "rate:api": '{"limit":5,"per":60.0,"kind":"leaky","keyed":false}',
}
_RIGHT = {
    "queue:mail": '{"max_concurrency":5}',
    "limit:send": '{"code":{"max_concurrency":5}}',
    "rate:api": '{"limit":5,"per":60.0,"kind":"fixed","keyed":false}',
}


async def _claimed(lab: Lab) -> set[str]:
    return {f"{job.task} in {job.queue}" for job in await lab.claim(await lab.worker(), 100)}


def _touches(key: str, job: str) -> bool:
    task, _, queue = job.split()
    return {"queue:mail": queue == "mail", "limit:send": task == "send"}.get(key, task == "call" or queue == "paced")


class Unreadable(Part):
    """A rule that cannot be read blocks what it names, and nothing else."""

    @pytest.mark.parametrize("concurrency_key", [None, "anna"])
    @pytest.mark.parametrize("key", list(_WRONG))
    async def test_nothing_is_given_of_what_it_names_and_all_of_the_rest(
        self, lab: Lab, key: str, concurrency_key: str | None
    ) -> None:
        await lab.engine.documents.put_setting("queue:paced", '{"rates":["api"]}', 0)
        await lab.engine.documents.put_setting("limit:call", '{"rates":["api"]}', 0)
        jobs = {f"{task} in {queue}" for task in ("send", "sort", "call") for queue in ("mail", "post", "paced")}
        for job in sorted(jobs):
            task, _, queue = job.split()
            await lab.put(task, queue=queue, concurrency_key=concurrency_key)
        touched = {job for job in jobs if _touches(key, job)}
        assert touched
        await lab.set(key, _WRONG[key])
        assert await _claimed(lab) == jobs - touched
        assert await _claimed(lab) == set()
        await lab.set(key, _RIGHT[key])
        assert await _claimed(lab) == touched

    @pytest.mark.parametrize("document", ["", "7", "[]", "null", "{", '{"code":7}'])
    async def test_it_may_be_anything_and_is_gone_when_it_is_deleted(self, lab: Lab, document: str) -> None:
        await lab.put("send", queue="mail")
        await lab.put("sort", queue="post")
        await lab.set("queue:mail", document)
        assert await _claimed(lab) == {"sort in post"}
        await lab.set("queue:mail", None)
        assert await _claimed(lab) == {"send in mail"}
