"""Many workers that claim at once, over sockets and HTTP: whose jobs each of them is given, and which it is not."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from itertools import combinations, count
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
import websockets

from headrace import App
from headrace.core.status import Outcome
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.invariants import check_store
from tests.support.wrong_clock import MovedClock

pytestmark = [pytest.mark.every_engine, pytest.mark.timeout(180)]

WORKERS, SLOTS = 50, 3
CUSTOMERS, EACH = 6, 25

Ask = Callable[..., Awaitable[dict[str, Any]]]
"""Sends a message; the answer."""


@asynccontextmanager
async def over_http(hub: Served) -> AsyncIterator[Ask]:
    async with httpx2.AsyncClient(base_url=hub.address, trust_env=False, timeout=60) as client:

        async def ask(message: str, **fields: Any) -> dict[str, Any]:
            answer = await client.post(f"/api/work/{message}", json=fields)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        yield ask


@asynccontextmanager
async def over_socket(hub: Served) -> AsyncIterator[Ask]:
    asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
    numbers = count()
    async with websockets.connect(hub.address.replace("http", "ws") + "/ws", proxy=None) as connection:

        async def ask(message: str, **fields: Any) -> dict[str, Any]:
            number = next(numbers)
            answer = asked[number] = asyncio.get_running_loop().create_future()
            await connection.send(json.dumps({"type": message, "id": number, **fields}))
            found: dict[str, Any] = await answer
            assert found["type"] != "error", found
            return found

        async def hear() -> None:
            async for text in connection:
                said = json.loads(text)
                if said.get("id") in asked:
                    asked[said["id"]].set_result(said)

        hearing = asyncio.create_task(hear())
        try:
            yield ask
        finally:
            hearing.cancel()


async def strict_worker(ask: Ask, name: str) -> int:
    """Claims for all of its slots at once, again and again, until it is given nothing; how many jobs it was given."""
    known = await ask(
        "register_worker",
        worker_id=name,
        tasks=["render"],
        queues=["shared"],
        capabilities={"customer_access": {"isolation": "strict"}},
        max_concurrent_jobs=SLOTS,
    )
    me, given = {"worker_id": name, "token": known["token"]}, 0
    while True:
        answers = await asyncio.gather(*(ask("claim_job", **me) for _ in range(SLOTS)))
        held = [one for one in answers if one["type"] == "job_assigned"]
        if not held:
            return given
        assert len({job["customer_id"] for job in held}) == 1, held
        given += len(held)
        await asyncio.gather(*(ask("start_job", lease=job["lease"]) for job in held))
        await asyncio.gather(*(ask("complete_job", lease=job["lease"]) for job in held))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_no_worker_ever_holds_jobs_of_two_customers(engine: str, tmp_path: Path) -> None:
    # One clock for all that is on record, so that what ended before something began is dated before it.
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(serving(App(url_of(engine, tmp_path), clock=MovedClock())))
        await hub.app.queues.set("shared", by_customer=True)
        jobs = [
            {"task": "render", "payload": {"n": n}, "queue": "shared", "customer": f"customer-{n % CUSTOMERS}"}
            for n in range(CUSTOMERS * EACH)
        ]
        assert (await hub.client.post("/api/jobs/bulk", json={"jobs": jobs})).is_success
        ways = [over_socket, over_http]
        asks = [await stack.enter_async_context(ways[n % 2](hub)) for n in range(WORKERS)]
        given = await asyncio.gather(*(strict_worker(ask, f"worker-{n}") for n, ask in enumerate(asks)))
        # A claim that finds another at work may be given nothing: the last ones are for somebody who comes later.
        while sum(given) < len(jobs):
            given.append(await strict_worker(asks[len(given) % 2], f"worker-{len(given)}"))
        histories = await check_store(hub.app.session.engine)
        customers = {id: (await hub.app.jobs.get(id)).customer for id in histories}
    held: dict[UUID, list[tuple[str | None, datetime, datetime]]] = {}
    for id, history in histories.items():
        [attempt] = history.attempts
        assert attempt.outcome is Outcome.COMPLETED
        assert attempt.worker is not None
        assert attempt.assigned_at is not None
        held.setdefault(attempt.worker, []).append((customers[id], attempt.assigned_at, attempt.finished_at))
    assert len(held) > WORKERS // 2, "many of them were given something"
    assert max(Counter(len(mine) for mine in held.values())) > 1
    for mine in held.values():
        for one, other in combinations(mine, 2):
            (whose, since, until), (theirs, begun, ended) = one, other
            assert whose == theirs or until <= begun or ended <= since, (one, other)


@pytest.mark.parametrize("way", [over_socket, over_http])
async def test_a_job_that_nobody_can_run_yet_holds_up_nobody(way: Any, tmp_path: Path) -> None:
    def wants(gigabytes: int) -> dict[str, Any]:
        return {"service_type": "comfyui", "hardware": {"gpu_memory_gb": gigabytes}}

    def has(gigabytes: int) -> dict[str, Any]:
        return {"services": ["comfyui"], "hardware": {"gpu_memory_gb": gigabytes}}

    async with serving(App(url_of("sqlite", tmp_path))) as hub, way(hub) as ask:
        jobs = [{"type": "render", "priority": 90, "requirements": wants(24)}]
        jobs += [{"type": "render", "priority": 50, "requirements": wants(8)} for _ in range(20)]
        answers = [await hub.client.post("/api/jobs", json=job) for job in jobs]
        large, *small = [answer.json()["job_id"] for answer in answers]
        me, done = {"worker_id": "small"}, list[str]()
        me["token"] = (await ask("register_worker", **me, capabilities=has(16)))["token"]
        while (job := await ask("claim_job", **me))["type"] == "job_assigned":
            await ask("complete_job", lease=job["lease"])
            done.append(job["job_id"])
        assert done == small, "in their order, past the one at the head of the line"
        why = (await hub.client.get(f"/api/jobs/{large}/explain")).text
        assert "gpu_memory_gb" in why
        job = await ask("claim_job", worker_id="large", capabilities=has(24))
        assert job["job_id"] == large
