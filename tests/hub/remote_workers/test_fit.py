"""A job goes to the waiting worker that wastes least, over real sockets; and nobody waits for long."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.core.matching.fit import MAX_HOLD_SECONDS
from headrace.engine.bus import Hint, Topic
from headrace.hub.remote_workers import claims
from tests.hub.live.listening import Socket, connected
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


async def test_of_workers_that_fit_equally_the_least_loaded_is_first(url: str) -> None:
    """In one waiting list, and in two: those with other words of the same number."""
    async with serving(url) as hub, connected(hub) as socket:
        for others in ([], ["x"]):
            names = {f"busy{len(others)}": 0.9, f"idle{len(others)}": 0.1}
            for name, load in names.items():
                services = ["comfyui", *(others if load < 0.5 else ["y"] * len(others))]
                can = {**of_gb(8), "services": services}
                await socket.ask("register_worker", worker_id=name, capabilities=can)
            for number, (name, load) in enumerate(names.items(), 1):
                await socket.send("claim_job", id=name, worker_id=name, current_load=load, wait=30)
                await waiting(hub, number)
            for name in reversed(names):
                id = await submitted(hub, 8)
                given = await socket.until("job_assigned")
                assert (given["id"], given["job_id"]) == (name, id)
                await socket.ask("complete_job", worker_id=name, job_id=id)


async def test_a_heartbeat_says_the_load_too(url: str) -> None:
    async with serving(url) as hub, connected(hub) as socket:
        for number, name in enumerate(("one", "two"), 1):
            await socket.ask("register_worker", worker_id=name, capabilities=of_gb(8))
            await socket.send("claim_job", id=name, worker_id=name, wait=30)
            await waiting(hub, number)
        await socket.ask("heartbeat", worker_id="one", load=0.8)
        await submitted(hub, 8)
        assert (await socket.until("job_assigned"))["id"] == "two"


@pytest.mark.parametrize("alike", [True, False], ids=["in one list", "in two"])
async def test_another_worker_than_the_one_that_failed_it_goes_first(url: str, alike: bool) -> None:
    async with serving(url) as hub, connected(hub) as socket:
        body = {"retry_delays": [0.2, 0.2], "max_retries": 2}
        asked = {"service_type": "comfyui"}
        for name in ("first", "second"):
            can = of_gb(8) if alike or name == "first" else of_gb(24)  # which wastes more
            await socket.ask("register_worker", worker_id=name, capabilities=can)
        answer = await hub.client.post("/api/jobs", json={"type": "image", "requirements": asked, **body})
        id = answer.json()["job_id"]
        assert (await socket.ask("claim_job", worker_id="first", wait=30))["job_id"] == id
        await socket.send("claim_job", id="second", worker_id="second", wait=30)
        await waiting(hub, 1)
        failed = await socket.ask("fail_job", worker_id="first", job_id=id, error="no")
        assert failed["status"] == "retrying"
        await socket.send("claim_job", id="first", worker_id="first", wait=30)
        assert (await next_given(hub, socket, failed))["id"] == "second"
        failed = await socket.ask("fail_job", worker_id="second", job_id=id, error="no")
        assert (await next_given(hub, socket, failed))["id"] == "first", "now the other one was the last to fail it"


async def test_it_goes_first_also_where_the_one_that_failed_it_has_waited_for_longer(url: str) -> None:
    async with serving(url) as hub, connected(hub) as socket:
        for name in ("first", "second"):
            await socket.ask("register_worker", worker_id=name, capabilities=of_gb(8), max_concurrent_jobs=2)
        body = {"type": "image", "requirements": {"service_type": "comfyui"}, "retry_delays": [0.2]}
        id = (await hub.client.post("/api/jobs", json=body)).json()["job_id"]
        assert (await socket.ask("claim_job", worker_id="first", wait=30))["job_id"] == id
        for number, name in enumerate(("first", "second"), 1):  # in one list, by arrival
            await socket.send("claim_job", id=name, worker_id=name, wait=30)
            await waiting(hub, number)
        failed = await socket.ask("fail_job", worker_id="first", job_id=id, error="no")
        given = await next_given(hub, socket, failed)
        assert (given["id"], given["job_id"]) == ("second", id)


async def test_alone_a_worker_tries_again_what_it_failed(url: str) -> None:
    async with serving(url) as hub, connected(hub) as socket:
        await socket.ask("register_worker", worker_id="only", capabilities=of_gb(8))
        body = {"type": "image", "requirements": {"service_type": "comfyui"}, "retry_delays": [0.2]}
        id = (await hub.client.post("/api/jobs", json=body)).json()["job_id"]
        await socket.ask("claim_job", worker_id="only", wait=30)
        failed = await socket.ask("fail_job", worker_id="only", job_id=id, error="no")
        await socket.send("claim_job", id="only", worker_id="only", wait=30)
        assert (await next_given(hub, socket, failed))["job_id"] == id


async def next_given(hub: Served, socket: Socket, failed: dict[str, Any]) -> dict[str, Any]:
    """What is assigned when the failed job is due again."""
    assert failed["status"] == "retrying"
    due = datetime.fromisoformat(failed["retry_at"])
    await until(lambda: hub.app.host.clock.now() >= due)
    hub.hub.fleet.claims.hinted(Hint(Topic.READY, ()))
    return await socket.until("job_assigned")
