"""Rotation of keys: which key's job is next, however a key's jobs were queued and however many keys there are.

An engine that reads no more than necessary has to keep the position of each key: these tests are the ways to lose it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.jobs.limits import fill, free, keys, rate, rule
from headrace.conformance.lab import OOPS, Choices, Lab, Part, opened
from headrace.core.attempt import Completed, Ending, Failed, Released, Snoozed
from headrace.core.job import Job
from headrace.core.lifecycle import execution
from headrace.core.status import Status
from headrace.engines.memory import MemoryEngine
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host

__all__ = ["Turns"]

_ENDINGS: tuple[Ending, ...] = (Completed(), Completed(), Released(), Snoozed(2.0), Failed(error=OOPS))
MANY_KEYS = 300
"""More keys than a claim of a few jobs has reason to read."""


async def crowd(lab: Lab, names: range, **spec: Any) -> list[str | None]:
    """Insert a job of each of so many keys, all in one moment; return their keys in order of arrival, not of names."""
    jobs = await lab.put_all(*(lab.job(concurrency_key=f"k{name * 7919 % 1009}", **spec) for name in names))
    return keys(jobs)


async def done(lab: Lab, jobs: list[Job]) -> None:
    """Complete the jobs in one step."""
    await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in jobs))


async def drain(lab: Lab, worker: UUID, n: int) -> list[str | None]:
    """Return the keys of all jobs, claim by claim; each claim is completed before the next."""
    order = list[str | None]()
    while taken := await lab.claim(worker, n):
        order += keys(taken)
        await done(lab, taken)
        lab.later(1)
    return order


class Turns(Part):
    """What claims promise to keys."""

    # -- remembering turns

    @pytest.mark.parametrize(
        ("case", "remembered"), [("alone", False), ("in line", True), ("later turn", True), ("other key", True)]
    )
    async def test_a_turn_is_forgotten_with_a_job_of_its_key(self, lab: Lab, case: str, remembered: bool) -> None:
        worker = await lab.worker()
        await lab.put(queue="left", concurrency_key="c" if case == "other key" else "a")
        back = await lab.put(queue="right", concurrency_key="a")
        lab.later(1)
        other = await lab.put(queue="right", concurrency_key="b")
        lab.later(1)
        [held] = await lab.claim(worker, 1, queues=("right",))
        await free(lab, *await lab.claim(worker, 1, queues=("left",)))
        before = lab.now
        if case in ("in line", "later turn"):
            lab.later(1)
            await lab.put(queue="left", concurrency_key="a")
        if case == "later turn":
            assert len(await lab.claim(worker, 1, queues=("left",))) == 1
        assert await lab.engine.jobs.delete({Status.COMPLETED: before, Status.FAILED: lab.at(-9)}) == 1
        # It comes back with its old arrival, which is before the other's; its key has had a turn since.
        await lab.do(execution.release(held, lab.now))
        assert held.id == back.id
        [first] = await lab.claim(worker, 1, queues=("right",))
        assert first.id == (other.id if remembered else back.id)

    # -- many keys

    @pytest.mark.parametrize("document", [{}, {"max_per_key": 1}, {"max_concurrency": 25}], ids=str)
    async def test_many_keys_are_served_in_order_of_arrival(self, lab: Lab, document: dict[str, Any]) -> None:
        await rule(lab, "limit:work", **document)
        worker = await lab.worker()
        wanted = await crowd(lab, range(MANY_KEYS // 2))
        lab.later(1)
        wanted += await crowd(lab, range(MANY_KEYS // 2, MANY_KEYS))
        assert await drain(lab, worker, 10) == wanted

    async def test_each_of_many_keys_has_its_turn_before_any_has_another(self, lab: Lab, worker: UUID) -> None:
        wanted = await crowd(lab, range(100))
        for _ in range(2):
            lab.later(1)
            await crowd(lab, range(100))
        lab.later(1)
        assert await drain(lab, worker, 7) == wanted * 3

    @pytest.mark.parametrize("document", [{}, {"max_per_key": 3}], ids=str)
    async def test_a_noisy_key_keeps_nobody_waiting(self, lab: Lab, worker: UUID, document: dict[str, Any]) -> None:
        await rule(lab, "limit:work", **document)
        await fill(lab, 500, concurrency_key="noisy")
        lab.later(1)
        others = await crowd(lab, range(50))
        lab.later(1)
        order = await drain(lab, worker, 10)
        # The noisy key is first once, since it came first; from then on it is behind keys that have waited.
        assert order[:51] == ["noisy", *others]
        assert order[51:] == ["noisy"] * 499

    async def test_behind_many_keys_that_are_full_others_are_found(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        full = await crowd(lab, range(200))
        held = await lab.claim(worker, 500)
        assert keys(held) == full
        await crowd(lab, range(200))
        lab.later(1)
        behind = await crowd(lab, range(200, 400))
        assert keys(await lab.claim(worker, 3)) == behind[:3]
        assert keys(await lab.claim(worker, 500)) == behind[3:]
        assert await lab.claim(worker, 500) == []
        lab.later(1)
        await done(lab, held[50:60])
        assert keys(await lab.claim(worker, 500)) == full[50:60]

    async def test_behind_many_keys_without_a_permit_others_are_found(self, lab: Lab, worker: UUID) -> None:
        await rate(lab, "api", 1, per=60, keyed=True)
        await rule(lab, "limit:work", rates=["api"])
        spent = await crowd(lab, range(150))
        await done(lab, await lab.claim(worker, 500))
        await crowd(lab, range(150))
        lab.later(1)
        behind = await crowd(lab, range(150, 170))
        assert keys(await lab.claim(worker, 3)) == behind[:3]
        assert keys(await lab.claim(worker, 500)) == behind[3:]
        lab.later(60)
        assert keys(await lab.claim(worker, 500)) == spent

    async def test_behind_many_keys_whose_time_has_passed_others_are_found(self, lab: Lab, worker: UUID) -> None:
        await crowd(lab, range(150), not_after=5)
        await crowd(lab, range(150), not_after=5)
        lab.later(1)
        behind = await crowd(lab, range(150, 170))
        lab.later(10)
        assert keys(await lab.claim(worker, 3)) == behind[:3]
        assert keys(await lab.claim(worker, 500)) == behind[3:]

    async def test_plain_jobs_and_those_of_many_keys_stand_in_one_line(self, lab: Lab, worker: UUID) -> None:
        wanted = list[str | None]()
        for at in range(0, 60, 3):
            wanted += [*await crowd(lab, range(at, at + 3)), *keys(await fill(lab, 2))]
            lab.later(1)
        assert await drain(lab, worker, 4) == wanted

    async def test_two_tasks_with_many_keys_are_merged(self, lab: Lab, worker: UUID) -> None:
        wanted = list[tuple[str, str | None]]()
        for at in range(40):
            task = ("work", "play")[at % 3 == 0]
            await lab.put(task, concurrency_key=f"k{at % 20}", priority=(50, 70)[at > 30])
            wanted.append((task, f"k{at % 20}"))
            lab.later(1)
        seen = list[tuple[str, str | None]]()
        while taken := await lab.claim(worker, 6):
            seen += [(job.task, job.concurrency_key) for job in taken]
            await done(lab, taken)
        assert seen[:6] == wanted[31:37]
        assert sorted(map(str, seen)) == sorted(map(str, wanted))

    # -- priorities

    async def test_a_better_rank_comes_before_what_its_key_has_in_line(self, lab: Lab, worker: UUID) -> None:
        await crowd(lab, range(40))
        last = await lab.put(concurrency_key="late")
        lab.later(1)
        urgent = await lab.put(concurrency_key="late", priority=90)
        assert [job.id for job in await lab.claim(worker, 1)] == [urgent.id]
        rest = await lab.claim(worker, 500)
        # Behind the others, and not because of its turn: it came last.
        assert (len(rest), rest[-1].id) == (41, last.id)

    async def test_a_better_rank_comes_first_also_of_a_key_that_had_its_turn(self, lab: Lab, worker: UUID) -> None:
        await fill(lab, 3, concurrency_key="served")
        await done(lab, await lab.claim(worker, 1))
        lab.later(1)
        await crowd(lab, range(40))
        lab.later(1)
        urgent = await lab.put(concurrency_key="served", priority=90)
        assert [job.id for job in await lab.claim(worker, 1)] == [urgent.id]
        # The two others of that key arrived first, but it has had its turn since.
        order = keys(await lab.claim(worker, 500))
        assert (order[:40].count("served"), order[40:]) == (0, ["served", "served"])

    async def test_a_worse_rank_does_not_hold_up_what_its_key_has_in_line(self, lab: Lab, worker: UUID) -> None:
        first = await lab.put(concurrency_key="a")
        second = await lab.put(concurrency_key="b")
        later = await lab.put(concurrency_key="a", priority=10)
        for job in (first, second, later):
            lab.later(1)
            assert [one.id for one in await lab.claim(worker, 1)] == [job.id]

    # -- full keys

    async def test_keys_that_are_full_are_passed_over_and_come_back(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        for key in "abc":
            await fill(lab, 2, concurrency_key=key)
            lab.later(1)
        held = await lab.claim(worker, 2)
        assert keys(held) == ["a", "b"]
        lab.later(1)
        assert keys(await lab.claim(worker, 10)) == ["c"]
        assert await lab.claim(worker, 10) == []
        await free(lab, held[1])
        assert keys(await lab.claim(worker, 10)) == ["b"]
        await free(lab, held[0])
        assert keys(await lab.claim(worker, 10)) == ["a"]

    async def test_a_limit_that_is_raised_lets_keys_have_more(self, lab: Lab, worker: UUID) -> None:
        await rule(lab, "limit:work", max_per_key=1)
        for key in "ab":
            await fill(lab, 3, concurrency_key=key)
        assert keys(await lab.claim(worker, 10)) == ["a", "b"]
        await rule(lab, "limit:work", max_per_key=2)
        assert keys(await lab.claim(worker, 10)) == ["a", "b"]
        await rule(lab, "limit:work")
        assert keys(await lab.claim(worker, 10)) == ["a", "b"]

    # -- different claims

    async def test_two_queues_of_a_task_share_the_turns_of_its_keys(self, lab: Lab, worker: UUID) -> None:
        for queue in ("here", "there"):
            for key in "ab":
                await fill(lab, 2, queue=queue, concurrency_key=key)
                lab.later(1)
        [first] = await lab.claim(worker, 1, queues=("there",))
        assert first.concurrency_key == "a"
        lab.later(1)
        # In this queue that key got nothing, and it came first.
        assert keys(await lab.claim(worker, 1, queues=("here",))) == ["b"]
        order = list[str | None]()
        for _ in range(6):
            lab.later(1)
            order += keys(await lab.claim(worker, 1))
        assert order == ["a", "b", "a", "b", "a", "b"]

    @pytest.mark.parametrize("how", ["deferred", "stored late"])
    async def test_a_queue_that_is_new_to_a_key_knows_of_its_turn(self, lab: Lab, worker: UUID, how: str) -> None:
        first = lab.job(queue="there", concurrency_key="a", delay=1 if how == "deferred" else 0)
        if how == "deferred":
            await lab.put_all(first)
        await fill(lab, 1, queue="here", concurrency_key="a")
        other = await lab.put(queue="there", concurrency_key="b", delay=2)
        lab.later(3)
        assert keys(await lab.claim(worker, 1, queues=("here",))) == ["a"]
        lab.later(1)
        if how == "stored late":  # it arrived when it was submitted
            await lab.put_all(first)
        assert [job.id for job in await lab.claim(worker, 1)] == [other.id]
        assert [job.id for job in await lab.claim(worker, 1)] == [first.id]

    async def test_two_workers_share_the_turns(self, lab: Lab, one: UUID, two: UUID) -> None:
        for key in "abc":
            await fill(lab, 4, concurrency_key=key)
            lab.later(1)
        turns = list[str | None]()
        for at in range(12):
            lab.later(1)
            turns += keys(await lab.claim((one, two)[at % 2], 1))
        assert turns == ["a", "b", "c"] * 4

    async def test_a_claim_that_is_repeated_gives_the_same_and_costs_no_turn(self, lab: Lab, worker: UUID) -> None:
        for key in "abcd":
            await fill(lab, 2, concurrency_key=key)
            lab.later(1)
        first = await lab.claim(worker, 2, request=900)
        lab.later(1)
        again = await lab.claim(worker, 2, request=900)
        assert (keys(first), again) == (["a", "b"], first)
        assert keys(await lab.claim(worker, 6)) == ["c", "d", "a", "b", "c", "d"]

    async def test_a_key_whose_job_falls_due_is_served_by_the_claim_that_finds_it_so(self, lab: Lab) -> None:
        worker = await lab.worker()
        job = await lab.put(concurrency_key="a", delay=5)
        assert await lab.claim(worker, 10) == []
        lab.later(5)
        assert [one.id for one in await lab.claim(worker, 10)] == [job.id]

    async def test_a_turn_that_is_still_to_come_is_forgotten_with_the_next(self, lab: Lab, worker: UUID) -> None:
        """A clock went back, or that of one worker is ahead."""
        await fill(lab, 3, concurrency_key="a")
        await fill(lab, 1, queue="other", concurrency_key="a")
        lab.later(3600)
        assert keys(await lab.claim(worker, 1)) == ["a"]
        lab.later(-3599)
        assert keys(await lab.claim(worker, 1)) == ["a"]
        lab.later(1)
        await fill(lab, 2, concurrency_key="b")
        await fill(lab, 1, queue="other", concurrency_key="b")
        lab.later(1)
        assert keys(await lab.claim(worker, 1, queues=("other",))) == ["a"]
        assert keys(await lab.claim(worker, 3, queues=("default",))) == ["b", "a", "b"]

    # -- all of it, at random

    @pytest.mark.parametrize("seed", range(6))
    async def test_whatever_happens_keys_are_dealt_as_in_memory(self, lab: Lab, seed: int) -> None:
        host = Host(dice=SystemDice(1))
        async with opened(MemoryEngine(lab.rules, host)) as [memory]:
            wanted = await story(Lab(lambda: memory, host, lab.rules), seed)
        assert await story(lab, seed) == wanted
        assert sum(map(len, wanted)) > 100


async def story(lab: Lab, seed: int) -> list[list[str]]:
    """Return what claims get, while jobs of many keys come and go in every way; the same for the same seed."""
    choose = Choices(seed)
    await rule(lab, "limit:one", max_per_key=1)
    await rule(lab, "limit:some", max_per_key=2, max_concurrency=9)
    worker, number = await lab.worker(), 0
    held, waiting, given = list[Job](), list[Job](), list[list[str]]()
    for _ in range(40):
        lab.later(choose(0.0, 0.0, 1.0, 7.0))
        jobs = list[Job]()
        for _ in range(choose(0, 2, 12)):
            number += 1
            jobs.append(
                lab.job(
                    choose("one", "some", "any"),
                    payload=f"[{number}]",
                    concurrency_key=choose(*"abcdefghijklmnopqrstuvwxyz", None),
                    queue=choose("here", "there"),
                    priority=choose(50, 50, 50, 80),
                    not_after=choose(None, None, 3.0),
                    delay=choose(0.0, 0.0, 1.0, 2.0),
                )
            )
        waiting += await lab.put_all(*jobs) if jobs else []
        for job in waiting[: choose(0, 0, 1, 2)]:
            now = await lab.get(job)
            if now.status is Status.QUEUED:
                await lab.cancel(now)
        taken = await lab.claim(worker, choose(1, 2, 5, 20), free=choose(1, 5, 20))
        given.append([job.payload_text for job in taken])
        held += taken
        ids = {job.id for job in taken}
        waiting = [job for job in waiting if job.id not in ids]
        for job in held[:: choose(1, 2, 3)]:
            await lab.do(lab.end(await lab.start(job), choose(*_ENDINGS)))
            held.remove(job)
    return given
