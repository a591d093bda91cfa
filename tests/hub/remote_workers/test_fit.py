"""A job goes to the waiting worker that wastes least, over real sockets; and nobody waits for long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.core.matching.fit import MAX_HOLD_SECONDS
from headrace.hub.remote_workers import claims
from tests.hub.live.listening import connected
from tests.hub.remote_workers.working import work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


@pytest.fixture(autouse=True)
def hints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No claim is asked for just because it is time to: then others may not be asked for at the same moment."""
    monkeypatch.setattr(claims, "POLL_FIRST_SECONDS", 300.0)
    monkeypatch.setattr(claims, "POLL_MAX_SECONDS", 300.0)


def of_gb(gb: int, **more: Any) -> dict[str, Any]:
    return {"services": ["comfyui"], "hardware": {"gpu_memory_gb": gb}, **more}


async def submitted(hub: Served, gb: int, **requirements: Any) -> str:
    asked = {"service_type": "comfyui", "hardware": {"gpu_memory_gb": gb}, **requirements}
    answer = await hub.client.post("/api/jobs", json={"type": "image", "requirements": asked})
    id: str = answer.json()["job_id"]
    return id


async def waiting(hub: Served, n: int) -> None:
    """Until so many claims wait for a job, and the store was asked for each of them in vain."""
    asked = hub.hub.fleet.claims

    def all_wait() -> bool:
        lines = asked._lines.values()
        return sum(len(line.waiting) for line in lines) == n and not any(line.asking for line in lines)

    await until(all_wait)


async def test_small_jobs_go_to_small_workers_and_large_ones_to_large(url: str) -> None:
    async with serving(url) as hub, connected(hub) as large, connected(hub) as small:
        for socket, gb in ((large, 24), (small, 8)):
            registered = await socket.ask("register_worker", worker_id=f"gpu-{gb}", capabilities=of_gb(gb))
            assert registered["type"] == "worker_registered"
        for turn in range(4):
            asked = [
                asyncio.create_task(socket.ask("claim_job", worker_id=f"gpu-{gb}", wait=30))
                for socket, gb in ((large, 24), (small, 8))
            ]
            await waiting(hub, 2)
            order = (8, 24) if turn % 2 else (24, 8)
            jobs = {gb: await submitted(hub, gb) for gb in order}
            given = [await claim for claim in asked]
            assert [one["job_id"] for one in given] == [jobs[24], jobs[8]]
            for socket, gb in ((large, 24), (small, 8)):
                done = await socket.ask("complete_job", worker_id=f"gpu-{gb}", job_id=jobs[gb], result=None)
                assert done["type"] == "job_completed"
        claim = asyncio.create_task(large.ask("claim_job", worker_id="gpu-24", wait=30))
        both = asyncio.create_task(small.ask("claim_job", worker_id="gpu-8", wait=30))
        await waiting(hub, 2)
        first = await submitted(hub, 8)
        assert (await both)["job_id"] == first, "the small one alone is enough"
        second = await submitted(hub, 8)
        assert (await claim)["job_id"] == second, "now that it is alone, the large one takes it"


async def test_alone_a_large_worker_gets_the_small_job_at_once(url: str) -> None:
    async with serving(url) as hub:
        token = (await work(hub.client, "register_worker", worker_id="gpu-24", capabilities=of_gb(24)))["token"]
        claim = asyncio.create_task(work(hub.client, "claim_job", worker_id="gpu-24", token=token, wait=19))
        await waiting(hub, 1)
        id = await submitted(hub, 8)
        assert (await claim)["job_id"] == id


async def test_who_has_the_model_loaded_is_given_the_next_job_of_it(url: str) -> None:
    async with serving(url) as hub, connected(hub) as one, connected(hub) as two:
        models = {"a": one, "b": two}
        for name, socket in models.items():
            await socket.ask("register_worker", worker_id=name, capabilities=of_gb(8, components="all"))
            id = await submitted(hub, 8, component=name)
            given = await socket.ask("claim_job", worker_id=name, wait=30)
            assert given["job_id"] == id
            await socket.ask("complete_job", worker_id=name, job_id=id, result=None)
        for order in ("ab", "ba", "ab"):
            asked = {
                name: asyncio.create_task(models[name].ask("claim_job", worker_id=name, wait=30)) for name in order
            }
            await waiting(hub, 2)
            jobs = {name: await submitted(hub, 8, component=name) for name in reversed(order)}
            for name, claim in asked.items():
                given = await claim
                assert (given["job_id"], given["requirements"]["component"]) == (jobs[name], name)
                await models[name].ask("complete_job", worker_id=name, job_id=jobs[name], result=None)


async def test_nobody_is_held_back_for_longer_than_that(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The better one's question hangs in the store: the other is served none the less."""
    async with serving(url) as hub, connected(hub) as large, connected(hub) as small:
        for socket, gb in ((large, 24), (small, 8)):
            await socket.ask("register_worker", worker_id=f"gpu-{gb}", capabilities=of_gb(gb))
        [worker] = [one for one in hub.hub.fleet.workers.values() if one.name == "gpu-8"]
        waits = asyncio.create_task(small.ask("claim_job", worker_id="gpu-8", wait=30))
        claim = asyncio.create_task(large.ask("claim_job", worker_id="gpu-24", wait=30))
        await waiting(hub, 2)
        line_up, free = hub.hub.fleet.claims, asyncio.Event()
        asked = line_up._claimed

        async def hangs(line: Any, one: Any, *kept: Any) -> Any:
            if one.worker is worker:
                await free.wait()
            return await asked(line, one, *kept)

        monkeypatch.setattr(line_up, "_claimed", hangs)
        since = asyncio.get_running_loop().time()
        id = await submitted(hub, 8)
        assert (await claim)["job_id"] == id
        assert asyncio.get_running_loop().time() - since >= MAX_HOLD_SECONDS, "it was held back first"
        free.set()
        last = await submitted(hub, 8)
        assert (await waits)["job_id"] == last
