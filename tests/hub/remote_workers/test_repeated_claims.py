"""Claims that are sent again because their answers were lost, and those that are not repeats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from headrace import Status
from tests.hub.remote_workers.working import work
from tests.hub.serving import serving
from tests.support.apps import url_of
from tests.support.servers.proxy import Proxy
from tests.support.until import until

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_full_worker_is_given_again_what_it_has_and_nothing_else(slots: int, tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        for _ in range(4):
            assert (await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})).is_success
        me: dict[str, Any] = {"worker_id": "one"}
        known = await work(hub.client, "register_worker", **me, tasks=["work"], max_concurrent_jobs=slots)
        me["token"] = known["token"]

        async def claimed(request: str) -> dict[str, Any]:
            return await work(hub.client, "claim_job", **me, request=request)

        given = {request: (await claimed(request))["job_id"] for request in ("first", "second")[:slots]}
        assert len(set(given.values())) == slots
        assert (await claimed("third"))["type"] == "no_job"
        for request, job in given.items():
            again = await claimed(request)
            assert again["job_id"] == job
        await work(hub.client, "start_job", lease=again["lease"])
        assert (await claimed(request))["type"] == "no_job", "its answer has arrived"
        await work(hub.client, "complete_job", lease=again["lease"])
        assert (await claimed("third"))["job_id"] not in given.values()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_claim_that_another_hub_has_answered_takes_no_second_job_and_stands_in_nobodys_way(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(engine, tmp_path)
    async with serving(url) as stale, serving(url) as hub:
        me: dict[str, Any] = {"worker_id": "one"}
        known = await work(hub.client, "register_worker", **me, tasks=["work"], max_concurrent_jobs=2)
        me |= {"token": known["token"], "request": "same"}
        jobs, asked = stale.app.session.engine.jobs, list[UUID]()
        claim = jobs.claim

        async def noted(worker: UUID, *args: Any) -> Any:
            answer = await claim(worker, *args)
            asked.append(worker)
            return answer

        monkeypatch.setattr(jobs, "claim", noted)
        assert (await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})).is_success
        job = await work(hub.client, "claim_job", **me)
        await work(hub.client, "start_job", lease=job["lease"])
        late = asyncio.create_task(work(stale.client, "claim_job", **me, wait=50))
        await until(lambda: asked)
        two = await work(stale.client, "register_worker", worker_id="two", tasks=["work"])
        other = asyncio.create_task(
            work(stale.client, "claim_job", worker_id="two", token=two["token"], request="other", wait=50)
        )
        await until(lambda: UUID(two["worker"]) in asked)
        asked.clear()
        assert (await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})).is_success
        given = await other
        assert given["job_id"] != job["job_id"]
        assert not late.done()
        assert set(asked) == {UUID(two["worker"])}, "nobody is asked for whose request is over"
        late.cancel()


async def test_a_claim_whose_answer_is_lost_on_the_way_is_repeated_and_costs_no_job(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub, Proxy(hub.address) as proxy:
        me: dict[str, Any] = {"worker_id": "one"}
        me["token"] = (await work(hub.client, "register_worker", **me, tasks=["work"]))["token"]
        claim = me | {"wait": 50, "request": "lost"}
        async with httpx2.AsyncClient(base_url=proxy.url, trust_env=False, timeout=None) as far:
            lost = asyncio.create_task(work(far, "claim_job", **claim))
            await until(lambda: any(worker.given for worker in hub.hub.fleet.workers.values()))
            proxy.silence()  # from now on nothing arrives, and neither side is told
            answer = await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})
            id = UUID(answer.json()["job_id"])

            async def is_assigned() -> bool:
                return (await hub.app.jobs.get(id)).status is Status.ASSIGNED

            await until(is_assigned)
            job = await work(hub.client, "claim_job", **claim)
            assert job["job_id"] == str(id)
            await work(hub.client, "complete_job", lease=job["lease"], result="done")
            assert not lost.done()
            lost.cancel()
        [attempt] = (await hub.app.jobs.history(id)).attempts
        assert (await hub.app.jobs.get(id)).result == "done"
        assert attempt.number == 1


async def test_who_hung_up_gives_nothing_back_that_its_repeat_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        submitted = await hub.client.post("/api/jobs", json={"task": "work", "payload": {}})
        me: dict[str, Any] = {"worker_id": "one"}
        known = await work(hub.client, "register_worker", **me, tasks=["work"], max_concurrent_jobs=2)
        me |= {"token": known["token"], "request": "same", "wait": 20}
        jobs, asked, go_on = hub.app.session.engine.jobs, asyncio.Event(), asyncio.Event()
        claim = jobs.claim

        async def slow(*args: Any) -> Any:
            answer = await claim(*args)
            if not asked.is_set():
                asked.set()
                await go_on.wait()
            return answer

        monkeypatch.setattr(jobs, "claim", slow)
        async with httpx2.AsyncClient(base_url=hub.address, trust_env=False) as client:
            first = asyncio.create_task(work(client, "claim_job", **me))
            await asyncio.wait_for(asked.wait(), 20)
            first.cancel()
            await asyncio.wait([first])
        given = await work(hub.client, "claim_job", **me)
        assert given["job_id"] == submitted.json()["job_id"]
        go_on.set()
        worker = next(iter(hub.hub.fleet.workers.values()))
        await until(lambda: not worker.given)
        await until(lambda: not hub.hub.fleet.claims._tasks)
        assert (await work(hub.client, "start_job", lease=given["lease"]))["type"] == "job_started"
