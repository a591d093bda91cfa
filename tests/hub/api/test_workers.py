"""Workers over HTTP."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from headrace.hub import HubOptions
from tests.hub.api.world import world
from tests.hub.serving import serving
from tests.support.until import until


async def test_workers_are_listed_and_explained(tmp_path: Path) -> None:
    async with (
        world(tmp_path) as hub,
        hub.app.worker(concurrency=3, queues=["images"], offers={"gpu": 1}) as worker,
    ):
        await until(lambda: worker.healthy)
        [found] = (await hub.client.get("/api/workers")).json()["items"]
        assert (found["id"], found["concurrency"], found["queues"]) == (str(worker.id), 3, ["images"])
        assert (found["alive"], found["tasks"], found["offers"]) == (True, ["fail", "resize"], {"gpu": 1})
        assert (found["name"], found["customers"], found["claimed_at"], found["failed"]) == (None, None, None, 0)
        assert (await hub.client.get(f"/api/workers/{worker.id}")).json()["host"] == found["host"]

        async def measured() -> bool:
            [found] = (await hub.client.get("/api/workers")).json()["items"]
            used = found["busy_share"] == found["busy_share_ever"] == 0 and found["memory"] > 10**7
            return bool(used and found["polled_at"])  # it asked, and was given nothing

        await until(measured)
        told = (await hub.client.get(f"/api/workers/{worker.id}/explain")).json()
        assert [fact["code"] for fact in told["facts"]] == ["worker_free", "nothing_queued"]
        assert told["text"].startswith("It is alive")


async def test_a_worker_is_drained(tmp_path: Path) -> None:
    async with world(tmp_path) as hub, hub.app.worker() as worker:
        await until(lambda: worker.healthy)
        answer = await hub.client.post(f"/api/workers/{worker.id}/drain")
        assert (answer.status_code, answer.json()["id"]) == (202, str(worker.id))
        await worker.done()
        assert (await hub.app.store.audit())[0].by == "local"


async def test_nobody_is_not_found(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for id in (uuid4(), "x"):
            for method, path in (("GET", ""), ("GET", "/explain"), ("POST", "/drain")):
                assert (await hub.client.request(method, f"/api/workers/{id}{path}")).status_code == 404


async def test_the_worker_of_a_hub_is_not_drained(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db", HubOptions(maintenance=False)) as hub:
        await until(hub.app.workers.list)
        [own] = (await hub.client.get("/api/workers")).json()["items"]
        assert own["queues"] == ["headrace.webhooks"]
        answer = await hub.client.post(f"/api/workers/{own['id']}/drain")
        assert (answer.status_code, answer.json()["title"]) == (409, "A hub needs this worker")
