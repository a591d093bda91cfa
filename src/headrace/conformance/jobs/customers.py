"""Customers: each has its own keys, and its own waiting list where a queue is set so."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Choices, Lab, Part
from headrace.core.attempt import Completed
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.matching.customers import Customers, turn_of
from headrace.core.query import Filter
from headrace.core.status import HELD, Status
from headrace.engine import Claimed, Duplicated, Inserted
from headrace.errors import ConfigError

__all__ = ["OfCustomers"]

STRICT = Customers(strict=True)


async def by_customer(lab: Lab, queue: str = "default", **others: Any) -> None:
    """Share the queue by customer."""
    await setting(lab, f"queue:{queue}", {"by_customer": True, **others})


async def setting(lab: Lab, key: str, value: Any) -> None:
    """Write a setting, whatever it was, and realign."""
    await lab.set(key, msgspec.json.encode(value).decode())
    while await lab.engine.jobs.realign(2):
        pass


async def given(lab: Lab, customers: Customers | None = None, **asked: Any) -> list[str | None]:
    """Return the customers of the jobs that a new worker gets."""
    worker = await lab.worker()
    queues = asked.pop("queues", ("default",))
    return [job.customer for job in await lab.claim(worker, queues=queues, customers=customers, **asked)]


class OfCustomers(Part):
    """What ``insert`` and ``claim`` promise of customers."""

    # -- keys

    async def test_a_dedup_key_is_the_customers_own(self, lab: Lab) -> None:
        owners = [None, "a", "b", "ak", "", "\x1f"]
        jobs = await lab.put_all(*(lab.job(customer=one, dedup="k") for one in owners))
        again = [lab.job(customer=one, dedup="k") for one in owners]
        assert await lab.insert(*again) == [Duplicated(job) for job in jobs]
        assert isinstance((await lab.insert(lab.job(customer="a", dedup="kk")))[0], Inserted)
        await lab.cancel(jobs[1])
        assert isinstance((await lab.insert(again[1]))[0], Inserted)

    async def test_a_retry_takes_the_key_of_its_customer(self, lab: Lab) -> None:
        first, other = await lab.put_all(lab.job(customer="a", dedup="k"), lab.job(customer="b", dedup="k"))
        ended = await lab.cancel(first)
        alive = await lab.do(actions.retry(ended, lab.now))
        assert await lab.insert(lab.job(customer="a", dedup="k")) == [Duplicated(alive)]
        assert await lab.insert(lab.job(customer="b", dedup="k")) == [Duplicated(other)]

    async def test_a_concurrency_key_is_the_customers_own(self, lab: Lab, worker: UUID) -> None:
        await setting(lab, "limit:work", {"max_per_key": 1})
        owners = [None, "a", "b"]
        jobs = await lab.put_all(*(lab.job(customer=one, concurrency_key="k") for one in owners for _ in range(2)))
        assert [job.id for job in await lab.claim(worker)] == [job.id for job in jobs[::2]]
        assert await lab.claim(worker) == []
        usage = await lab.engine.records.usage()
        assert {bound[2] for bound in usage.held if bound[0] == "key"} == {turn_of(job.spec) for job in jobs}

    async def test_a_rate_of_a_key_is_the_customers_own(self, lab: Lab) -> None:
        await setting(lab, "rate:slow", {"limit": 1, "per": 60, "kind": "fixed", "keyed": True})
        await setting(lab, "limit:work", {"rates": ["slow"]})
        jobs = await lab.put_all(*(lab.job(customer=one, concurrency_key="k") for one in "ab" for _ in range(2)))
        assert {job.id for job in await lab.claim(await lab.worker())} == {jobs[0].id, jobs[2].id}

    # -- customers of a worker

    async def test_elsewhere_a_choice_of_customers_is_refused_with_the_remedy(self, lab: Lab, dead: UUID) -> None:
        await lab.put(customer="a")
        await by_customer(lab, "other")
        with pytest.raises(ConfigError, match="headrace queues set default --by-customer"):
            await given(lab, STRICT, queues=("other", "default"))
        assert await given(lab, STRICT, queues=("other",)) == []
        assert await given(lab, STRICT, queues=None) == [], "of the queues that are set"
        await lab.ask(dead, queues=("other",), customers=STRICT)
        await lab.engine.workers.bury(dead, 0)
        await setting(lab, "queue:other", {})
        with pytest.raises(ConfigError):  # before the check whether the worker is dead
            await lab.ask(dead, queues=("other",), customers=STRICT)
        with pytest.raises(ConfigError, match="headrace queues set QUEUE --by-customer"):
            await given(lab, STRICT, queues=None)
        assert await given(lab) == ["a"]

    async def test_who_names_no_queue_serves_those_that_are_set(self, lab: Lab) -> None:
        await by_customer(lab, "one")
        await by_customer(lab, "two", priority=1)
        where = ("one", "default", "two", "one")
        await lab.put_all(*(lab.job(customer="a", queue=queue) for queue in where), lab.job(customer="b", queue="one"))
        jobs = await lab.claim(await lab.worker(), queues=None, customers=STRICT)
        assert [(job.queue, job.customer) for job in jobs] == [("two", "a"), ("one", "a"), ("one", "a")]

    @pytest.mark.parametrize("keyed", [False, True])
    async def test_allowed_and_denied_customers(self, lab: Lab, keyed: bool) -> None:
        await by_customer(lab)
        spec: dict[str, Any] = {"concurrency_key": "k"} if keyed else {}
        await lab.put_all(*(lab.job(customer=one, **spec) for one in ("a", None, "b", "c", "", "a")))
        assert await given(lab, Customers(allow=frozenset({"b", "x"}))) == ["b"]
        assert await given(lab, Customers(allow=frozenset({"a", "c"}), deny=frozenset({"a"}))) == ["c"]
        assert await given(lab, Customers(allow=frozenset())) == []
        assert await given(lab, Customers(deny=frozenset({"a", ""}))) == [None]
        assert await given(lab, Customers(), n=1) == ["a"]
        assert await given(lab) == ["", "a"]

    async def test_to_others_the_order_is_as_if_there_were_no_customers(self, lab: Lab, worker: UUID) -> None:
        await by_customer(lab)
        jobs = await lab.put_all(*(lab.job(customer=f"c{n % 7}" if n % 5 else None, priority=n % 3) for n in range(30)))
        wanted = sorted(jobs, key=lambda job: (-job.priority, job.seq))
        assert [job.id for job in await lab.claim(worker, 10)] == [job.id for job in wanted[:10]]
        assert [job.id for job in await lab.claim(worker, customers=Customers(), queues=("default",))] == [
            job.id for job in wanted[10:]
        ]

    async def test_a_strict_worker_has_jobs_of_one_customer_at_a_time(self, lab: Lab, worker: UUID) -> None:
        await by_customer(lab)
        await lab.put_all(*(lab.job(customer=one) for one in (None, "a", "b", "a", "b")))

        async def more(n: int = 9) -> list[Job]:
            return await lab.claim(worker, n, queues=("default",), customers=STRICT)

        first = await more(1)
        second = await more()
        assert [job.customer for job in (*first, *second)] == ["a", "a"]
        assert await more() == []
        await lab.finish(await lab.start(first[0]))
        assert await more() == [], "it still holds one of theirs"
        await lab.finish(await lab.start(second[0]))
        assert [job.customer for job in await more()] == ["b", "b"]
        assert await given(lab, STRICT) == [], "a strict worker gets no jobs without a customer"
        assert await given(lab) == [None]

    async def test_who_holds_jobs_of_two_is_strict_with_both(self, lab: Lab, worker: UUID) -> None:
        await by_customer(lab)
        await lab.put_all(*(lab.job(customer=one) for one in "ab"))
        assert len(await lab.claim(worker)) == 2
        await lab.put_all(*(lab.job(customer=one) for one in "abc"))
        assert await lab.claim(worker, queues=("default",), customers=STRICT) == []

    async def test_strict_claims_at_once_of_one_worker_get_jobs_of_one_customer(self, lab: Lab) -> None:
        await by_customer(lab)
        await lab.put_all(*(lab.job(customer=f"c{n % 10}") for n in range(60)))
        async with lab.sessions(3) as others:
            for _ in range(3):
                worker = await lab.worker()
                profiles = frozenset(one.id for one in (await lab.engine.documents.profiles()).profiles)
                wish = ClaimRequest(n=2, free=2, profiles=profiles, queues=("default",), customers=STRICT)
                answers = await asyncio.gather(
                    *(
                        session.jobs.claim(worker, wish, request, lab.now)
                        for request, session in enumerate([lab.engine, *others] * 2, 1)
                    )
                )
                jobs = [job for answer in answers if isinstance(answer, Claimed) for job in answer.jobs]
                assert len({job.customer for job in jobs}) == 1

    async def test_fifty_strict_claims_at_once_leave_no_worker_with_jobs_of_two(self, lab: Lab) -> None:
        """Checked by the record: the customers of each worker's jobs after each round, and of all it held at a time."""
        await by_customer(lab)
        owners = (*(f"c{number}" for number in range(6)), None)
        jobs = await lab.put_all(*(lab.job(customer=owners[number % 7]) for number in range(350)))
        profiles = frozenset(one.id for one in (await lab.engine.documents.profiles()).profiles)
        workers = [await lab.worker() for _ in range(5)]
        choose = Choices(7)
        async with lab.sessions(4) as others:
            for turn in range(3):
                asks = [
                    (
                        session,
                        worker,
                        ClaimRequest(n=n, free=n, profiles=profiles, queues=("default",), customers=STRICT),
                    )
                    for session in (lab.engine, *others)
                    for worker in workers
                    for n in (1, choose(1, 2, 3))
                ]
                answers = await asyncio.gather(
                    *(
                        session.jobs.claim(worker, ask, turn * 100 + number, lab.now)
                        for number, (session, worker, ask) in enumerate(asks, 1)
                    )
                )
                given = {job.id for answer in answers if isinstance(answer, Claimed) for job in answer.jobs}
                held = (await lab.engine.records.find(Filter(status=HELD), lab.now, 1000)).items
                assert given <= {job.id for job in held}
                lab.later(1)
                for worker in workers:
                    mine = [job for job in held if job.worker == worker]
                    assert len({job.customer for job in mine}) <= 1
                    assert None not in {job.customer for job in mine}
                    done = mine if choose(True, False) else mine[1:]  # some still hold one at their next request
                    await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in done))
                lab.later(1)
        spans = list[tuple[UUID | None, str | None, datetime | None, datetime]]()
        for job in await lab.engine.jobs.get([job.id for job in jobs]):
            assert job is not None
            if job.status is Status.QUEUED:
                continue
            spans += ((one.worker, job.customer, one.assigned_at, one.finished_at) for one in await lab.attempts(job))
            if job.held:
                spans.append((job.worker, job.customer, job.assigned_at, lab.now))
        assert {customer for _, customer, _, _ in spans} == {one for one in owners if one}, "everybody had a turn"
        for who, customer, since, until in spans:
            assert since is not None
            beside = {
                other
                for another, other, begin, end in spans
                if another == who and begin is not None and begin < until and since < end
            }
            assert beside == {customer}

    async def test_a_repeated_request_is_answered_as_the_first_time(self, lab: Lab, worker: UUID) -> None:
        await by_customer(lab)
        await lab.put_all(*(lab.job(customer=one) for one in "aab"))
        asked: dict[str, Any] = {"queues": ("default",), "customers": STRICT, "request": 7}
        assert await lab.claim(worker, 1, **asked) == await lab.claim(worker, 9, **asked)

    async def test_limits_and_pauses_hold(self, lab: Lab) -> None:
        await by_customer(lab, max_concurrency=2)
        await lab.put_all(*(lab.job(customer=one) for one in "abab"))
        assert await given(lab, Customers(allow=frozenset("b"))) == ["b", "b"]
        assert await given(lab, Customers(allow=frozenset("a"))) == []
        await by_customer(lab, paused=True)
        assert await given(lab, Customers()) == []

    # -- while the setting changes

    @pytest.mark.parametrize("keyed", [False, True])
    async def test_jobs_in_line_move_when_the_queue_is_set_and_back(self, lab: Lab, keyed: bool) -> None:
        spec: dict[str, Any] = {"concurrency_key": "k"} if keyed else {}
        jobs = [lab.job(customer=one, priority=n, **spec) for n, one in enumerate(("a", "b", None, "a", "b"))]
        stored = await lab.put_all(*jobs, lab.job(customer="a", delay=60, **spec))
        await by_customer(lab)
        assert await lab.engine.jobs.get([job.id for job in stored]) == stored, "nothing of them has changed"
        assert await lab.engine.jobs.realign() == 0
        assert await given(lab, Customers(allow=frozenset("b")), n=1) == ["b"]
        lab.later(60)
        await lab.engine.jobs.promote(lab.now)
        while await lab.engine.jobs.realign():
            pass
        assert await given(lab, Customers(allow=frozenset("a")), n=1) == ["a"]
        await setting(lab, "queue:default", {})
        with pytest.raises(ConfigError):
            await given(lab, STRICT)
        assert sorted(map(str, await given(lab))) == ["None", "a", "a", "b"]

    async def test_many_customers_cost_no_profiles(self, lab: Lab) -> None:
        await by_customer(lab)
        await lab.put()
        before = await lab.engine.documents.profiles()
        await lab.put_all(*(lab.job(customer=f"c{n}") for n in range(20)))
        assert await lab.engine.documents.profiles() == before
        counts = {count.queue: count.jobs for count in await lab.engine.records.count(lab.now)}
        assert counts == {"default": 21}

    async def test_whatever_is_asked_the_core_decides(self, lab: Lab) -> None:
        choose = Choices(5)
        await by_customer(lab)
        await by_customer(lab, "other", priority=1)
        owners = (None, "a", "b", "c")
        asks = [
            None,
            Customers(),
            STRICT,
            Customers(allow=frozenset("ab")),
            Customers(deny=frozenset("a"), strict=True),
        ]
        waiting = await lab.put_all(
            *(
                lab.job(customer=choose(*owners), queue=choose("default", "other"), priority=choose(1, 2, 3))
                for _ in range(40)
            )
        )
        workers = [await lab.worker() for _ in range(4)]
        held: dict[Any, list[Job]] = {worker: [] for worker in workers}
        for _ in range(30):
            worker, customers, n = choose(*workers), choose(*asks), choose(1, 2, 3)
            line = sorted(waiting, key=lambda job: (job.queue != "other", -job.priority, job.seq))
            mine, wanted = {job.customer for job in held[worker]}, list[Job]()
            for job in line:
                if len(wanted) < n and (customers is None or customers.admits(job.customer, mine)):
                    wanted.append(job)
                    mine.add(job.customer)
            taken = await lab.claim(worker, n, queues=("default", "other"), customers=customers)
            assert [job.id for job in taken] == [job.id for job in wanted]
            waiting = [job for job in waiting if job not in wanted]
            held[worker] += taken
            if held[worker] and n > 1:
                done = held[worker].pop()
                assert done.status is Status.ACCEPTED
                await lab.finish(await lab.start(replace(done, seq=done.seq)))
