"""Claims that are sent again: however often, in sequence or concurrently, a request is one claim."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.jobs.customers import by_customer
from headrace.conformance.jobs.limits import rule
from headrace.conformance.lab import Lab, Part
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.matching.customers import Customers
from headrace.core.query import Filter
from headrace.engine import Claimed, Engine

__all__ = ["Repeating"]

_CLAIM_ROUNDS = 12

KINDS = ("one line", "several lines", "limited", "keyed", "by customer", "strict")


async def stand(lab: Lab, kind: str) -> dict[str, Any]:
    """Write the settings for claims of this kind; return the other arguments of the claim."""
    if kind == "limited":
        await rule(lab, "limit:work", max_concurrency=50)
    if kind in ("by customer", "strict"):
        await by_customer(lab)
        return {"queues": ("default",), "customers": Customers(strict=kind == "strict")}
    return {}


def job_of(lab: Lab, kind: str, number: int) -> Job:
    """Return a job for claims of this kind."""
    match kind:
        case "several lines":
            return lab.job(("work", "other", "third")[number % 3])
        case "keyed":
            return lab.job(concurrency_key=f"key {number}")
        case "by customer" | "strict":
            return lab.job(customer="abc"[number % 3])
    return lab.job()


class Repeating(Part):
    """What ``claim`` promises about repeated requests."""

    @pytest.mark.parametrize("n", [1, 2])
    @pytest.mark.parametrize("kind", KINDS)
    async def test_repeats_at_the_same_time_are_one_claim(self, lab: Lab, kind: str, n: int) -> None:
        asked = await stand(lab, kind)
        await lab.put_all(*(job_of(lab, kind, number) for number in range(60)))
        profiles = frozenset(profile.id for profile in (await lab.engine.documents.profiles()).profiles)
        ask = ClaimRequest(n=n, free=n, profiles=profiles, accept=False, **asked)

        async def claim(session: Engine, worker: UUID) -> tuple[Job, ...]:
            claimed = await session.jobs.claim(worker, ask, 7, lab.now)
            assert isinstance(claimed, Claimed)
            return claimed.jobs

        async with lab.sessions(2) as others:
            for _ in range(_CLAIM_ROUNDS):
                worker = await lab.worker()
                answers = await asyncio.gather(*(claim(one, worker) for one in (lab.engine, *others) * 2))
                page = await lab.engine.records.find(Filter(worker=frozenset({worker})), lab.now)
                held = {job.id for job in page.items}
                assert 0 < len(held) <= n
                assert [{job.id for job in jobs} for jobs in answers] == [held] * 6

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_repeat_of_what_is_started_gives_nothing(self, lab: Lab, kind: str) -> None:
        asked, worker = await stand(lab, kind) | {"accept": False, "request": 7}, await lab.worker()
        await lab.put_all(*(job_of(lab, kind, number) for number in range(9)))
        started, waiting = await lab.claim(worker, 2, **asked)
        await lab.start(started)
        assert await lab.claim(worker, 2, **asked) == [waiting], "nothing in the place of what is started"
        await lab.start(waiting)
        answer = await lab.claimed(worker, 2, **asked)
        assert (answer.jobs, answer.over) == ((), True)
        other = await lab.claimed(worker, 1, **asked | {"request": 8})
        assert (len(other.jobs), other.over) == (1, False), "another request is another claim"

    @pytest.mark.parametrize("limited", [False, True])
    async def test_a_request_of_which_nothing_is_held_is_a_claim_like_any_other(self, lab: Lab, limited: bool) -> None:
        await stand(lab, "limited" if limited else "one line")
        worker = await lab.worker()
        first, second = await lab.put_all(lab.job(), lab.job())
        [taken] = await lab.claim(worker, 1, request=7)
        await lab.finish(await lab.start(taken))
        answer = await lab.claimed(worker, 1, request=7)
        assert ([job.id for job in (taken, *answer.jobs)], answer.over) == ([first.id, second.id], False)
        await lab.finish(await lab.start(answer.jobs[0]))
        answer = await lab.claimed(worker, 1, request=7)
        assert (answer.jobs, answer.over) == ((), False), "there is nothing in line, which is something else"
