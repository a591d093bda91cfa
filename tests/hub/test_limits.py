"""What a key and a customer may have."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.client.registry import UnregisteredTask
from headrace.hub.caller import LOCAL, SCOPES, Caller
from headrace.hub.limits import Caps, SubmitRate
from headrace.hub.options import HubOptions
from headrace.hub.problems import Problem
from headrace.testing import FakeClock
from tests.hub.serving import serving
from tests.support.apps import ENGINES, url_of


def test_submits_come_in_bursts_and_then_at_a_rate() -> None:
    rate, spent = SubmitRate(2, burst=3), 0
    for _ in range(3):
        rate.spend(100.0)
    with pytest.raises(Problem) as raised:
        rate.spend(100.0)
    assert (raised.value.status, raised.value.headers["Retry-After"]) == (429, "1")
    assert "2 times a second" in raised.value.details.detail
    rate.spend(100.5)
    for now in (100.6, 100.7, 100.9):
        with pytest.raises(Problem):
            rate.spend(now)
    rate.spend(101.0)
    for _ in range(10):
        try:
            rate.spend(1000.0)
        except Problem:
            break
        spent += 1
    assert spent == 3  # however long it rested


def test_a_slow_rate_says_how_long_to_wait() -> None:
    rate = SubmitRate(0.1, burst=1)
    rate.spend(0.0)
    with pytest.raises(Problem) as raised:
        rate.spend(1.0)
    assert raised.value.headers["Retry-After"] == "9"
    rate.spend(10.0)


def key(**bounds: Any) -> Caller:
    return Caller(name="shop", key="hr_1", scopes=frozenset(SCOPES), **bounds)


async def refusal(caps: Caps, caller: Caller, priority: int = 50, **requires: Any) -> Problem:
    with pytest.raises(Problem) as raised:
        await caps.admit(caller, "add", priority, requires)
    return raised.value


async def test_a_customer_is_not_as_urgent_as_the_operator() -> None:
    async with App("memory://") as app:
        caps = Caps(app, HubOptions())
        await caps.admit(key(customer="acme"), "add", 89, {})
        problem = await refusal(caps, key(customer="acme"), 90)
        assert (problem.status, "at most 89, not 90" in problem.details.detail) == (403, True)
        assert problem.details.errors[0].field == "priority"
        for caller in (key(), LOCAL):
            await caps.admit(caller, "add", 100, {})


async def test_a_customer_has_so_many_profiles_and_no_more() -> None:
    clock = FakeClock()
    async with App("memory://", clock=clock) as app:
        caps = Caps(app, HubOptions(customer_profiles=3))
        acme, other = key(customer="acme"), key(customer="other")
        for number in range(3):
            await caps.admit(acme, "add", 50, {"gpu": number})
            await caps.admit(acme, "add", 50, {})
        problem = await refusal(caps, acme, gpu=3)
        assert (problem.status, problem.headers["Retry-After"]) == (429, "60")
        await caps.admit(acme, "add", 50, {"gpu": 1})  # what it has already
        with pytest.raises(Problem):
            await caps.admit(acme, "drop", 50, {"gpu": 1})
        for caller in (other, key()):
            await caps.admit(caller, "add", 50, {"gpu": 3})
        clock.advance(hours=1)
        await caps.admit(acme, "add", 50, {"gpu": 3})


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_customer_has_so_many_live_jobs_and_no_more(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    async def submit(customer: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnregisteredTask)
            return await app.submit("add", {}, customer=customer)

    async with app:
        caps, acme = Caps(app, HubOptions(customer_jobs=3)), key(customer="acme")
        jobs = [await submit("acme") for _ in range(2)]
        await submit("other")
        await jobs[0].cancel()
        for _ in range(2):  # one is live, and these
            await caps.admit(acme, "add", 50, {})
        problem = await refusal(caps, acme)
        assert problem.status == 429
        assert "may have 3 jobs that have not ended" in problem.details.detail
        assert int(problem.headers["Retry-After"]) >= 1
        clock.advance(2)  # those that were let in were not stored, as is seen when they are counted again
        with pytest.raises(Problem):
            await caps.live(acme, 3)
        await caps.live(acme, 2)
        await caps.live(key(), 10)
        await Caps(app, HubOptions(customer_jobs=None)).live(acme, 10)


async def test_acts_keep_to_the_caps_of_a_customer() -> None:
    async with App("memory://") as app:
        key = (await app.create_key("acme", ["act"], customer="acme")).text

        @app.task
        async def add() -> None: ...

        jobs = [await add.options(customer="acme").submit() for _ in range(3)]
        for job in jobs[1:]:
            await job.cancel()
        async with serving(app, HubOptions(customer_jobs=1, customer_profiles=1)) as hub:

            async def act(path: str, **body: Any) -> int:
                answer = await hub.client.post(
                    f"/api/jobs/{path}", json=body, headers={"authorization": f"Bearer {key}"}
                )
                return answer.status_code

            assert await act(f"{jobs[0].id}/reprioritise", priority=90) == 403
            assert await act(f"{jobs[0].id}/reprioritise", priority=89) == 200
            assert await act(f"{jobs[1].id}/rerun", priority=90) == 403
            for verb in ("retry", "rerun"):
                assert await act(f"{jobs[1].id}/{verb}") == 429
                assert await act("act", act=verb, filter={"task": "add"}) == 429
            await jobs[0].cancel()
            assert await act("act", act="retry", filter={"task": "add"}) == 429  # three would be live
            assert await app.count(status="cancelled") == 3
