"""Matching through a hub: who is given what, whose jobs, what is said where nothing fits, and how much is used."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace import Status
from tests.hub.remote_workers.working import said, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


async def submitted(hub: Served, gb: int = 8, **fields: Any) -> str:
    asked = {"service_type": "comfyui", "hardware": {"gpu_memory_gb": gb}}
    answer = await hub.client.post("/api/jobs", json={"type": "image", "requirements": asked, **fields})
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["job_id"]
    return id


async def registered(hub: Served, name: str, gb: int = 16, **more: Any) -> str:
    fields = {"max_concurrent_jobs": 4, **more}
    can = {"services": ["comfyui"], "hardware": {"gpu_memory_gb": gb}, **fields.pop("capabilities", {})}
    token: str = (await work(hub.client, "register_worker", worker_id=name, capabilities=can, **fields))["token"]
    return token


async def claimed(hub: Served, token: str, wait: float = 0) -> str | None:
    """The job that a worker is given; it accepts it."""
    given = await work(hub.client, "claim_job", worker_id="w", token=token, wait=wait)
    if given["type"] == "no_job":
        return None
    await work(hub.client, "accept_job", lease=given["lease"])
    id: str = given["job_id"]
    return id


async def test_jobs_that_nobody_may_take_hold_up_nobody(url: str) -> None:
    async with serving(url) as hub:
        large = [await submitted(hub, 24, priority=90) for _ in range(3)]
        small = [await submitted(hub, 8) for _ in range(3)]
        token = await registered(hub, "worker-gpu-01", 16)
        assert [await claimed(hub, token) for _ in range(4)] == [*small, None]
        assert {(await hub.app.jobs.get(id)).status for id in large} == {Status.QUEUED}
        token = await registered(hub, "worker-gpu-02", 24)
        assert [await claimed(hub, token) for _ in range(3)] == large


async def test_what_does_not_fit_is_said_with_the_name_of_who_comes_nearest(url: str) -> None:
    async with serving(url) as hub:
        for name, gb in (("worker-gpu-01", 16), ("worker-gpu-02", 8)):
            await registered(hub, name, gb)
        id = await submitted(hub, 24)
        told = (await hub.client.get(f"/api/jobs/{id}/explain")).json()
        assert "It needs hardware.gpu_memory_gb ≥ 24; the nearest worker, worker-gpu-01, offers 16." in told["text"]
        rows = {row["name"]: row for row in (await hub.client.get("/api/workers")).json()["items"]}
        assert set(rows) == {"worker-gpu-01", "worker-gpu-02"}
        told = (await hub.client.get(f"/api/workers/{rows['worker-gpu-02']['id']}/explain")).json()
        assert "1 of 'image' needs hardware.gpu_memory_gb ≥ 24, it offers 8." in told["text"]
        unmet = next(fact for fact in told["facts"] if fact["code"] == "requirements_unmet")["data"]["unmet"]
        assert unmet == [
            {
                "task": "image",
                "jobs": 1,
                "lacks": [{"name": "hardware.gpu_memory_gb", "need": 24, "offer": 8}],
            }
        ]


async def test_the_isolation_of_the_page_needs_no_setting(url: str) -> None:
    async with serving(url) as hub:
        jobs = [await submitted(hub, customer_id="a"), await submitted(hub, customer_id="b"), await submitted(hub)]
        for isolation in ("loose", "none"):
            token = await registered(hub, isolation, capabilities={"customer_access": {"isolation": isolation}})
            assert await claimed(hub, token) == jobs.pop(0)


async def test_who_chooses_customers_is_told_how_to_make_that_possible(url: str) -> None:
    async with serving(url) as hub:
        id = await submitted(hub, customer_id="a")
        strict: dict[str, Any] = {"capabilities": {"customer_access": {"isolation": "strict"}}}
        for more in (strict | {"queues": ["default"]}, strict):
            token = await registered(hub, "strict", **more)
            refused = await said(hub.client, "claim_job", worker_id="strict", token=token)
            assert refused.status_code == 409, refused.text
            assert "--by-customer" in refused.json()["detail"]
        told = (await hub.client.get(f"/api/jobs/{id}/explain")).json()
        assert "headrace queues set default --by-customer" in told["text"]
        await hub.app.queues.set("default", by_customer=True)
        assert await claimed(hub, token) == id, "and then it is"


async def test_a_strict_worker_has_jobs_of_one_customer_at_a_time(url: str) -> None:
    async with serving(url) as hub:
        await hub.app.queues.set("default", by_customer=True)
        jobs = [await submitted(hub, customer_id=one) for one in "abab"]
        await submitted(hub)
        token = await registered(hub, "strict", capabilities={"customer_access": {"isolation": "strict"}})
        answers = await asyncio.gather(*(claimed(hub, token) for _ in range(4)))
        assert {one for one in answers if one} == {jobs[0], jobs[2]}
        [row] = (await hub.client.get("/api/workers")).json()["items"]
        assert row["customers"] == {"allow": None, "deny": [], "strict": True}
        told = (await hub.client.get(f"/api/workers/{row['id']}/explain")).json()
        assert (
            "It is strict and holds jobs of 'a': 2 jobs of other customers wait until these are done." in told["text"]
        )
        assert "1 job is of customers that it does not take: 1 without one." in told["text"]
        told = (await hub.client.get(f"/api/jobs/{jobs[1]}/explain")).json()
        assert "1 strict worker may take it once the jobs of other customers that it holds are done." in told["text"]


async def test_fifty_strict_claims_at_once_leave_no_worker_with_jobs_of_two(url: str) -> None:
    async with serving(url) as hub:
        await hub.app.queues.set("default", by_customer=True)
        for number in range(60):
            await submitted(hub, customer_id=f"c{number % 6}")
        strict = {"customer_access": {"isolation": "strict"}}
        tokens = [
            await registered(hub, f"strict-{number}", capabilities=strict, max_concurrent_jobs=10)
            for number in range(5)
        ]
        answers = await asyncio.gather(*(claimed(hub, token, wait=1) for token in tokens for _ in range(10)))
        held = dict[str, set[str | None]]()
        accepted = (await hub.app.jobs.list(status=[Status.ACCEPTED], limit=100)).items
        assert sorted(str(job.id) for job in accepted) == sorted(one for one in answers if one)
        for job in accepted:
            held.setdefault(str(job.worker), set()).add(job.customer)
        assert len(held) == 5
        assert all(len(customers) == 1 for customers in held.values())


@pytest.mark.parametrize(
    ("capabilities", "field"),
    [
        ({"services": 3}, "capabilities.services"),
        ({"customer_access": {"isolation": "tight"}}, "capabilities.customer_access.isolation"),
        ({"component": "x"}, "capabilities.component"),
    ],
)
async def test_capabilities_that_cannot_be_used_are_named(
    capabilities: dict[str, Any], field: str, tmp_path: Path
) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        for message in ("register_worker", "claim_job"):
            refused = await said(hub.client, message, worker_id="w", capabilities=capabilities)
            assert refused.status_code == 400
            assert [one["field"] for one in refused.json()["errors"]] == [field]


async def test_how_much_of_a_worker_is_used(url: str) -> None:
    async with serving(url) as hub:
        token = await registered(hub, "worker-gpu-01", max_concurrent_jobs=2)
        [first, second] = [await submitted(hub), await submitted(hub, max_retries=0)]
        given = await work(hub.client, "claim_job", worker_id="w", token=token)
        failing = await work(hub.client, "claim_job", worker_id="w", token=token)
        assert (given["job_id"], failing["job_id"]) == (first, second)
        assert await claimed(hub, token) is None, "it is full"
        [row] = (await hub.client.get("/api/workers")).json()["items"]
        await work(hub.client, "heartbeat", token=token)
        told = (await hub.client.get(f"/api/workers/{row['id']}/explain")).json()
        assert "It has as many jobs as it takes at once (max_concurrent_jobs 2): it is offered no more." in told["text"]
        await work(hub.client, "fail_job", lease=failing["lease"], error="no", retry=False)

        async def seen() -> bool:
            await work(hub.client, "heartbeat", token=token)
            [row] = (await hub.client.get("/api/workers")).json()["items"]
            counted = (row["busy"], row["done"], row["failed"], row["memory"]) == (1, 1, 1, None)
            counted = counted and row["polled_at"] >= row["claimed_at"]
            return bool(counted and 0 < row["busy_share"] <= 1 and row["busy_share_ever"] > 0)

        await until(seen)


async def test_what_a_worker_says_of_itself_anew_is_what_is_shown(url: str) -> None:
    async with serving(url) as hub:
        token = await registered(hub, "worker-gpu-01", 8)
        id = await submitted(hub, 32)
        can = {"services": "all", "hardware": {"gpu_memory_gb": 24}}
        assert await claimed(hub, token) is None
        given = await work(hub.client, "claim_job", worker_id="w", token=token, capabilities=can, max_concurrent_jobs=7)
        assert given["type"] == "no_job"
        await work(hub.client, "heartbeat", token=token)
        [row] = (await hub.client.get("/api/workers")).json()["items"]
        assert (row["offers"], row["concurrency"], row["name"]) == (can, 7, "worker-gpu-01")
        told = (await hub.client.get(f"/api/jobs/{id}/explain")).json()
        assert "It needs hardware.gpu_memory_gb ≥ 32; the nearest worker, worker-gpu-01, offers 24." in told["text"]
        async with serving(url) as other:
            assert (await work(other.client, "heartbeat", token=token))["registered"] is True
            [worker] = other.hub.fleet.workers.values()
            assert worker.wants is not None
            assert (worker.wants.offers, worker.concurrency) == (can, 7), "also at another hub"
